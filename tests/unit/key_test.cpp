#include "wire/key.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/text.hpp"

namespace carveout::wire {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

Key key_of(std::string_view text) {
  const auto key = Key::from(text);
  EXPECT_TRUE(key) << printable(text, 300);
  return key ? *key : Key();
}

TEST(KeyFrom, TakesOneTo255Bytes) {
  for (const std::size_t length : {1U, 2U, 254U, 255U}) {
    const std::string text(length, 'k');
    EXPECT_EQ(key_of(text).bytes(), text);
  }
  for (const std::size_t length : {0U, 256U, 257U, 5000U}) {
    const auto key = Key::from(std::string(length, 'k'));
    ASSERT_FALSE(key) << length;
    EXPECT_EQ(key.error().code, Code::kInvalid);
  }
}

TEST(KeyFrom, CountsBytesAndNotCharacters) {
  std::string text(253, 'k');
  EXPECT_TRUE(Key::from(text + "\xc3\xbc"));
  EXPECT_FALSE(Key::from(text + "\xe2\x82\xac"));
}

TEST(KeyFrom, TakesWhatAJsonStringCanCarry) {
  EXPECT_EQ(key_of(" spaces, \"quotes\" \\ \t"sv).bytes(), " spaces, \"quotes\" \\ \t"sv);
  EXPECT_EQ(key_of("a\0b"sv).bytes(), "a\0b"sv);
  EXPECT_EQ(key_of("\xf0\x9f\x98\x80"sv).bytes(), "\xf0\x9f\x98\x80"sv);
  for (const std::string_view text : {"\xff"sv, "k\x80"sv, "\xc3"sv, "\xed\xa0\x80"sv}) {
    const auto key = Key::from(text);
    ASSERT_FALSE(key);
    EXPECT_EQ(key.error().code, Code::kInvalid);
  }
}

TEST(KeyFrom, KeepsTheKeyOutOfItsErrors) {
  for (const std::string& text : {std::string(256, 's'), "ssssssss\xff"s.append(20, 's')}) {
    const auto key = Key::from(text);
    ASSERT_FALSE(key);
    EXPECT_EQ(key.error().describe().find("ssss"), std::string::npos);
  }
}

TEST(KeyMatches, OnlyItself) {
  const Key key = key_of("secret");
  EXPECT_TRUE(key.matches("secret"));
  for (const std::string_view other :
       {""sv, "s"sv, "secre"sv, "secrets"sv, "Secret"sv, "secreT"sv, "tecret"sv, " secret"sv,
        "secret "sv, "secret\n"sv, "secretsecret"sv, "terces"sv}) {
    EXPECT_FALSE(key.matches(other)) << other;
  }
}

TEST(KeyMatches, NoPaddingWithNuls) {
  const Key key = key_of("secret");
  for (std::size_t nuls = 1; nuls <= 300; ++nuls) {
    EXPECT_FALSE(key.matches("secret" + std::string(nuls, '\0'))) << nuls;
  }
  EXPECT_FALSE(key.matches(std::string(6, '\0')));
  EXPECT_FALSE(key.matches("\0"sv));
  const Key with_nul = key_of("a\0"sv);
  EXPECT_TRUE(with_nul.matches("a\0"sv));
  EXPECT_FALSE(with_nul.matches("a"sv));
  EXPECT_FALSE(with_nul.matches("a\0\0"sv));
}

TEST(KeyMatches, EveryByteOfTheLongestKeyCounts) {
  std::string text;
  for (int i = 0; i < 255; ++i)
    text += static_cast<char>('!' + i % 90);
  const Key key = key_of(text);
  EXPECT_TRUE(key.matches(text));
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string other = text;
      other[at] = static_cast<char>(other[at] ^ (1 << bit));
      EXPECT_FALSE(key.matches(other)) << at;
    }
    EXPECT_FALSE(key.matches(text.substr(0, at))) << at;
  }
  EXPECT_FALSE(key.matches(text + "x"));
  EXPECT_FALSE(key.matches(text + std::string(1, '\0')));
}

TEST(KeyMatches, DifferencesDoNotCancelOut) {
  EXPECT_FALSE(key_of("ab").matches("ba"));
  EXPECT_FALSE(key_of("aa").matches("bb"));
  EXPECT_FALSE(key_of("\x01").matches("\x01\x01\x01"));
  // One byte longer, by a byte whose value is that difference in length.
  EXPECT_FALSE(key_of("a").matches("a\x01"));
}

TEST(KeyMatches, NothingThatIsTooLong) {
  const Key key = key_of(std::string(255, 'k'));
  for (const std::size_t length : {256U, 257U, 511U, 512U, 4000U}) {
    EXPECT_FALSE(key.matches(std::string(length, 'k'))) << length;
  }
}

}  // namespace
}  // namespace carveout::wire
