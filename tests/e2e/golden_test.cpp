// The lending protocol's tables, byte for byte, against the real daemon.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "support/daemon_process.hpp"
#include "support/memory.hpp"

namespace carveout::test {
namespace {

constexpr const char* kUnknownKey = R"({"ok": false, "error": "missing or unknown key"})";
constexpr const char* kUnknownOp = R"({"ok": false, "error": "unknown op"})";
constexpr const char* kBadSize =
    R"({"ok": false, "error": "size must be an integer from 1 to 2145386496"})";
constexpr const char* kEmpty =
    R"({"base": 10739515392, "size": 2145386496, "free": 2145386496, "largest": 2145386496})";

class Golden : public testing::Test {
 protected:
  // The reply to one request on a connection of its own, which ends behind a refusal.
  std::string refused(const std::string& datagram) {
    const Peer peer = daemon_.connect();
    const Reply reply = peer.ask(datagram);
    EXPECT_TRUE(reply.descriptors.empty()) << datagram;
    const Reply end = peer.receive();
    EXPECT_TRUE(end.ended() && end.error == 0) << datagram << " then " << end.bytes;
    return reply.bytes;
  }

  DaemonProcess daemon_{CARVEOUTD};  // with the defaults, which are GB10's
};

TEST_F(Golden, Info) {
  const Peer peer = daemon_.connect();
  EXPECT_EQ(peer.ask(R"({"key": "secret", "op": "info"})").bytes, kEmpty);
  EXPECT_EQ(peer.ask(R"({"op":"info","more":[1,{"key":"x"}],"key":"secret"})").bytes, kEmpty)
      << "stays open, ignores what it does not know";
}

TEST_F(Golden, InfoWhileAClaimIsHeld) {
  const Peer peer = daemon_.connect();
  const UniqueFd memory = peer.alloc(3145728);
  EXPECT_EQ(
      peer.ask(R"({"key": "secret", "op": "info"})").bytes,
      R"({"base": 10739515392, "size": 2145386496, "free": 2141192192, "largest": 2141192192})");
}

TEST_F(Golden, AllocRoundsUpToWholeSlices) {
  const std::pair<const char*, std::uint64_t> rows[] = {
      {"1", 2097152}, {"2097151", 2097152}, {"2097152", 2097152}, {"3145728", 4194304}};
  const Peer peer = daemon_.connect();
  for (const auto& [ask, granted] : rows) {
    const Reply reply =
        peer.ask(std::string(R"({"key": "secret", "op": "alloc", "size": )") + ask + "}");
    EXPECT_EQ(reply.bytes,
              R"({"ok": true, "base": 10739515392, "size": )" + std::to_string(granted) + "}");
    ASSERT_EQ(reply.descriptors.size(), 1U);
    EXPECT_TRUE(is_zeroed_memory(reply.descriptors[0].get(), granted));
  }
}

TEST_F(Golden, TheKeyIsCheckedFirst) {
  for (const char* datagram :
       {"hello", "[]", "3", "\"key\"", "{", "{}", R"({"op": "info"})",
        R"({"key": 1, "op": "info"})", R"({"key": "Secret", "op": "info"})",
        R"({"key": "", "op": "info"})", R"({"key": "secre", "op": "nothing"})",
        R"({"key": "secret2", "op": "alloc", "size": 0})",
        R"({"key": "secret", "op": "info"} )"
        "\x01",
        "{\"key\": \"secret\", \"op\": \"info\", \"x\": \"\xff\"}"}) {
    EXPECT_EQ(refused(datagram), kUnknownKey) << datagram;
  }
}

TEST_F(Golden, ThenTheOp) {
  for (const char* datagram :
       {R"({"key": "secret"})", R"({"key": "secret", "op": 1})", R"({"key": "secret", "op": null})",
        R"({"key": "secret", "op": "free"})", R"({"key": "secret", "op": "Info"})",
        R"({"key": "secret", "op": "alloc "})", R"({"key": "secret", "op": "", "size": 0})"}) {
    EXPECT_EQ(refused(datagram), kUnknownOp) << datagram;
  }
}

TEST_F(Golden, ThenTheSize) {
  EXPECT_EQ(refused(R"({"key": "secret", "op": "alloc"})"), kBadSize);
  for (const char* size :
       {"0", "-1", "-0", "1.0", "2097152.5", "1e6", "true", "null", "\"1\"", "[1]", "{}",
        "2145386497", "9223372036854775808", "18446744073709551616", "1e300"}) {
    EXPECT_EQ(refused(std::string(R"({"key": "secret", "op": "alloc", "size": )") + size + "}"),
              kBadSize)
        << size;
  }
}

TEST_F(Golden, ThenWhatIsFree) {
  const Peer holder = daemon_.connect();
  const UniqueFd memory = holder.alloc(4194304);
  EXPECT_EQ(refused(R"({"key": "secret", "op": "alloc", "size": 2145386496})"),
            R"({"ok": false, "error": "not enough free carveout", "base": 10739515392, )"
            R"("size": 2145386496, "free": 2141192192, "largest": 2141192192})");
}

TEST_F(Golden, WhereThePageIsSilent) {
  const Peer peer = daemon_.connect();
  EXPECT_EQ(peer.ask(R"({"key": "wrong", "key": "secret", "op": "x", "op": "info"})").bytes, kEmpty)
      << "of duplicate members the last counts";
  EXPECT_EQ(refused(R"({"key": "secret", "key": "wrong", "op": "info"})"), kUnknownKey);
  const std::string head = R"({"key": "secret", "op": "info", "x": ")";
  const std::string fits = head + std::string(4096 - head.size() - 2, 'x') + "\"}";
  EXPECT_EQ(peer.ask(fits).bytes, kEmpty);
  EXPECT_EQ(refused(fits.substr(0, fits.size() - 2) + "x\"}"), kUnknownKey) << "4 KiB and 1";
  EXPECT_EQ(refused(R"({"key": "secret", "op": "alloc", "size": 1e400})"), kUnknownKey)
      << "no double can hold it";
}

TEST_F(Golden, OtherSocketTypesAreRefusedByTheKernel) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, daemon_.socket().c_str(), sizeof address.sun_path - 1);
  for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {
    const UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), -1);
    EXPECT_EQ(errno, EPROTOTYPE);
  }
}

}  // namespace
}  // namespace carveout::test
