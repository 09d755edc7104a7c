#include "show/markup.hpp"

#include <algorithm>
#include <cctype>

#include "base/text.hpp"

namespace carveout::probe {
namespace {

constexpr std::size_t kLongestText = 4096;
// What an option's name is made of.
constexpr std::string_view kOption = "-abcdefghijklmnopqrstuvwxyz";

bool is_within_a_word(std::string_view text, std::size_t at) {
  return at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0;
}

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

std::string prose(std::string_view text) {
  const std::string safe = escaped(text);
  std::string html;
  std::size_t done = 0;
  for (auto at = safe.find("--"); at != std::string::npos; at = safe.find("--", done)) {
    const std::size_t end = std::min(safe.find_first_not_of(kOption, at), safe.size());
    const bool is_option = !is_within_a_word(safe, at) && end > at + 2;
    html += safe.substr(done, at - done);
    html += is_option ? cat("<span class=\"option\">", safe.substr(at, end - at), "</span>")
                      : safe.substr(at, end - at);
    done = end;
  }
  return html + safe.substr(done);
}

}  // namespace carveout::probe
