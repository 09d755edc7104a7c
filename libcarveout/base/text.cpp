#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace carveout {
namespace {

constexpr char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

constexpr bool between(char c, unsigned low, unsigned high) {
  const auto value = static_cast<unsigned char>(c);
  return value >= low && value <= high;
}

// A row of the Unicode standard's table "Well-Formed UTF-8 Byte Sequences".
struct Row {
  unsigned lead_low, lead_high;
  unsigned second_low, second_high;
  std::size_t length;
};
constexpr std::array<Row, 8> kRows{{
    {0xC2, 0xDF, 0x80, 0xBF, 2},
    {0xE0, 0xE0, 0xA0, 0xBF, 3},
    {0xE1, 0xEC, 0x80, 0xBF, 3},
    {0xED, 0xED, 0x80, 0x9F, 3},
    {0xEE, 0xEF, 0x80, 0xBF, 3},
    {0xF0, 0xF0, 0x90, 0xBF, 4},
    {0xF1, 0xF3, 0x80, 0xBF, 4},
    {0xF4, 0xF4, 0x80, 0x8F, 4},
}};

// U+2028 and U+2029 end a line; U+200E, U+200F, U+202A to U+202E and U+2066 to U+2069 change its
// direction.
bool turns_the_line(std::string_view sequence) {
  if (sequence.size() != 3 || sequence[0] != '\xE2') return false;
  if (sequence[1] == '\x80') {
    return between(sequence[2], 0x8E, 0x8F) || between(sequence[2], 0xA8, 0xAE);
  }
  return sequence[1] == '\x81' && between(sequence[2], 0xA6, 0xA9);
}

}  // namespace

std::size_t utf8_sequence(std::string_view text) {
  if (text.empty()) return 0;
  if (between(text[0], 0x00, 0x7F)) return 1;
  for (const Row& row : kRows) {
    if (!between(text[0], row.lead_low, row.lead_high)) continue;
    if (text.size() < row.length || !between(text[1], row.second_low, row.second_high)) return 0;
    for (std::size_t i = 2; i < row.length; ++i) {
      if (!between(text[i], 0x80, 0xBF)) return 0;
    }
    return row.length;
  }
  return 0;
}

bool is_utf8(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080U;
  while (!text.empty()) {
    // Mostly it is ASCII: eight bytes at a time.
    std::uint64_t word = kHighBits;
    if (text.size() >= sizeof word) std::memcpy(&word, text.data(), sizeof word);
    if ((word & kHighBits) == 0) {
      text.remove_prefix(sizeof word);
      continue;
    }
    const std::size_t length = utf8_sequence(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string printable(std::string_view text, std::size_t limit) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  const bool cut = text.size() > limit;
  if (cut) text = text.substr(0, limit);
  std::string safe;
  while (!text.empty()) {
    const std::size_t length = utf8_sequence(text);
    // C0 and DEL; C1 (U+0080 to U+009F) is what a terminal takes for escape sequences too.
    const bool control = length == 0 || between(text[0], 0x00, 0x1F) || text[0] == '\x7f' ||
                         (length == 2 && text[0] == '\xC2' && between(text[1], 0x80, 0x9F)) ||
                         turns_the_line(text.substr(0, length));
    const std::size_t step = std::max<std::size_t>(length, 1);
    if (!control) {
      safe.append(text.substr(0, step));
    } else {
      for (const char c : text.substr(0, step)) {
        const auto value = static_cast<unsigned char>(c);
        safe += "\\x";
        safe += kHex[value >> 4U];
        safe += kHex[value & 0xFU];
      }
    }
    text.remove_prefix(step);
  }
  if (cut) safe += "...";
  return safe;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace carveout
