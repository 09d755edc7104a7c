#pragma once

#include <string>

#include "results.hpp"

namespace carveout::probe {

// What a curve needs at least: below that there is none.
inline constexpr unsigned kLeastCurveColumns = 40;

// The rate of rereading over the working set's size as a chart for a terminal `columns` wide, in
// UTF-8, each line with its newline: a mark for each arm, lines between them, and where each cache
// ends. "" where the report has no such rates over sizes. Pure.
[[nodiscard]] std::string terminal_curve(const Report& report, unsigned columns);

}  // namespace carveout::probe
