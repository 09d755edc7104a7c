#pragma once

#include <string>

#include "results.hpp"

namespace carveout::probe {

// The tables of a page, as HTML; "" where there is nothing to show. Pure.

// Each row with its arms beside each other: median, spread, cold, and how it compares; and what a
// conclusive run would need where none can be told.
[[nodiscard]] std::string page_rows(const Report& report);
// The figures that the curve is drawn from.
[[nodiscard]] std::string page_curve_figures(const Report& report);
// What was compared, and why one could not be.
[[nodiscard]] std::string page_arms(const Report& report);
// What held while each arm was measured.
[[nodiscard]] std::string page_moments(const Report& report);

}  // namespace carveout::probe
