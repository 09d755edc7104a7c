#pragma once

// What `status` says of the GPU's L2, by what carveout-probe has left.

#include <rapidjson/document.h>

#include <string>

#include "client/l2_class.hpp"

namespace carveout::ctl {

// Adds `l2` to what the daemon answers `status`: `file`, `measured`, and by that what the file has,
// or `problem` where it is there and cannot be used; with `driver_now` (client::nvidia_driver())
// and `lender_now`, by `status` itself.
void add_l2(rapidjson::Document& status, const std::string& file, const std::string& driver_now);

// The same for people, on one line: of what is lent, and not of what it was held against. Empty
// where `status` has no `l2`.
[[nodiscard]] std::string l2_line(const rapidjson::Value& status);

}  // namespace carveout::ctl
