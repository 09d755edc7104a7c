#pragma once

// What `status` says of the GPU's L2, by what carveout-probe has left.

#include <rapidjson/document.h>

#include <string>

#include "client/l2_class.hpp"

namespace carveout::ctl {

// Adds `l2` to what the daemon answers `status`: `file`, `measured`, and by that what the file has,
// or `problem` where it is there and cannot be used; with what is `here` (`driver_now`, `host_now`,
// `kernel_now`) and `lender_now`, by `status` itself.
void add_l2(rapidjson::Document& status, const std::string& file, const client::Here& here);

// The same for people, on one line: of what is lent, and not of what it was held against. Empty
// where `status` has no `l2`.
[[nodiscard]] std::string l2_line(const rapidjson::Value& status);

}  // namespace carveout::ctl
