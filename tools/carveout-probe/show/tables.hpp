#pragma once

#include <string>

#include "results.hpp"

namespace carveout::probe {

// What a terminal shows of a report, within 80 columns, each line with its newline: what was run,
// the verdicts on residency, the rows with an arm a column, what could not be had and why, and what
// is to be known about it. Arms that do not fit beside each other come in a table of their own,
// with ordinary memory again.
[[nodiscard]] std::string table(const Report& report);

}  // namespace carveout::probe
