#pragma once

#include <string>
#include <string_view>

namespace carveout::probe {

// `text` safe in HTML and SVG, within elements and within quoted attributes: no control character,
// valid UTF-8, and no character that either gives a meaning.
[[nodiscard]] std::string escaped(std::string_view text);

// The same for a sentence within an element: a word that begins with "--" is not broken at its
// hyphens, which are the plain ones to whoever copies it.
[[nodiscard]] std::string prose(std::string_view text);

}  // namespace carveout::probe
