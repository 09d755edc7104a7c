// One connection's life: pipelining, refusals, ends, keys, several sockets.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <sstream>
#include <string>
#include <thread>

#include "support/daemon_process.hpp"
#include "support/memory.hpp"

namespace carveout::test {
namespace {

constexpr const char* kUnknownKey = R"({"ok": false, "error": "missing or unknown key"})";
constexpr const char* kUnknownOp = R"({"ok": false, "error": "unknown op"})";

std::string grant(std::uint64_t bytes) {
  return R"({"ok": true, "base": 10739515392, "size": )" + std::to_string(bytes) + "}";
}

class Session : public testing::Test {
 protected:
  DaemonProcess daemon_{CARVEOUTD, {"--size", "128MiB"}};
};

TEST_F(Session, PipelinedRequestsAreAnsweredInTheirOrder) {
  const Peer peer = daemon_.connect();
  for (std::uint64_t i = 1; i <= 8; ++i) {
    peer.send(peer.alloc_request(i));
    peer.send(peer.info_request());
    peer.send(peer.alloc_request(i * kSlice));
  }
  std::uint64_t free = 64;
  for (std::uint64_t i = 1; i <= 8; ++i) {
    EXPECT_EQ(peer.receive().bytes, grant(kSlice));
    free -= 1;
    EXPECT_EQ(member(peer.receive().bytes, "free"), free * kSlice);
    EXPECT_EQ(peer.receive().bytes, grant(i * kSlice));
    free -= i;
  }
}

TEST_F(Session, ARefusalIsReadBehindTheRepliesBeforeItAndThenTheEnd) {
  const Peer peer = daemon_.connect();
  for (int i = 0; i < 5; ++i)
    peer.send(peer.alloc_request(1));
  peer.send(R"({"key": "secret", "op": "nonsense"})");
  for (int i = 0; i < 20; ++i)
    peer.send(peer.alloc_request(1));  // these are too late
  for (int i = 0; i < 5; ++i) {
    const Reply reply = peer.receive();
    EXPECT_EQ(reply.bytes, grant(kSlice));
    EXPECT_EQ(reply.descriptors.size(), 1U);
  }
  EXPECT_EQ(peer.receive().bytes, kUnknownOp);
  const Reply end = peer.receive();
  EXPECT_TRUE(end.ended());
  EXPECT_EQ(end.error, 0) << "an end, not a reset";
  EXPECT_EQ(daemon_.connect().info().free, 64 * kSlice) << "a refusal ends the lease too";
}

TEST_F(Session, AHalfCloseIsAClose) {
  const Peer peer = daemon_.connect();
  const UniqueFd memory = peer.alloc(kSlice);
  ::shutdown(peer.socket(), SHUT_WR);
  EXPECT_TRUE(peer.receive().ended());
  EXPECT_EQ(daemon_.connect().info().free, 64 * kSlice);
}

TEST_F(Session, AnEmptyDatagramIsAClose) {
  const Peer peer = daemon_.connect();
  const UniqueFd memory = peer.alloc(kSlice);
  peer.send("");
  EXPECT_TRUE(peer.receive().ended());
  EXPECT_EQ(daemon_.connect().info().free, 64 * kSlice);
}

TEST_F(Session, WhatStandsBehindAnEmptyDatagramIsNoReasonToLoseTheReplyBefore) {
  for (const std::string& first : {std::string("junk"), daemon_.connect().info_request()}) {
    const Peer peer = daemon_.connect();
    peer.send(first);
    peer.send("");
    peer.send(peer.info_request());
    EXPECT_FALSE(peer.receive().ended()) << first;
    const Reply end = peer.receive();
    EXPECT_TRUE(end.ended());
    EXPECT_EQ(end.error, 0);
  }
}

TEST_F(Session, DescriptorsFromAPeerNeverEnterTheDaemon) {
  const Peer bystander = daemon_.connect();
  const std::size_t before = daemon_.descriptors_with(bystander);
  for (const std::size_t count : {std::size_t{1}, std::size_t{253}}) {
    const Peer peer = daemon_.connect();
    if (peer.send_with_descriptors(peer.info_request(), std::vector<int>(count, STDERR_FILENO))) {
      EXPECT_EQ(peer.receive().bytes, kUnknownKey) << "kernels before 6.16: cut, hence refused";
    } else {
      EXPECT_EQ(errno, EPERM) << "SO_PASSRIGHTS is off";
      EXPECT_EQ(peer.info().free, 64 * kSlice) << "and the connection is none the worse";
    }
  }
  EXPECT_TRUE(eventually([&] { return count_descriptors(daemon_.pid()) == before; }));
}

TEST_F(Session, APeerThatDoesNotReadIsHeldBackAndOthersNoticeNothing) {
  const Peer mute = daemon_.connect();
  int asked = 0;
  while (::send(mute.socket(), mute.info_request().data(), mute.info_request().size(),
                MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ||
         eventually(
             [&] {
               return ::send(mute.socket(), mute.info_request().data(), mute.info_request().size(),
                             MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
             },
             std::chrono::milliseconds(200))) {
    ASSERT_LT(++asked, 100'000) << "the daemon takes in requests without end";
  }
  EXPECT_EQ(daemon_.connect().info().free, 64 * kSlice);
  // Once it reads, all its replies are there, in order, and the connection goes on.
  for (int i = 0; i < asked; ++i)
    ASSERT_EQ(member(mute.receive().bytes, "free"), 64 * kSlice);
}

TEST_F(Session, WaitingCostsNoProcessorTime) {
  // Hung-up and half-open connections while the daemon prepares a grant must not make it spin.
  const auto cpu = [this] {
    std::istringstream stat(read_file("/proc/" + std::to_string(daemon_.pid()) + "/stat"));
    std::string word;
    long ticks = 0;
    for (int i = 1; i <= 15 && stat >> word; ++i) {
      if (i >= 14) ticks += std::stol(word);
    }
    return ticks;
  };
  const Peer idle = daemon_.connect();
  const Peer held_back = daemon_.connect();
  while (::send(held_back.socket(), held_back.info_request().data(),
                held_back.info_request().size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const long before = cpu();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_LE(cpu() - before, ::sysconf(_SC_CLK_TCK) / 20);
}

TEST_F(Session, ANewKeyIsForNewcomers) {
  const Peer old = daemon_.connect();
  EXPECT_EQ(old.info().free, 64 * kSlice);
  const Peer silent = daemon_.connect();  // has not shown a key yet
  write_file(daemon_.key_file(), "changed\r\nsecond line\n", 0640);
  daemon_.signal(SIGHUP);
  ASSERT_TRUE(
      eventually([&] { return daemon_.log().find("read the key anew") != std::string::npos; }));
  EXPECT_EQ(old.info().free, 64 * kSlice) << "keeps the key that it came in with";
  EXPECT_EQ(silent.ask(silent.info_request()).bytes, kUnknownKey);
  EXPECT_EQ(Peer(daemon_.socket(), "changed").info().free, 64 * kSlice);
  EXPECT_EQ(old.ask(R"({"key": "changed", "op": "info"})").bytes.find("base"), 2U)
      << "may use the new one as well";
  EXPECT_EQ(daemon_.log().find("changed"), std::string::npos) << "the key is not logged";
}

TEST_F(Session, AKeyFileThatWentBadLeavesTheKeyAsItWas) {
  write_file(daemon_.key_file(), "\n", 0640);
  daemon_.signal(SIGHUP);
  ASSERT_TRUE(eventually(
      [&] { return daemon_.log().find("the key stays as it was") != std::string::npos; }));
  EXPECT_EQ(daemon_.connect().info().free, 64 * kSlice);
}

TEST(Sockets, SeveralLendFromOneReservation) {
  const TempDir directory;
  const DaemonProcess daemon(CARVEOUTD, {"--size", "16MiB", "--socket", directory.file("two"),
                                         "--socket", directory.file("three")});
  const Peer one = daemon.connect();
  const Peer two(directory.file("two"));
  const Peer three(directory.file("three"));
  const UniqueFd a = one.alloc(kSlice);
  const UniqueFd b = two.alloc(2 * kSlice);
  EXPECT_EQ(three.info().free, 5 * kSlice);
}

TEST(Refusal, OfTheKernelLowersLargestAndAnswersInTheProtocolsWords) {
  // More than the host has: the accounts say yes, the source says no.
  const DaemonProcess daemon(CARVEOUTD, {"--size", "512GiB"});
  const std::uint64_t slices = 512ULL * 1024 / 2;
  const Peer bystander = daemon.connect();
  EXPECT_EQ(bystander.info().largest, slices * kSlice);
  const std::string refused = daemon.connect().ask(bystander.alloc_request(slices * kSlice)).bytes;
  EXPECT_EQ(refused.find(R"({"ok": false, "error": "not enough free carveout", "base": )"), 0U)
      << refused;
  EXPECT_EQ(member(refused, "free"), slices * kSlice);
  EXPECT_EQ(member(refused, "largest"), (slices - 1) * kSlice);
  EXPECT_TRUE(eventually([&] { return bystander.info().largest == slices * kSlice; }))
      << "for a second";
  const UniqueFd memory = bystander.alloc(kSlice);
  EXPECT_TRUE(is_zeroed_memory(memory.get(), kSlice));
}

}  // namespace
}  // namespace carveout::test
