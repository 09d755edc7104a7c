// What a client makes of a reply.

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

constexpr Info kNow{Bytes(10739515392), Bytes(2145386496), Bytes(2143289344), Bytes(2097152)};

void expect_info(std::string_view datagram) {
  const auto info = parse_info_reply(datagram);
  ASSERT_TRUE(info) << datagram << " -> " << info.error().describe();
  EXPECT_EQ(info->base, kNow.base);
  EXPECT_EQ(info->size, kNow.size);
  EXPECT_EQ(info->free, kNow.free);
  EXPECT_EQ(info->largest, kNow.largest);
}

void expect_grant(std::string_view datagram) {
  const auto grant = parse_grant_reply(datagram);
  ASSERT_TRUE(grant) << datagram << " -> " << grant.error().describe();
  EXPECT_EQ(grant->base, Bytes(10739515392));
  EXPECT_EQ(grant->size, Bytes(2097152));
}

void expect_unusable(std::string_view datagram) {
  const auto info = parse_info_reply(datagram);
  ASSERT_FALSE(info) << printable(datagram, 200);
  EXPECT_EQ(info.error().code, Code::kProtocol) << printable(datagram, 200);
  const auto grant = parse_grant_reply(datagram);
  ASSERT_FALSE(grant) << printable(datagram, 200);
  EXPECT_EQ(grant.error().code, Code::kProtocol) << printable(datagram, 200);
}

TEST(ParseInfoReply, ReadsWhatTheDaemonSends) {
  expect_info(encode_info(kNow));
}

TEST(ParseInfoReply, ReadsOtherWaysToWriteTheSame) {
  for (
      const std::string_view datagram :
      {R"({"base":10739515392,"size":2145386496,"free":2143289344,"largest":2097152})"sv,
       "\n{\t\"largest\" : 2097152 ,\r\n\"free\":2143289344,\"size\":2145386496,\"base\":10739515392 } \n"sv,
       R"({"x":[1,{"base":7}],"base":10739515392,"size":2145386496,"ok":true,)"
       R"("free":2143289344,"largest":2097152,"later":null})"sv,
       R"({"b\u0061se":10739515392,"siz\u0065":2145386496,"\u0066ree":2143289344,)"
       R"("l\u0061rgest":2097152})"sv}) {
    expect_info(datagram);
  }
}

TEST(ParseGrantReply, ReadsWhatTheDaemonSends) {
  expect_grant(encode_grant({Bytes(10739515392), Bytes(2097152)}));
}

TEST(ParseGrantReply, ReadsOtherWaysToWriteTheSame) {
  for (const std::string_view datagram :
       {R"({"ok":true,"base":10739515392,"size":2097152})"sv,
        " { \"size\" : 2097152 , \"base\" : 10739515392 , \"ok\" : true } "sv,
        R"({"ok":true,"x":{"ok":false},"base":10739515392,"free":1,"size":2097152,"y":[]})"sv,
        R"({"o\u006b":true,"b\u0061se":10739515392,"s\u0069ze":2097152})"sv}) {
    expect_grant(datagram);
  }
}

TEST(ParseReply, RefusesWhatIsNoJsonObject) {
  for (const std::string_view datagram :
       {""sv,
        " "sv,
        "ok"sv,
        "{"sv,
        "{}{}"sv,
        "null"sv,
        "true"sv,
        "0"sv,
        "\"\""sv,
        "[]"sv,
        R"([{"ok":true,"base":1,"size":2}])"sv,
        R"({"ok":true,"base":1,"size":2)"sv,
        R"({"ok":true,"base":1,"size":2,})"sv,
        R"({"base":1,"size":2,"free":3,"largest":1e999})"sv,
        R"({"ok":true,"base":1,"size":2,"free":3,"largest":4}x)"sv,
        "{\"ok\":true,\"base\":1,\"size\":2,\"free\":3,\"largest\":4}\0"sv,
        "{\"ok\":true,\"base\":1,\"size\":2,\"free\":3,\"largest\":4}\0{}"sv,
        "{\"ok\":true,\"base\":1,\"size\":2,\"free\":3,\"largest\":4,\"x\":\"\xff\"}"sv,
        "{\"ok\":true,\"base\":1,\"size\":2,\"free\":3,\"largest\":4}\x80"sv,
        "\xef\xbb\xbf{\"ok\":true,\"base\":1,\"size\":2,\"free\":3,\"largest\":4}"sv}) {
    expect_unusable(datagram);
  }
}

TEST(ParseReply, RefusesOneThatIsTooLong) {
  std::string info = encode_info(kNow);
  expect_info(info + std::string(kMaxDatagram - info.size(), ' '));
  expect_unusable(info + std::string(kMaxDatagram + 1 - info.size(), ' '));
}

TEST(ParseReply, SurvivesDeepNesting) {
  std::string deep = R"({"base":1,"size":2,"free":3,"largest":4,"x":)";
  deep += std::string(1900, '[') + std::string(1900, ']') + "}";
  EXPECT_TRUE(parse_info_reply(deep));
  expect_unusable(std::string(2000, '['));
}

TEST(ParseReply, RefusesTruncations) {
  const std::string info = encode_info(kNow);
  for (std::size_t length = 0; length < info.size(); ++length) {
    expect_unusable(std::string_view(info).substr(0, length));
  }
  const std::string refusal = encode_refusal(Refusal::kNotEnough, kNow);
  for (std::size_t length = 0; length < refusal.size(); ++length) {
    expect_unusable(std::string_view(refusal).substr(0, length));
  }
}

const std::vector<std::string_view>& no_whole_numbers() {
  static const std::vector<std::string_view> kValues{
      "null", "true", "\"1\"", "1.0", "1e3", "-1", "18446744073709551616", "[1]", "{}"};
  return kValues;
}

TEST(ParseInfoReply, NeedsEachMemberAsAWholeNumber) {
  const std::vector<std::string_view> names{"base", "size", "free", "largest"};
  for (const std::string_view bad : names) {
    for (std::string_view value : no_whole_numbers()) {
      std::string with, without;
      for (const std::string_view name : names) {
        with += cat(with.empty() ? "{" : ",", "\"", name, "\":", name == bad ? value : "1");
        if (name != bad) without += cat(without.empty() ? "{" : ",", "\"", name, "\":1");
      }
      expect_unusable(with + "}");
      expect_unusable(without + "}");
    }
  }
}

TEST(ParseGrantReply, NeedsBaseAndSizeAsWholeNumbers) {
  EXPECT_EQ(parse_grant_reply(R"({"ok":true,"base":1})").error().code, Code::kProtocol);
  EXPECT_EQ(parse_grant_reply(R"({"ok":true,"size":1})").error().code, Code::kProtocol);
  EXPECT_EQ(parse_grant_reply(R"({"ok":true})").error().code, Code::kProtocol);
  for (const std::string_view value : no_whole_numbers()) {
    EXPECT_EQ(parse_grant_reply(cat(R"({"ok":true,"base":1,"size":)", value, "}")).error().code,
              Code::kProtocol);
    EXPECT_EQ(parse_grant_reply(cat(R"({"ok":true,"size":1,"base":)", value, "}")).error().code,
              Code::kProtocol);
  }
}

TEST(ParseGrantReply, NeedsOkToBeTrueAlthoughASizeIsThere) {
  for (const std::string_view ok : {"null"sv, "1"sv, "0"sv, "\"true\""sv, "[true]"sv, "{}"sv}) {
    const auto grant = parse_grant_reply(cat(R"({"ok":)", ok, R"(,"base":1,"size":2097152})"));
    ASSERT_FALSE(grant) << ok;
    EXPECT_EQ(grant.error().code, Code::kProtocol) << ok;
  }
  EXPECT_EQ(parse_grant_reply(R"({"base":1,"size":2097152})").error().code, Code::kProtocol);
  EXPECT_EQ(parse_grant_reply(R"({"ok":false,"base":1,"size":2097152})").error().code,
            Code::kRefused);
  // An info reply is no grant.
  EXPECT_EQ(parse_grant_reply(encode_info(kNow)).error().code, Code::kProtocol);
}

Error refusal(std::string_view datagram) {
  const auto grant = parse_grant_reply(datagram);
  const auto info = parse_info_reply(datagram);
  EXPECT_FALSE(grant) << datagram;
  EXPECT_FALSE(info) << datagram;
  if (grant || info) return {};
  EXPECT_EQ(grant.error().code, Code::kRefused) << datagram;
  EXPECT_EQ(info.error().code, Code::kRefused) << datagram;
  return grant.error();
}

TEST(ParseRefusal, CarriesTheDaemonsWords) {
  EXPECT_EQ(refusal(encode_refusal(Refusal::kUnknownKey, kNow)).message, "missing or unknown key");
  EXPECT_EQ(refusal(encode_refusal(Refusal::kUnknownOp, kNow)).message, "unknown op");
  EXPECT_EQ(refusal(encode_refusal(Refusal::kBadSize, kNow)).message,
            "size must be an integer from 1 to 2145386496, which is 2046 MiB");
}

TEST(ParseRefusal, SaysHowMuchThereIs) {
  const std::string message = refusal(encode_refusal(Refusal::kNotEnough, kNow)).message;
  EXPECT_NE(message.find("not enough free carveout"), std::string::npos) << message;
  EXPECT_NE(message.find("2044 MiB"), std::string::npos) << message;
  EXPECT_NE(message.find("2 MiB"), std::string::npos) << message;
}

TEST(ParseRefusal, IsReadInAnySpacingAndOrder) {
  EXPECT_EQ(refusal(R"({"error":"no","ok":false})").message, "no");
  EXPECT_EQ(refusal("{ \"x\" : 1,\n\"err\\u006fr\" : \"n\\u006f\", \"ok\":false }").message, "no");
  EXPECT_EQ(refusal(R"({"error":"no"})").message, "no");
}

TEST(ParseRefusal, NeedsNoReason) {
  for (const std::string_view datagram : {R"({"ok":false})"sv, R"({"ok":false,"error":null})"sv,
                                          R"({"ok":false,"error":{"text":"no"}})"sv}) {
    EXPECT_FALSE(refusal(datagram).message.empty()) << datagram;
  }
}

TEST(ParseRefusal, EscapesTheDaemonsWords) {
  EXPECT_EQ(refusal(R"({"ok":false,"error":"a\u001b[31m\n\u0000\u009bb"})").message,
            "a\\x1b[31m\\x0a\\x00\\xc2\\x9bb");
}

TEST(ParseRefusal, BoundsTheDaemonsWords) {
  const std::string plain =
      refusal(cat(R"({"ok":false,"error":")", std::string(3000, 'x'), "\"}")).message;
  EXPECT_EQ(plain, std::string(200, 'x') + "...");
  std::string controls;
  for (int i = 0; i < 600; ++i)
    controls += "\\u0001";
  EXPECT_LE(refusal(cat(R"({"ok":false,"error":")", controls, "\"}")).message.size(), 803U);
}

}  // namespace
}  // namespace carveout::wire
