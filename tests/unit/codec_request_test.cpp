// What makes a datagram a readable request, and what does not.

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "wire/codec.hpp"

namespace carveout::wire {
namespace {

using namespace std::string_view_literals;

bool readable(std::string_view datagram) {
  return parse_request(datagram).has_value();
}

TEST(ParseRequest, ReadsTheProtocolsOwnRequests) {
  const auto info = parse_request(R"({"key": "secret", "op": "info"})");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->key, "secret");
  EXPECT_EQ(info->op, Op::kInfo);
  EXPECT_FALSE(info->size);

  const auto alloc = parse_request(R"({"key": "secret", "op": "alloc", "size": 2097152})");
  ASSERT_TRUE(alloc);
  EXPECT_EQ(alloc->key, "secret");
  EXPECT_EQ(alloc->op, Op::kAlloc);
  EXPECT_EQ(alloc->size, Bytes(2097152));
}

TEST(ParseRequest, ReadsItsOwnEncodings) {
  for (const std::string_view key :
       {"k"sv, "a \"quoted\" \\ key"sv, "\xc3\xbc\x01\n"sv, "a\0b"sv}) {
    const auto info = parse_request(encode_info_request(key));
    ASSERT_TRUE(info) << printable(key, 50);
    EXPECT_EQ(info->key, key);
    EXPECT_EQ(info->op, Op::kInfo);
    EXPECT_FALSE(info->size);
    const auto alloc = parse_request(encode_alloc_request(key, Bytes(~std::uint64_t{0})));
    ASSERT_TRUE(alloc);
    EXPECT_EQ(alloc->key, key);
    EXPECT_EQ(alloc->op, Op::kAlloc);
    EXPECT_EQ(alloc->size, Bytes(~std::uint64_t{0}));
  }
}

TEST(ParseRequest, TakesAnySpacingAndOrder) {
  for (const std::string_view datagram :
       {R"({"op":"alloc","size":5,"key":"k"})"sv,
        "\t\r\n {\"size\" : 5 ,\"key\"\n:\r\"k\",\"op\":\"alloc\"}\n \t"sv,
        R"({"x":1,"op":"alloc","y":[2],"size":5,"z":{},"key":"k","last":null})"sv}) {
    const auto request = parse_request(datagram);
    ASSERT_TRUE(request) << datagram;
    EXPECT_EQ(request->key, "k");
    EXPECT_EQ(request->op, Op::kAlloc);
    EXPECT_EQ(request->size, Bytes(5));
  }
}

TEST(ParseRequest, RefusesWhatIsNotJson) {
  for (const std::string_view datagram : {""sv,
                                          " "sv,
                                          "\n"sv,
                                          "info"sv,
                                          "{"sv,
                                          "}"sv,
                                          "{]"sv,
                                          "{key:\"k\"}"sv,
                                          "{'key':'k'}"sv,
                                          R"({"key"})"sv,
                                          R"({"key":})"sv,
                                          R"({"key":"k",})"sv,
                                          R"({,"key":"k"})"sv,
                                          R"({"key":"k" "op":"info"})"sv,
                                          R"({"key":"k";"op":"info"})"sv,
                                          R"({"key"="k"})"sv,
                                          R"({"key":"k","op":"info")"sv,
                                          R"({"key":"k)"sv,
                                          R"({"key":"k","x":[1,]})"sv,
                                          R"({"key":"k","x":[1}])"sv,
                                          R"({"key":"k","x":tru})"sv,
                                          R"({"key":"k","x":True})"sv,
                                          R"({"key":"k","x":nul})"sv,
                                          R"({"key":"k"/**/})"sv,
                                          "{\"key\":\"k\"//\n}"sv,
                                          R"({"key":"k","x":NaN})"sv,
                                          R"({"key":"k","x":Infinity})"sv,
                                          R"({"key":"k","x":undefined})"sv,
                                          "{\"key\":\"k\n\"}"sv,
                                          "{\"key\":\"k\t\"}"sv,
                                          "{\"key\":\"k\x1f\"}"sv,
                                          R"({"key":"\x41"})"sv,
                                          R"({"key":"\u12"})"sv,
                                          R"({"key":"\u12g4"})"sv,
                                          R"({"key":"\)"sv,
                                          "\v{\"key\":\"k\"}"sv}) {
    EXPECT_FALSE(readable(datagram)) << printable(datagram, 100);
  }
}

TEST(ParseRequest, RefusesWhatIsNotAnObject) {
  for (const std::string_view datagram :
       {"null"sv, "true"sv, "false"sv, "0"sv, "-1"sv, "2.5"sv, "1e3"sv, "18446744073709551615"sv,
        "18446744073709551616"sv, R"("key")"sv, R"("")"sv, "[]"sv, R"(["key","k"])"sv,
        R"([{"key":"k","op":"info"}])"sv, R"([[{"key":"k"}]])"sv}) {
    EXPECT_FALSE(readable(datagram)) << datagram;
  }
}

TEST(ParseRequest, RefusesAnythingBehindTheObject) {
  const std::string good = R"({"key":"k","op":"info"})";
  ASSERT_TRUE(readable(good));
  for (const std::string_view tail :
       {"x"sv, "}"sv, ","sv, "{}"sv, " {}"sv, "\n1"sv, "null"sv, "\""sv, "\0"sv, "\0\0\0"sv,
        " \0"sv, "\0 "sv, "\0{}"sv, "\v"sv}) {
    EXPECT_FALSE(readable(good + std::string(tail))) << printable(tail, 20);
  }
  EXPECT_FALSE(readable(good + good));
}

TEST(ParseRequest, RefusesARawNulAnywhere) {
  const std::string good = R"({"key":"k","x":[1,{"y":"z"}],"op":"info"})";
  ASSERT_TRUE(readable(good));
  for (std::size_t at = 0; at <= good.size(); ++at) {
    std::string datagram = good;
    datagram.insert(at, 1, '\0');
    EXPECT_FALSE(readable(datagram)) << at;
  }
}

TEST(ParseRequest, RefusesAByteOrderMark) {
  EXPECT_FALSE(readable("\xef\xbb\xbf{\"key\":\"k\"}"));
  EXPECT_FALSE(readable("{\"key\":\"k\"}\xef\xbb\xbf"));
  EXPECT_FALSE(readable("\xff\xfe{\0\"\0k\0e\0y\0\"\0:\0\"\0k\0\"\0}\0"sv));
}

TEST(ParseRequest, RefusesEveryTruncation) {
  const std::string whole =
      R"({"key": "se\u0063ret", "x": [1, {"y": -2.5e1}], "op": "alloc", "size": 2097152})";
  ASSERT_TRUE(readable(whole));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(readable(std::string_view(whole).substr(0, length))) << length;
  }
}

TEST(ParseRequest, TakesFourKibibytesAndNotOneByteMore) {
  const std::string frame = R"({"key":"k","op":"info","x":""})";
  for (const auto& [length, good] : {std::pair{kMaxDatagram, true}, {kMaxDatagram + 1, false}}) {
    std::string padded = frame;
    padded.insert(frame.size() - 2, length - frame.size(), 'x');
    ASSERT_EQ(padded.size(), length);
    EXPECT_EQ(readable(padded), good) << length;
    const std::string spaced = frame + std::string(length - frame.size(), ' ');
    EXPECT_EQ(readable(spaced), good) << length;
  }
}

std::string repeated(std::string_view part, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i)
    text += part;
  return text;
}

TEST(ParseRequest, SurvivesDeepNesting) {
  const std::string head = R"({"key":"k","op":"info","x":)";
  EXPECT_TRUE(readable(head + repeated("[", 2000) + repeated("]", 2000) + "}"));
  EXPECT_FALSE(readable(head + repeated("[", 2000) + repeated("]", 1999) + "}"));
  EXPECT_FALSE(readable(head + repeated("[", 2000) + repeated("]", 2001) + "}"));
  EXPECT_FALSE(readable(head + repeated("[", 2000) + repeated("]", 1000) + repeated("}", 1000)));
  EXPECT_FALSE(readable(repeated("[", 2000)));
  EXPECT_FALSE(readable(repeated("[", 2000) + repeated("]", 2000)));
  EXPECT_FALSE(readable(repeated("[", kMaxDatagram)));

  // Closed, 670 levels are what fits into a datagram.
  EXPECT_TRUE(readable(head + repeated(R"({"a":)", 670) + "1" + repeated("}", 670) + "}"));
  EXPECT_FALSE(readable(head + repeated(R"({"a":)", 670) + "1" + repeated("}", 669) + "}"));
  EXPECT_FALSE(readable(repeated(R"({"a":)", 819)));
  EXPECT_FALSE(readable(repeated(R"({"a":)", 2000)));
  EXPECT_FALSE(readable(repeated(R"([{"a":)", 500)));
}

TEST(ParseRequest, FindsItsMembersBehindDeepNesting) {
  const auto request = parse_request(R"({"x":)" + repeated("[", 1900) + repeated("]", 1900) +
                                     R"(,"key":"k","op":"alloc","size":7})");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->key, "k");
  EXPECT_EQ(request->op, Op::kAlloc);
  EXPECT_EQ(request->size, Bytes(7));
}

// Each row of ill-formed UTF-8 (Unicode, chapter 3, "Well-Formed UTF-8 Byte Sequences").
const std::vector<std::string>& ill_formed() {
  static const std::vector<std::string> kRows{"\x80",
                                              "\xbf",
                                              "\xc0\x80",
                                              "\xc0\xaf",
                                              "\xc1\xbf",
                                              "\xc3",
                                              "\xc3(",
                                              "\xc3\xc3\xbc",
                                              "\xe0\x80\x80",
                                              "\xe0\x9f\xbf",
                                              "\xe2\x82",
                                              "\xe2\x82x",
                                              "\xe2(\xa1",
                                              "\xed\xa0\x80",
                                              "\xed\xbf\xbf",
                                              "\xed\xa0\xbd\xed\xb8\x80",
                                              "\xf0\x80\x80\x80",
                                              "\xf0\x8f\xbf\xbf",
                                              "\xf0\x9f\x98",
                                              "\xf0\x9f\x98x",
                                              "\xf0(\x8c\xbc",
                                              "\xf4\x90\x80\x80",
                                              "\xf5\x80\x80\x80",
                                              "\xf8\x88\x80\x80\x80",
                                              "\xfc\x84\x80\x80\x80\x80",
                                              "\xfe",
                                              "\xff",
                                              "\xc3\xbc\xbc"};
  return kRows;
}

TEST(ParseRequest, RefusesWhatIsNotUtf8WhereverItStands) {
  // "@" is where the bytes go.
  for (const std::string_view place :
       {R"({"key":"k@","op":"info"})"sv, R"({"key":"k","op":"@"})"sv,
        R"({"key":"k","op":"info@"})"sv, R"({"key":"k","op":"info","x":"@"})"sv,
        R"({"key":"k","op":"info","@":1})"sv, R"({"key":"k","op":"info","x":{"y@":["z"]}})"sv,
        R"({"key":"k","op":"info","x":{"y":["@"]}})"sv, R"({"key":"k","op":"info"}@)"sv,
        R"(@{"key":"k","op":"info"})"sv, R"({"key":"k",@"op":"info"})"sv}) {
    const std::size_t at = place.find('@');
    for (const std::string& bytes : ill_formed()) {
      std::string datagram(place);
      datagram.replace(at, 1, bytes);
      EXPECT_FALSE(readable(datagram)) << printable(datagram, 200);
    }
  }
}

TEST(ParseRequest, TakesUtf8InEveryString) {
  for (const std::string_view text :
       {"\xc2\x80"sv, "\xdf\xbf"sv, "\xe0\xa0\x80"sv, "\xed\x9f\xbf"sv, "\xee\x80\x80"sv,
        "\xef\xbf\xbf"sv, "\xf0\x90\x80\x80"sv, "\xf4\x8f\xbf\xbf"sv, "\x7f"sv}) {
    const auto request =
        parse_request(cat(R"({"key":")", text, R"(","op":"info",")", text, R"(":")", text, "\"}"));
    ASSERT_TRUE(request) << printable(text, 20);
    EXPECT_EQ(request->key, text);
  }
}

}  // namespace
}  // namespace carveout::wire
