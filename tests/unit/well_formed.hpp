#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace carveout {

// What is wrong with `html`, or "": stricter than a browser. Each element is closed in its order,
// but those that HTML has without an end, and those of SVG that close themselves; attributes are
// quoted and none comes twice; "<", ">" and "&" stand for themselves nowhere; ids are unlike each
// other, and what aria-labelledby names is there.
[[nodiscard]] std::string fault_of_html(std::string_view html);

// The text of `html` without its tags and its style, with entities resolved.
[[nodiscard]] std::string text_of_html(std::string_view html);

struct HtmlElement {
  std::string name;
  std::map<std::string, std::string> attributes;  // entities resolved, as in the text
  std::string text;                               // up to the next tag
};
// All of them, in their order.
[[nodiscard]] std::vector<HtmlElement> elements_of_html(std::string_view html);

}  // namespace carveout
