#pragma once

#include <string>

#include "results.hpp"

namespace carveout::probe {

// What a page begins with, as HTML: for each arm that is compared with ordinary memory what was
// found, in large plain words; those that could not be measured with the reason. Pure.
[[nodiscard]] std::string page_verdicts(const Report& report);

}  // namespace carveout::probe
