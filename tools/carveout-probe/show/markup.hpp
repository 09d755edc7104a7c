#pragma once

#include <string>
#include <string_view>

namespace carveout::probe {

// `text` safe in HTML and SVG, within elements and within quoted attributes: no control character,
// valid UTF-8, and no character that either gives a meaning.
[[nodiscard]] std::string escaped(std::string_view text);

}  // namespace carveout::probe
