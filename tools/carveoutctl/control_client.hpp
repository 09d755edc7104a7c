#pragma once

#include <rapidjson/document.h>

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace carveout::ctl {

// Asks the daemon behind the control socket at `path` one thing and waits up to 10 s. Errors:
// kSystem (no such socket, not allowed, nobody listening), kTimedOut, kClosed, kProtocol, and
// kRefused with the daemon's reason.
Result<rapidjson::Document> ask(const std::string& path, std::string_view op);

}  // namespace carveout::ctl
