// What the members of a readable request are taken to say.

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "wire/codec.hpp"
#include "wire/key.hpp"

namespace carveout::wire {
namespace {

using namespace std::string_view_literals;

// Values of every type. A member is good with some and as good as missing with the others.
const std::vector<std::string_view>& values() {
  static const std::vector<std::string_view> kValues{"null",
                                                     "true",
                                                     "false",
                                                     "0",
                                                     "1",
                                                     "-1",
                                                     "2.0",
                                                     "1e6",
                                                     "18446744073709551616",
                                                     "\"\"",
                                                     "\"text\"",
                                                     "[]",
                                                     "[1]",
                                                     "[\"key\"]",
                                                     "{}",
                                                     R"({"key":"nested"})",
                                                     R"({"op":"info","size":3})",
                                                     R"([{"key":"nested"}])"};
  return kValues;
}

bool is_string(std::string_view value) {
  return value.front() == '"';
}

TEST(RequestKey, MustBeThere) {
  for (const std::string_view datagram :
       {"{}"sv, R"({"op":"info"})"sv, R"({"op":"alloc","size":2097152})"sv, R"({"Key":"k"})"sv,
        R"({"KEY":"k"})"sv, R"({"key ":"k"})"sv, R"({"":"k"})"sv, R"({"keys":"k"})"sv,
        R"({"ke":"k"})"sv, R"({"key\u0000":"k"})"sv, R"({"\u0000key":"k"})"sv}) {
    EXPECT_FALSE(parse_request(datagram)) << datagram;
  }
}

TEST(RequestKey, MustBeAString) {
  for (const std::string_view value : values()) {
    EXPECT_EQ(parse_request(cat(R"({"key":)", value, R"(,"op":"info"})")).has_value(),
              is_string(value))
        << value;
  }
}

TEST(RequestKey, MayBeEmptyOrLong) {
  EXPECT_EQ(parse_request(R"({"key":""})")->key, "");
  EXPECT_EQ(parse_request(cat(R"({"key":")", std::string(4000, 'k'), "\"}"))->key,
            std::string(4000, 'k'));
}

TEST(RequestKey, OfDuplicatesTheLastCounts) {
  EXPECT_EQ(parse_request(R"({"key":"a","key":"b"})")->key, "b");
  EXPECT_EQ(parse_request(R"({"key":"b","op":"info","key":""})")->key, "");
  EXPECT_EQ(parse_request(R"({"key":"a","\u006bey":"b"})")->key, "b");
  for (const std::string_view value : values()) {
    if (is_string(value)) continue;
    EXPECT_FALSE(parse_request(cat(R"({"key":"k","key":)", value, "}"))) << value;
    const auto good = parse_request(cat(R"({"key":)", value, R"(,"key":"k"})"));
    ASSERT_TRUE(good) << value;
    EXPECT_EQ(good->key, "k");
  }
}

TEST(RequestOp, IsOneOfTwoOrUnknown) {
  const std::vector<std::pair<std::string_view, Op>> rows{
      {R"("info")", Op::kInfo},         {R"("alloc")", Op::kAlloc},
      {R"("\u0069nfo")", Op::kInfo},    {R"("all\u006fc")", Op::kAlloc},
      {R"("")", Op::kUnknown},          {R"("Info")", Op::kUnknown},
      {R"("INFO")", Op::kUnknown},      {R"("info ")", Op::kUnknown},
      {R"(" info")", Op::kUnknown},     {R"("inf")", Op::kUnknown},
      {R"("infos")", Op::kUnknown},     {R"("allocate")", Op::kUnknown},
      {R"("free")", Op::kUnknown},      {R"("release")", Op::kUnknown},
      {R"("status")", Op::kUnknown},    {R"("drain")", Op::kUnknown},
      {R"("info\u0000")", Op::kUnknown}};
  for (const auto& [value, op] : rows) {
    const auto request = parse_request(cat(R"({"key":"k","op":)", value, "}"));
    ASSERT_TRUE(request) << value;
    EXPECT_EQ(request->op, op) << value;
  }
}

TEST(RequestOp, IsUnknownWhenMissingOrNotAString) {
  EXPECT_EQ(parse_request(R"({"key":"k"})")->op, Op::kUnknown);
  for (const std::string_view value : values()) {
    const auto request = parse_request(cat(R"({"key":"k","op":)", value, "}"));
    ASSERT_TRUE(request) << value;
    EXPECT_EQ(request->op, Op::kUnknown) << value;
  }
}

TEST(RequestOp, OfDuplicatesTheLastCounts) {
  EXPECT_EQ(parse_request(R"({"op":"info","key":"k","op":"alloc"})")->op, Op::kAlloc);
  EXPECT_EQ(parse_request(R"({"op":"alloc","key":"k","op":"info"})")->op, Op::kInfo);
  for (const std::string_view value : values()) {
    EXPECT_EQ(parse_request(cat(R"({"key":"k","op":"info","op":)", value, "}"))->op, Op::kUnknown)
        << value;
    EXPECT_EQ(parse_request(cat(R"({"key":"k","op":)", value, R"(,"op":"info"})"))->op, Op::kInfo)
        << value;
  }
}

std::optional<Bytes> size_of(std::string_view value) {
  const auto request = parse_request(cat(R"({"key":"k","op":"alloc","size":)", value, "}"));
  EXPECT_TRUE(request) << value;
  return request ? request->size : std::nullopt;
}

TEST(RequestSize, IsAnyWholeNumberOf64Bits) {
  const std::vector<std::pair<std::string_view, std::uint64_t>> rows{
      {"0", 0},
      {"1", 1},
      {"2097152", 2097152},
      {"2147483647", 2147483647},
      {"2147483648", 2147483648},
      {"4294967295", 4294967295},
      {"4294967296", 4294967296},
      {"9007199254740991", 9007199254740991},
      {"9007199254740992", 9007199254740992},
      {"9007199254740993", 9007199254740993},  // 2^53 + 1, which no double holds
      {"9223372036854775807", 9223372036854775807},
      {"9223372036854775808", 9223372036854775808U},
      {"18446744073709551614", 18446744073709551614U},
      {"18446744073709551615", 18446744073709551615U}};
  for (const auto& [text, count] : rows)
    EXPECT_EQ(size_of(text), Bytes(count)) << text;
}

TEST(RequestSize, IsMissingWhenItIsNoWholeNumber) {
  for (const std::string_view value : {"-1"sv,
                                       "-2097152"sv,
                                       "-2147483648"sv,
                                       "-2147483649"sv,
                                       "-9223372036854775808"sv,
                                       "-9223372036854775809"sv,
                                       "-18446744073709551616"sv,
                                       "2.0"sv,
                                       "2097152.0"sv,
                                       "0.0"sv,
                                       "-0.0"sv,
                                       "0.5"sv,
                                       "1e6"sv,
                                       "1E6"sv,
                                       "1e0"sv,
                                       "2097152e0"sv,
                                       "20971520e-1"sv,
                                       "1e-400"sv,
                                       "-1e-400"sv,
                                       "1e308"sv,
                                       "18446744073709551616"sv,
                                       "18446744073709551617"sv,
                                       "99999999999999999999"sv,
                                       "184467440737095516150"sv,
                                       "true"sv,
                                       "false"sv,
                                       "null"sv,
                                       R"("1")"sv,
                                       R"("2097152")"sv,
                                       R"("")"sv,
                                       "[]"sv,
                                       "[2097152]"sv,
                                       "{}"sv,
                                       R"({"size":2097152})"sv}) {
    EXPECT_EQ(size_of(value), std::nullopt) << value;
  }
  EXPECT_EQ(parse_request(R"({"key":"k","op":"alloc"})")->size, std::nullopt);
}

TEST(RequestSize, MinusZeroIsNoSizeThatIsGranted) {
  EXPECT_EQ(size_of("-0").value_or(Bytes(0)), Bytes(0));
}

TEST(RequestSize, MakesTheRequestUnreadableWhenNoDoubleHoldsIt) {
  for (const std::string& value :
       {std::string("1e400"), std::string("-1e400"), std::string("1e309"), std::string(400, '9'),
        "1" + std::string(400, '0'), "-" + std::string(400, '9'), std::string("1e99999999999")}) {
    EXPECT_FALSE(parse_request(cat(R"({"key":"k","op":"alloc","size":)", value, "}"))) << value;
    EXPECT_FALSE(parse_request(cat(R"({"key":"k","op":"info","ignored":)", value, "}"))) << value;
  }
}

TEST(RequestSize, MustBeANumberAsJsonHasThem) {
  for (const std::string_view value :
       {"01"sv, "00"sv, "-01"sv, "+1"sv, ".5"sv, "1."sv, "1.e1"sv, "1e"sv, "1e+"sv, "0x10"sv, "-"sv,
        "--1"sv, "1_000"sv, "1,000"sv, "1 000"sv, "2MiB"sv, "1u"sv}) {
    EXPECT_FALSE(parse_request(cat(R"({"key":"k","op":"alloc","size":)", value, "}"))) << value;
  }
}

TEST(RequestSize, OfDuplicatesTheLastCounts) {
  EXPECT_EQ(size_of(R"(1,"size":2)"), Bytes(2));
  EXPECT_EQ(size_of(R"(2,"size":1)"), Bytes(1));
  EXPECT_EQ(size_of(R"(1,"siz\u0065":2)"), Bytes(2));
  for (const std::string_view value : values()) {
    if (value == "0" || value == "1") continue;
    EXPECT_EQ(size_of(cat(R"(5,"size":)", value)), std::nullopt) << value;
    EXPECT_EQ(size_of(cat(value, R"(,"size":5)")), Bytes(5)) << value;
  }
}

TEST(RequestMembers, OfNestedObjectsDoNotCount) {
  EXPECT_FALSE(parse_request(R"({"x":{"key":"k","op":"info"}})"));
  EXPECT_FALSE(parse_request(R"({"x":[{"key":"k","op":"info"}],"op":"info"})"));
  const auto request = parse_request(
      R"({"key":"k","x":{"key":"no","op":"info","size":1,"y":{"size":2}},)"
      R"("op":"alloc","z":[{"op":"info"},["key"],{"size":3}],"size":4,"w":{"key":1}})");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->key, "k");
  EXPECT_EQ(request->op, Op::kAlloc);
  EXPECT_EQ(request->size, Bytes(4));
}

TEST(RequestMembers, OfNestedObjectsDoNotCountUnderAKnownName) {
  // What is inside "size" is not the size, and what comes behind it is looked at again.
  const auto request =
      parse_request(R"({"size":{"size":1,"key":"no"},"op":[{"op":"info"},"info"],"key":"k"})");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->key, "k");
  EXPECT_EQ(request->op, Op::kUnknown);
  EXPECT_EQ(request->size, std::nullopt);
  EXPECT_FALSE(parse_request(R"({"key":["k"],"op":"info"})"));
  EXPECT_FALSE(parse_request(R"({"key":{"key":"k"},"op":"info"})"));
}

TEST(RequestMembers, ThatAreUnknownAreIgnored) {
  for (const std::string_view value : values()) {
    const auto request =
        parse_request(cat(R"({"a":)", value, R"(,"key":"k","b":)", value, R"(,"op":"alloc","":)",
                          value, R"(,"size":9,"c":)", value, "}"));
    ASSERT_TRUE(request) << value;
    EXPECT_EQ(request->key, "k");
    EXPECT_EQ(request->op, Op::kAlloc);
    EXPECT_EQ(request->size, Bytes(9));
  }
}

TEST(RequestEscapes, AreUndoneInNamesAndValues) {
  const auto request = parse_request(
      R"({"\u006bey":"\u0073\"\\\/\b\f\n\r\t","\u006F\u0070":"in\u0066o","s\u0069ze":1})");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->key, "s\"\\/\b\f\n\r\t");
  EXPECT_EQ(request->op, Op::kInfo);
  EXPECT_EQ(request->size, Bytes(1));
}

TEST(RequestEscapes, CarryANulInsideAKey) {
  EXPECT_EQ(parse_request(R"({"key":"\u0000"})")->key, "\0"sv);
  EXPECT_EQ(parse_request(R"({"key":"k\u0000"})")->key, "k\0"sv);
  EXPECT_EQ(parse_request(R"({"key":"a\u0000b"})")->key, "a\0b"sv);
}

TEST(RequestEscapes, CarryCharactersOutsideTheBasicPlane) {
  EXPECT_EQ(parse_request(R"({"key":"\u00fc"})")->key, "\xc3\xbc");
  EXPECT_EQ(parse_request(R"({"key":"\u20AC"})")->key, "\xe2\x82\xac");
  EXPECT_EQ(parse_request(R"({"key":"\ud83d\ude00"})")->key, "\xf0\x9f\x98\x80");
  EXPECT_EQ(parse_request(R"({"key":"\uDBFF\uDFFF"})")->key, "\xf4\x8f\xbf\xbf");
}

TEST(RequestEscapes, LoneSurrogatesAreNeverAKey) {
  for (const std::string_view key :
       {R"(\ud800)"sv, R"(\udbff)"sv, R"(\udc00)"sv, R"(\udfff)"sv, R"(k\ud800)"sv,
        R"(\ud800\ud800)"sv, R"(\udc00\ud800)"sv, R"(\ud800\u0041)"sv, R"(\ud800x)"sv,
        R"(\ud800\n)"sv, R"(\ude00\ud83d)"sv}) {
    const auto request = parse_request(cat(R"({"key":")", key, R"(","op":"info"})"));
    // Readable or not: no Key is made of it, so none matches it.
    EXPECT_FALSE(request && Key::from(request->key)) << key;
  }
  EXPECT_FALSE(parse_request(R"({"key":"k","op":"info","x":"\ud800"})"));
}

}  // namespace
}  // namespace carveout::wire
