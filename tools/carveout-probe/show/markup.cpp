#include "show/markup.hpp"

#include "base/text.hpp"

namespace carveout::probe {
namespace {

constexpr std::size_t kLongestText = 4096;

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : printable(text, kLongestText)) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

}  // namespace carveout::probe
