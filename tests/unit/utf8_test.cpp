#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.hpp"

namespace carveout {
namespace {

// An independent decoder, by arithmetic instead of the standard's table: collects the bits, then
// asks whether that code point needed so many bytes.
std::size_t decoded_length(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<std::uint32_t>(text[i]) & 0xFFU; };
  if (text.empty()) return 0;
  const std::uint32_t lead = byte(0);
  if (lead < 0x80U) return 1;
  std::size_t length = 0;
  while (length < 8 && ((lead << length) & 0x80U) != 0)
    ++length;
  if (length < 2 || length > 4 || text.size() < length) return 0;
  std::uint32_t code = lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
    code = (code << 6U) | (byte(i) & 0x3FU);
  }
  constexpr std::array<std::uint32_t, 5> kFirst{0, 0, 0x80U, 0x800U, 0x10000U};
  const bool shortest = code >= kFirst.at(length);
  const bool surrogate = code >= 0xD800U && code <= 0xDFFFU;
  return shortest && !surrogate && code <= 0x10FFFFU ? length : 0;
}

// Compares without a gtest assertion for each of millions of sequences.
class Comparison {
 public:
  void operator()(std::string_view text) {
    ++compared_;
    if (utf8_sequence(text) != decoded_length(text) && different_++ == 0) first_ = text;
  }
  [[nodiscard]] std::string verdict() const {
    return different_ == 0 ? "" : cat(different_, " differ, first ", printable(first_, 8));
  }
  [[nodiscard]] std::uint64_t compared() const { return compared_; }

 private:
  std::uint64_t compared_ = 0;
  std::uint64_t different_ = 0;
  std::string first_;
};

constexpr char as_char(unsigned value) {
  return static_cast<char>(value);
}

TEST(Utf8Sequence, AgreesWithArithmeticUpToThreeBytes) {
  Comparison compare;
  compare({});
  for (unsigned a = 0; a < 256; ++a) {
    const std::array one{as_char(a)};
    compare({one.data(), 1});
    for (unsigned b = 0; b < 256; ++b) {
      const std::array two{as_char(a), as_char(b)};
      compare({two.data(), 2});
      for (unsigned c = 0; c < 256; ++c) {
        const std::array three{as_char(a), as_char(b), as_char(c)};
        compare({three.data(), 3});
      }
    }
  }
  EXPECT_EQ(compare.verdict(), "");
  EXPECT_EQ(compare.compared(), 1U + 256U + 65536U + 16777216U);
}

TEST(Utf8Sequence, AgreesWithArithmeticOnFourBytes) {
  constexpr std::array<unsigned, 14> kEdges{0x00, 0x0A, 0x41, 0x7F, 0x80, 0x81, 0x8F,
                                            0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xED, 0xFF};
  Comparison compare;
  for (unsigned a = 0; a < 256; ++a) {
    for (unsigned b = 0; b < 256; ++b) {
      for (const unsigned c : kEdges) {
        for (const unsigned d : kEdges) {
          const std::array four{as_char(a), as_char(b), as_char(c), as_char(d)};
          compare({four.data(), 4});
        }
      }
    }
  }
  EXPECT_EQ(compare.verdict(), "");
}

TEST(Utf8Sequence, LooksOnlyAtTheFirstOne) {
  EXPECT_EQ(utf8_sequence("a\xff"), 1U);
  EXPECT_EQ(utf8_sequence("\xc3\xbc\xff"), 2U);
  EXPECT_EQ(utf8_sequence("\xf0\x9f\x98\x80\xff"), 4U);
  EXPECT_EQ(utf8_sequence(std::string_view("\0", 1)), 1U);
}

TEST(IsUtf8, FindsWhatIsBadWhereverItStands) {
  // Long enough for a check of several bytes at a time, at every distance from its borders.
  for (std::size_t before = 0; before < 40; ++before) {
    for (std::size_t behind = 0; behind < 20; ++behind) {
      const std::string head(before, 'x');
      const std::string tail(behind, 'y');
      for (const std::string_view good : {"\xc3\xbc", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
        EXPECT_TRUE(is_utf8(cat(head, good, tail))) << before << ' ' << behind;
      }
      for (const std::string_view bad : {"\x80", "\xff", "\xc3", "\xe2\x82", "\xed\xa0\x80"}) {
        EXPECT_FALSE(is_utf8(cat(head, bad, tail))) << before << ' ' << behind;
      }
    }
  }
}

TEST(IsUtf8, NeedsEverySequenceToBeGood) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("plain"));
  EXPECT_TRUE(is_utf8(std::string_view("\0\0", 2)));
  EXPECT_TRUE(
      is_utf8("\xef\xbb\xbf"
              "a byte order mark is a character"));
  EXPECT_TRUE(is_utf8("\xf4\x8f\xbf\xbf"));
  EXPECT_FALSE(is_utf8("good until here \x80"));
  EXPECT_FALSE(is_utf8("\xff bad at once"));
  EXPECT_FALSE(is_utf8("ends too early \xe2\x82"));
}

}  // namespace
}  // namespace carveout
