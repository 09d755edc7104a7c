#pragma once

#include <rapidjson/document.h>

#include <string>
#include <string_view>

namespace carveout::ctl {

// What people read; a member that the daemon did not send shows as "-".
std::string status_table(const rapidjson::Value& status);
std::string leases_table(const rapidjson::Value& reply);
// `nobody`: what is said when there is no holder.
std::string holders_table(const rapidjson::Value& reply, std::string_view nobody);
std::string draining_line(const rapidjson::Value& reply);

// What programs read: the daemon's own members, indented.
std::string pretty_json(const rapidjson::Value& reply);

}  // namespace carveout::ctl
