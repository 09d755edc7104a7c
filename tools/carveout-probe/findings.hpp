#pragma once

// What follows from a report, by measurement.md's rules. Pure.

#include <cstddef>
#include <string>
#include <vector>

#include "results.hpp"
#include "statistics.hpp"

namespace carveout::probe {

// One arm against ordinary memory, in one row at one size, within blocks.
struct AgainstOrdinary {
  std::size_t arm = 0;
  Row row = Row::kRead;
  Bytes size;
  Comparison comparison;
};
[[nodiscard]] std::vector<AgainstOrdinary> against_ordinary(const Report& report);

// Whether the caches keep it. None for ordinary memory and for what could not be had; empty unless
// the report is of `residency`.
struct ArmResidency {
  std::size_t arm = 0;
  ResidencyVerdict verdict;
};
[[nodiscard]] std::vector<ArmResidency> residencies(const Report& report);
[[nodiscard]] const char* name_of(Residency residency);  // "not resident"

// What to do about what is lent, by the verdicts on it: a sentence or two. Memory of the driver's
// own ("cuda") is no loan; an arm that ended early gives no answer. "" unless the report is of
// `residency`.
[[nodiscard]] std::string decision(const Report& report);

// What a conclusive run would need, where one arm and ordinary memory cannot be told apart: a
// sentence for all that need the same. Of a residency's curve the judged size alone.
[[nodiscard]] std::vector<std::string> wanting(const Report& report);

// In what the arms were not measured alike, and what else a reader must know: a sentence each.
[[nodiscard]] std::vector<std::string> remarks(const Report& report);

}  // namespace carveout::probe
