#include "base/text.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace carveout {
namespace {

TEST(Cat, JoinsTextAndIntegers) {
  EXPECT_EQ(cat(), "");
  EXPECT_EQ(cat("a", std::string("b"), std::string_view("c"), 'd', 1, -2, 3U), "abcd1-23");
  EXPECT_EQ(cat(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(cat(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(cat(std::string_view("a\0b", 3)).size(), 3U);
}

TEST(Printable, LeavesPlainTextAlone) {
  EXPECT_EQ(printable("", 10), "");
  EXPECT_EQ(printable("plain ~ text", 100), "plain ~ text");
  EXPECT_EQ(printable("Gr\xc3\xbc\xc3\x9f"
                      "e \xe2\x82\xac \xf0\x9f\x98\x80",
                      100),
            "Gr\xc3\xbc\xc3\x9f"
            "e \xe2\x82\xac \xf0\x9f\x98\x80");
}

TEST(Printable, EscapesEveryControlCharacter) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  for (unsigned value = 0; value < 0x80; ++value) {
    const char c = static_cast<char>(value);
    const bool control = value < 0x20 || value == 0x7f;
    const std::string escaped = {'\\', 'x', kHex[value >> 4U], kHex[value & 15U]};
    EXPECT_EQ(printable({&c, 1}, 10), control ? escaped : std::string(1, c)) << value;
  }
}

TEST(Printable, KeepsLinesOneAndInTheirDirection) {
  for (const char* turn :
       {"\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202e", "\u2066", "\u2069"})
    EXPECT_EQ(printable(turn, 10).find(turn), std::string::npos) << turn;
  for (const char* plain : {"\u200d", "\u2010", "\u2027", "\u202f", "\u2065", "\u206a"})
    EXPECT_EQ(printable(plain, 10), plain);
}

TEST(Printable, EscapesC1ControlsButNotWhatFollowsThem) {
  EXPECT_EQ(printable("\xc2\x80", 10), "\\xc2\\x80");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m",
                      10),
            "\\xc2\\x9b31m");  // CSI
  EXPECT_EQ(printable("\xc2\x9f", 10), "\\xc2\\x9f");
  EXPECT_EQ(printable("\xc2\xa0", 10), "\xc2\xa0");
  EXPECT_EQ(printable("\xc3\x80", 10), "\xc3\x80");
}

TEST(Printable, EscapesWhatIsNotUtf8) {
  EXPECT_EQ(printable("a\xff"
                      "b",
                      10),
            "a\\xffb");
  EXPECT_EQ(printable("\x80", 10), "\\x80");
  EXPECT_EQ(printable("\xc0\x8a", 10), "\\xc0\\x8a");           // an overlong line feed
  EXPECT_EQ(printable("\xed\xa0\x80", 10), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(printable("\xe2\x82", 10), "\\xe2\\x82");           // ends too early
  EXPECT_EQ(printable("\xe2\x82\xe2\x82\xac", 10), "\\xe2\\x82\xe2\x82\xac");
}

TEST(Printable, EscapesANulAndGoesOn) {
  EXPECT_EQ(printable(std::string_view("a\0b", 3), 10), "a\\x00b");
}

TEST(Printable, CutsAtTheLimitAndSaysSo) {
  EXPECT_EQ(printable("12345", 5), "12345");
  EXPECT_EQ(printable("123456", 5), "12345...");
  EXPECT_EQ(printable("x", 0), "...");
  EXPECT_EQ(printable("", 0), "");
}

TEST(Printable, EscapesTheSequenceThatTheLimitCuts) {
  EXPECT_EQ(printable("ab\xe2\x82\xac"
                      "cd",
                      4),
            "ab\\xe2\\x82...");
  EXPECT_EQ(printable("ab\xe2\x82\xac"
                      "cd",
                      5),
            "ab\xe2\x82\xac...");
}

TEST(Printable, AlwaysGivesSafeUtf8) {
  std::uint32_t state = 12345;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      state = state * 1664525U + 1013904223U;
      text += static_cast<char>(state >> 24U);
    }
    const std::string safe = printable(text, 30);
    ASSERT_TRUE(is_utf8(safe));
    for (const char c : safe)
      ASSERT_GE(static_cast<unsigned char>(c), 0x20U);
  }
}

TEST(EqualIgnoringCase, KnowsOnlyAsciiLetters) {
  EXPECT_TRUE(equal_ignoring_case("", ""));
  EXPECT_TRUE(equal_ignoring_case("MiB", "mIb"));
  EXPECT_TRUE(equal_ignoring_case("azAZ09", "AZaz09"));
  EXPECT_FALSE(equal_ignoring_case("MiB", "MiBs"));
  EXPECT_FALSE(equal_ignoring_case("MiBs", "MiB"));
  EXPECT_FALSE(equal_ignoring_case("@", "`"));  // 0x20 apart, and no letters
  EXPECT_FALSE(equal_ignoring_case("[", "{"));
  EXPECT_FALSE(equal_ignoring_case("\xc3\x84", "\xc3\xa4"));
}

}  // namespace
}  // namespace carveout
