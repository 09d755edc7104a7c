// The replies' bytes, as lending-protocol's page has them ("to the letter").

#include <gtest/gtest.h>
#include <rapidjson/document.h>

#include <cstdint>
#include <limits>
#include <string>

#include "base/text.hpp"
#include "wire/codec.hpp"

namespace carveout::wire {
namespace {

constexpr Bytes kBase(10739515392);
constexpr Bytes kSize(2145386496);
constexpr Info kNow{.base = kBase, .size = kSize, .free = kSize - kSliceBytes, .largest = mib(2)};

TEST(Encode, Info) {
  EXPECT_EQ(encode_info({.base = kBase, .size = kSize, .free = kSize, .largest = kSize}),
            R"({"base": 10739515392, "size": 2145386496, "free": 2145386496, )"
            R"("largest": 2145386496})");
  EXPECT_EQ(encode_info({}), R"({"base": 0, "size": 0, "free": 0, "largest": 0})");
}

TEST(Encode, Grant) {
  EXPECT_EQ(encode_grant({.base = kBase, .size = mib(2)}),
            R"({"ok": true, "base": 10739515392, "size": 2097152})");
}

TEST(Encode, RefusalOfTheKey) {
  EXPECT_EQ(encode_refusal(Refusal::kUnknownKey, kNow),
            R"({"ok": false, "error": "missing or unknown key"})");
}

TEST(Encode, RefusalOfTheOp) {
  EXPECT_EQ(encode_refusal(Refusal::kUnknownOp, kNow), R"({"ok": false, "error": "unknown op"})");
}

TEST(Encode, RefusalOfTheSize) {
  EXPECT_EQ(encode_refusal(Refusal::kBadSize, kNow),
            R"({"ok": false, "error": "size must be an integer from 1 to 2145386496"})");
}

TEST(Encode, RefusalForWantOfMemory) {
  EXPECT_EQ(encode_refusal(Refusal::kNotEnough, kNow),
            R"({"ok": false, "error": "not enough free carveout", "base": 10739515392, )"
            R"("size": 2145386496, "free": 2143289344, "largest": 2097152})");
}

TEST(Encode, TheLargestNumbers) {
  const Bytes most(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(encode_info({most, most, most, most}),
            R"({"base": 18446744073709551615, "size": 18446744073709551615, )"
            R"("free": 18446744073709551615, "largest": 18446744073709551615})");
  EXPECT_LT(encode_refusal(Refusal::kNotEnough, {most, most, most, most}).size(), kMaxDatagram);
}

TEST(Encode, Requests) {
  for (const std::string& request :
       {encode_info_request("secret"), encode_alloc_request("secret", mib(2))}) {
    rapidjson::Document document;
    document.Parse(request.data(), request.size());
    ASSERT_TRUE(document.IsObject()) << request;
    EXPECT_STREQ(document["key"].GetString(), "secret");
  }
  const std::string alloc = encode_alloc_request("k", Bytes(18446744073709551615U));
  rapidjson::Document document;
  document.Parse(alloc.data(), alloc.size());
  EXPECT_STREQ(document["op"].GetString(), "alloc");
  EXPECT_EQ(document["size"].GetUint64(), 18446744073709551615U);
  EXPECT_EQ(document.MemberCount(), 3U);
}

TEST(Encode, ARequestWithTheLongestKeyFitsADatagram) {
  // Each byte of such a key becomes six.
  EXPECT_LE(encode_alloc_request(std::string(255, '\x01'), Bytes(18446744073709551615U)).size(),
            kMaxDatagram);
}

}  // namespace
}  // namespace carveout::wire
