#pragma once

#include <cstddef>
#include <string>

#include "results.hpp"

namespace carveout::probe {

// For a page's whole width with each arm's name beside its line, or for a narrow screen with the
// names above.
enum class SvgShape { kWide, kNarrow };

// The rate of rereading over the working set's size as an <svg> element for HTML: a line with
// markers for each arm, told apart by dashes and shapes too, over the band of its batches' least
// and most. "" where the report has no such rates over sizes. Its classes (a0 to a7 of the arms,
// and grid, axis, tick, end, judged, name) are for the page's style, without which it is black on
// the page's ground. Ids begin with "wide-" and "narrow-". Pure.
[[nodiscard]] std::string svg_curve(const Report& report, SvgShape shape);

// That arm's marker alone, for a table's head.
[[nodiscard]] std::string svg_swatch(std::size_t arm);

}  // namespace carveout::probe
