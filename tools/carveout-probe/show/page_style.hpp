#pragma once

#include <string_view>

namespace carveout::probe {

// The page's style sheet: light and dark by the reader's preference, light on paper. The page reads
// in order without it.
[[nodiscard]] std::string_view page_style();

}  // namespace carveout::probe
