#pragma once

// How a run ends: its exit code, and why. Pure.

#include <string>
#include <vector>

#include "results.hpp"

namespace carveout::probe {

struct Outcome {
  int code = 0;
  std::string complaint;  // "" where there is none
};

// kFailed where an arm ended before the last block, or a source that was asked for gave no arm at
// all; kRefused where residency was required and not found. The figures are reported in any case.
[[nodiscard]] Outcome outcome_of(const Report& report, const std::vector<std::string>& sources,
                                 bool require_resident);

}  // namespace carveout::probe
