#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace carveout {

namespace detail {
inline void append(std::string& to, std::string_view part) {
  to.append(part);
}
inline void append(std::string& to, char part) {
  to.push_back(part);
}
template <std::integral T>
requires(!std::same_as<T, char> && !std::same_as<T, bool>) void append(std::string& to, T part) {
  std::array<char, 24> digits;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled below
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), part).ptr;
  to.append(digits.data(), static_cast<std::size_t>(end - digits.data()));
}
}  // namespace detail

// The parts (text and integers) one behind the other.
template <typename... Parts>
[[nodiscard]] std::string cat(const Parts&... parts) {
  std::string text;
  text.reserve(128);
  (detail::append(text, parts), ...);
  return text;
}

// `text` made safe for a line of a log or a terminal: control characters and what is not UTF-8
// become \xNN, and what exceeds `limit` bytes of input is cut and marked "...".
[[nodiscard]] std::string printable(std::string_view text, std::size_t limit);

// ASCII letters only.
[[nodiscard]] bool equal_ignoring_case(std::string_view a, std::string_view b);

// The length of the UTF-8 sequence that `text` begins with, 0 if it begins with none.
[[nodiscard]] std::size_t utf8_sequence(std::string_view text);
[[nodiscard]] bool is_utf8(std::string_view text);

}  // namespace carveout
