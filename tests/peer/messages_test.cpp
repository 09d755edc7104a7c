// Hostile datagrams.

#include <sys/socket.h>

#include "peer/bystander.hpp"

namespace carveout::test {
namespace {

using Message = Hostile;

std::string with_size(const std::string& size) {
  return R"({"key": "secret", "op": "alloc", "size": )" + size + "}";
}

// One datagram on a connection of its own: its answer, which the end follows.
std::string refused(const DaemonProcess& daemon, const std::string& datagram) {
  const Peer peer = daemon.connect();
  const Reply reply = peer.ask(datagram);
  EXPECT_TRUE(reply.descriptors.empty());
  const Reply end = peer.receive();
  EXPECT_TRUE(end.ended());
  EXPECT_EQ(end.error, 0) << "an end, not a reset";
  return reply.bytes;
}

TEST_F(Message, Truncated) {
  const std::string whole = R"({"key": "secret", "op": "info"})";
  for (std::size_t length = 1; length < whole.size(); ++length) {
    EXPECT_EQ(refused(daemon_, whole.substr(0, length)), kUnknownKey);
  }
  got("missing or unknown key, then the end, at each of 30 lengths");
}

TEST_F(Message, FourKibibytesAndOne) {
  std::string datagram = R"({"key": "secret", "op": "info"})";
  datagram += std::string(4097 - datagram.size(), ' ');
  EXPECT_EQ(refused(daemon_, datagram), kUnknownKey);
  EXPECT_EQ(refused(daemon_, std::string(100'000, '{')), kUnknownKey);
  got("missing or unknown key, then the end");
}

TEST_F(Message, Empty) {
  const Peer peer = daemon_.connect();
  peer.send("");
  EXPECT_TRUE(peer.receive().ended());
  got("the end");
}

TEST_F(Message, InvalidUtf8) {
  for (const char* bytes : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82"}) {
    const std::string datagram =
        std::string(R"({"key": "secret", "op": "info", "x": ")") + bytes + "\"}";
    EXPECT_EQ(refused(daemon_, datagram), kUnknownKey);
  }
  got("missing or unknown key, then the end");
}

TEST_F(Message, NestedFourThousandDeep) {
  EXPECT_EQ(refused(daemon_, std::string(4000, '[')), kUnknownKey);
  std::string objects;
  while (objects.size() < 4000)
    objects += R"({"a":)";
  EXPECT_EQ(refused(daemon_, objects), kUnknownKey);
  // As deep as fits, and well-formed: ignored like any member that is not known.
  const std::string deep = std::string(2000, '[') + std::string(2000, ']');
  const std::string datagram = R"({"key": "secret", "op": "info", "x": )" + deep + "}";
  EXPECT_EQ(member(daemon_.connect().ask(datagram).bytes, "size"), 32 * kSlice);
  got("missing or unknown key, then the end; 2,000 deep and closed again: info");
}

TEST_F(Message, DuplicateMembers) {
  const Peer peer = daemon_.connect();
  const std::string last_counts =
      R"({"key": 1, "key": "secret", "op": "alloc", "op": "info", "size": 1, "size": "x"})";
  EXPECT_EQ(member(peer.ask(last_counts).bytes, "free"), 32 * kSlice);
  EXPECT_EQ(refused(daemon_, R"({"key": "secret", "key": "other", "op": "info"})"), kUnknownKey);
  got("the last one counts");
}

TEST_F(Message, Sizes) {
  const std::string range =
      R"({"ok": false, "error": "size must be an integer from 1 to 67108864"})";
  for (const char* size : {"0", "-1", "-9223372036854775808", "-99999999999999999999", "67108865",
                           "9223372036854775807", "18446744073709551615", "18446744073709551616",
                           "1e3", "1E+3", "2097152.0", "0.5", "true", "false", "null",
                           "\"2097152\"", "[2097152]", "{\"size\": 1}", "1e-400"}) {
    EXPECT_EQ(refused(daemon_, with_size(size)), range) << size;
  }
  EXPECT_EQ(refused(daemon_, with_size(std::string(300, '9'))), range);
  for (const std::string& size :
       {std::string("1e400"), std::string("-1e400"), std::string(400, '9'), std::string("01"),
        std::string("+1"), std::string("0x10"), std::string("NaN"), std::string("Infinity"),
        std::string("1.")}) {
    EXPECT_EQ(refused(daemon_, with_size(size)), kUnknownKey) << size;
  }
  got("size must be an integer; missing or unknown key where it is no JSON or fits no double");
}

TEST_F(Message, NulInTheKey) {
  using namespace std::string_literals;
  EXPECT_EQ(refused(daemon_, R"({"key": "secret\u0000", "op": "info"})"), kUnknownKey);
  EXPECT_EQ(refused(daemon_, R"({"key": "sec\u0000ret", "op": "info"})"), kUnknownKey);
  EXPECT_EQ(refused(daemon_, "{\"key\": \"secret\0\", \"op\": \"info\"}"s), kUnknownKey);
  EXPECT_EQ(refused(daemon_, "{\"key\": \"secret\", \"op\": \"info\"}\0"s), kUnknownKey);
  got("missing or unknown key, then the end");
}

TEST_F(Message, KeyOfFourThousandBytes) {
  EXPECT_EQ(refused(daemon_, R"({"key": ")" + std::string(4000, 'k') + R"(", "op": "info"})"),
            kUnknownKey);
  got("missing or unknown key, then the end");
}

TEST_F(Message, HalfCloses) {
  // At every point: before anything, behind a request, while holding, behind a refusal.
  const Peer nothing = daemon_.connect();
  ::shutdown(nothing.socket(), SHUT_WR);
  EXPECT_TRUE(nothing.receive().ended());

  const Peer asked = daemon_.connect();
  asked.send(asked.info_request());
  asked.send(asked.info_request());
  ::shutdown(asked.socket(), SHUT_WR);
  EXPECT_EQ(member(asked.receive().bytes, "free"), 32 * kSlice);
  EXPECT_EQ(member(asked.receive().bytes, "free"), 32 * kSlice);
  EXPECT_TRUE(asked.receive().ended());

  const Peer holder = daemon_.connect();
  const UniqueFd memory = holder.alloc(kSlice);
  ::shutdown(holder.socket(), SHUT_WR);
  EXPECT_TRUE(holder.receive().ended());

  const Peer refused = daemon_.connect();
  refused.send("junk");
  ::shutdown(refused.socket(), SHUT_WR);
  EXPECT_EQ(refused.receive().bytes, kUnknownKey);
  EXPECT_TRUE(refused.receive().ended());
  got("what it had asked for, then the end");
}

}  // namespace
}  // namespace carveout::test
