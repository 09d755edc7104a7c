#include "base/bytes.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace carveout {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

TEST(Bytes, Counts) {
  EXPECT_EQ(kib(3).count(), 3072U);
  EXPECT_EQ(mib(2).count(), 2097152U);
  EXPECT_EQ(gib(2).count(), 2147483648U);
  EXPECT_EQ(kSliceBytes.count(), 2097152U);
  EXPECT_EQ((kib(1) + Bytes(1)).count(), 1025U);
  EXPECT_EQ((kib(1) - Bytes(1)).count(), 1023U);
  EXPECT_LT(kib(1), mib(1));
  EXPECT_EQ(Bytes(), Bytes(0));
}

TEST(Slices, HoldWhatTheProtocolRoundsUpTo) {
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> rows{{0, 0},
                                                                  {1, 2097152},
                                                                  {2097151, 2097152},
                                                                  {2097152, 2097152},
                                                                  {2097153, 4194304},
                                                                  {3145728, 4194304},
                                                                  {2145386496, 2145386496},
                                                                  {2145386495, 2145386496}};
  for (const auto& [ask, granted] : rows) {
    EXPECT_EQ(Slices::holding(Bytes(ask)).bytes().count(), granted) << ask;
  }
}

TEST(Slices, AreCountedRightUpToTheLargestSize) {
  EXPECT_EQ(Slices::holding(Bytes(kMost)).count(), std::uint64_t{1} << 43);
  EXPECT_EQ(Slices::holding(Bytes(kMost - 2097151)).count(), (std::uint64_t{1} << 43) - 1);
}

TEST(Slices, Calculate) {
  EXPECT_EQ((Slices(5) - Slices(2)).count(), 3U);
  EXPECT_EQ((Slices(5) + Slices(2)).count(), 7U);
  EXPECT_LT(Slices(1), Slices(2));
  EXPECT_EQ(Slices(1023).bytes().count(), 2145386496U);
}

TEST(ParseBytes, ReadsNumbersAndUnits) {
  const std::vector<std::pair<std::string_view, std::uint64_t>> rows{
      {"0", 0},
      {"4096", 4096},
      {"007", 7},
      {"64KiB", 65536},
      {"64 KiB", 65536},
      {"2046MiB", 2145386496},
      {"2046 MiB", 2145386496},
      {"2046mib", 2145386496},
      {"2046MIB", 2145386496},
      {"2gib", 2147483648},
      {"2 GiB", 2147483648},
      {"0GiB", 0},
      {"18446744073709551615", kMost},
      {"17179869183GiB", std::uint64_t{17179869183} << 30},
      {"17592186044415MiB", std::uint64_t{17592186044415} << 20},
      {"18014398509481983KiB", std::uint64_t{18014398509481983} << 10}};
  for (const auto& [text, count] : rows) {
    const auto size = parse_bytes(text);
    ASSERT_TRUE(size) << text;
    EXPECT_EQ(size->count(), count) << text;
  }
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const std::string_view text : {"",
                                      " ",
                                      "MiB",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1  MiB",
                                      "1 MiB ",
                                      "1MiBx",
                                      "1MB",
                                      "1M",
                                      "1m",
                                      "1TiB",
                                      "1B",
                                      "1.5MiB",
                                      "1e6",
                                      "0x10",
                                      "1,000",
                                      "one",
                                      "1\n",
                                      "1\tMiB",
                                      "1KiBKiB",
                                      "18446744073709551616",
                                      "99999999999999999999999",
                                      "17179869184GiB",
                                      "17592186044416MiB",
                                      "18014398509481984KiB"}) {
    const auto size = parse_bytes(text);
    ASSERT_FALSE(size) << '"' << text << '"';
    EXPECT_EQ(size.error().code, Code::kInvalid) << text;
  }
}

TEST(ParseBytes, RefusesANulInsideOrBehind) {
  EXPECT_FALSE(parse_bytes(std::string_view("1\0", 2)));
  EXPECT_FALSE(parse_bytes(std::string_view("1MiB\0", 5)));
  EXPECT_FALSE(parse_bytes(std::string_view("1\0MiB", 5)));
}

TEST(ParseBytes, ShowsTheTextSafelyAndSaysWhatToWrite) {
  const auto size = parse_bytes("\x1b[31mred");
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().context, "size \"\\x1b[31mred\"");
  EXPECT_NE(size.error().message.find("MiB"), std::string::npos);
  const auto endless = parse_bytes(std::string(5000, 'x'));
  ASSERT_FALSE(endless);
  EXPECT_LT(endless.error().describe().size(), 250U);
}

TEST(FormatBytes, TakesTheLargestUnitThatIsExact) {
  const std::vector<std::pair<std::uint64_t, std::string_view>> rows{
      {0, "0 B"},
      {1, "1 B"},
      {1023, "1023 B"},
      {1024, "1 KiB"},
      {4097, "4097 B"},
      {1536 * 1024, "1536 KiB"},
      {2097152, "2 MiB"},
      {2145386496, "2046 MiB"},
      {2147483648, "2 GiB"},
      {kMost, "18446744073709551615 B"},
      {std::uint64_t{1} << 63, "8589934592 GiB"}};
  for (const auto& [count, text] : rows)
    EXPECT_EQ(format_bytes(Bytes(count)), text);
}

TEST(FormatBytes, IsReadBackAsTheSameSize) {
  for (std::uint64_t bit = 0; bit < 64; ++bit) {
    const std::uint64_t power = std::uint64_t{1} << bit;
    for (const Bytes size : {Bytes(power - 1), Bytes(power), Bytes(power + 1)}) {
      const std::string text = format_bytes(size);
      if (text == "0 B" || text.ends_with(" B")) continue;  // plain bytes are written without unit
      const auto again = parse_bytes(text);
      ASSERT_TRUE(again) << text;
      EXPECT_EQ(*again, size) << text;
    }
  }
}

}  // namespace
}  // namespace carveout
