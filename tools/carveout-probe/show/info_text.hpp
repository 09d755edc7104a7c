#pragma once

#include <string>

#include "results.hpp"

namespace carveout::probe {

// What `info` shows: the engine, the machine, and each memory that could be measured, or why not.
[[nodiscard]] std::string info_text(const Report& report);

}  // namespace carveout::probe
