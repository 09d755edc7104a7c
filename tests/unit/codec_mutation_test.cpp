// Hundreds of thousands of damaged requests, each read a second time by a parser of another shape.

#include <gtest/gtest.h>
#include <rapidjson/document.h>
#include <rapidjson/memorystream.h>

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "wire/codec.hpp"

namespace carveout::wire {
namespace {

bool same(const std::optional<Request>& a, const std::optional<Request>& b) {
  if (!a || !b) return !a && !b;
  return a->key == b->key && a->op == b->op && a->size == b->size;
}

// The rules of codec.hpp, over a tree instead of over events.
std::optional<Request> read_by_tree(std::string_view datagram) {
  if (datagram.size() > kMaxDatagram || !is_utf8(datagram)) return std::nullopt;
  if (datagram.find('\0') != std::string_view::npos) return std::nullopt;
  rapidjson::MemoryStream stream(datagram.data(), datagram.size());
  rapidjson::Document document;
  document.ParseStream<rapidjson::kParseIterativeFlag>(stream);
  if (document.HasParseError() || !document.IsObject()) return std::nullopt;
  const rapidjson::Value* key = nullptr;
  const rapidjson::Value* op = nullptr;
  const rapidjson::Value* size = nullptr;
  // By count: clang finds the comparison of RapidJSON's iterators ambiguous in C++20.
  rapidjson::Value::MemberIterator member = document.MemberBegin();
  for (rapidjson::SizeType i = 0; i < document.MemberCount(); ++i, ++member) {
    const std::string_view name(member->name.GetString(), member->name.GetStringLength());
    if (name == "key") key = &member->value;
    if (name == "op") op = &member->value;
    if (name == "size") size = &member->value;
  }
  if (key == nullptr || !key->IsString()) return std::nullopt;
  Request request;
  request.key.assign(key->GetString(), key->GetStringLength());
  if (op != nullptr && op->IsString()) {
    const std::string_view value(op->GetString(), op->GetStringLength());
    if (value == "info") request.op = Op::kInfo;
    if (value == "alloc") request.op = Op::kAlloc;
  }
  if (size != nullptr && size->IsUint64()) request.size = Bytes(size->GetUint64());
  return request;
}

class Mutations {
 public:
  std::string next() {
    std::string text(pick(kSeeds));
    const std::size_t steps = 1 + below(3);
    for (std::size_t i = 0; i < steps; ++i)
      mutate(text);
    return text;
  }

 private:
  static constexpr std::array<std::string_view, 8> kSeeds{
      R"({"key": "secret", "op": "info"})",
      R"({"key": "secret", "op": "alloc", "size": 2097152})",
      R"({"op":"alloc","size":18446744073709551615,"key":"k"})",
      R"({"key":"a","key":1,"key":"b","op":"info","op":"alloc","size":1,"size":2})",
      R"({"x":{"key":"n","size":[1,2,{"op":"info"}]},"key":"k","op":"info","y":null})",
      R"({"\u006bey":"\ud83d\ude00","s\u0069ze":-2.5e-3,"op":true})",
      "{\"key\":\"\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80\",\"op\":\"alloc\",\"size\":0}",
      R"( { "key" : "k" , "size" : 1e400 , "op" : "info" } )"};
  static constexpr std::array<std::string_view, 26> kPieces{"\"key\":",
                                                            "\"op\":",
                                                            "\"size\":",
                                                            "\"info\"",
                                                            "\"alloc\"",
                                                            "{",
                                                            "}",
                                                            "[",
                                                            "]",
                                                            ",",
                                                            ":",
                                                            "\"",
                                                            "\\",
                                                            "\\u0000",
                                                            "\\ud800",
                                                            "1",
                                                            "-",
                                                            ".",
                                                            "e",
                                                            "0",
                                                            "null",
                                                            "true",
                                                            "18446744073709551616",
                                                            "\x80",
                                                            "\xed\xa0\x80",
                                                            " "};

  std::size_t below(std::size_t count) { return static_cast<std::size_t>(random_() % count); }
  template <typename Table>
  std::string_view pick(const Table& table) {
    return table.at(below(table.size()));
  }

  void mutate(std::string& text) {
    const std::size_t at = below(text.size() + 1);
    switch (below(7)) {
      case 0:  // one bit
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:  // any byte
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 2:
        text.insert(at, pick(kPieces));
        break;
      case 3:
        text.erase(at, 1 + below(8));
        break;
      case 4:  // something twice
        text.insert(at, std::string(text, below(text.size() + 1), below(24)));
        break;
      case 5:  // the end of another one
        text.resize(at);
        text += pick(kSeeds).substr(below(20));
        break;
      default:
        text.replace(at, below(4), pick(kPieces));
    }
  }

  std::mt19937_64 random_{20261129};
};

TEST(ParseRequest, ReadsDamagedRequestsAsAnotherParserDoes) {
  Mutations mutations;
  std::uint64_t readable = 0;
  for (int round = 0; round < 200'000; ++round) {
    const std::string text = mutations.next();
    // A buffer of exactly that size, so that a sanitizer sees a read behind it.
    const std::vector<char> exact(text.begin(), text.end());
    const std::string_view datagram(exact.data(), exact.size());
    const auto request = parse_request(datagram);
    ASSERT_TRUE(same(request, parse_request(datagram))) << printable(text, 500);
    ASSERT_TRUE(same(request, read_by_tree(datagram))) << printable(text, 500);
    if (request) ++readable;
  }
  // Else it would only have shown that garbage is garbage.
  EXPECT_GT(readable, 10'000U);
  EXPECT_LT(readable, 190'000U);
}

template <typename T>
bool good_or_known_error(const Result<T>& reply) {
  return reply || reply.error().code == Code::kProtocol || reply.error().code == Code::kRefused;
}

TEST(ParseReply, SurvivesDamage) {
  std::mt19937_64 random(7);
  const std::array<std::string, 3> seeds{
      encode_info({Bytes(1), Bytes(2), Bytes(3), Bytes(4)}), encode_grant({Bytes(1), Bytes(2)}),
      encode_refusal(Refusal::kNotEnough, {Bytes(1), Bytes(2), Bytes(3), Bytes(4)})};
  for (int round = 0; round < 50'000; ++round) {
    std::string text = seeds.at(random() % seeds.size());
    for (std::uint64_t steps = 1 + random() % 3; steps > 0; --steps) {
      text[random() % text.size()] = static_cast<char>(random() % 256);
    }
    ASSERT_TRUE(good_or_known_error(parse_info_reply(text))) << printable(text, 200);
    ASSERT_TRUE(good_or_known_error(parse_grant_reply(text))) << printable(text, 200);
  }
}

}  // namespace
}  // namespace carveout::wire
