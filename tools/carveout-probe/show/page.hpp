#pragma once

#include <string>

#include "results.hpp"

namespace carveout::probe {

// A report as one HTML file that needs nothing else: no script, no other file, no network. The
// verdicts first, then the curve, the figures with their spreads, the arms with the reasons of
// those that could not be had, what is to be known, the conditions, and how it was measured. Pure.
[[nodiscard]] std::string html_page(const Report& report);

}  // namespace carveout::probe
