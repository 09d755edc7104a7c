// Floods, crowds, peers that do not read and peers that die.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <system_error>

#include "peer/bystander.hpp"

namespace carveout::test {
namespace {

#ifdef CARVEOUT_SANITIZED
constexpr int kFlood = 50'000;
#else
constexpr int kFlood = 1'000'000;
#endif

using Crowd = Hostile;

// A child that does `deed` and then waits to be killed.
template <typename Deed>
pid_t child(const Deed& deed) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    deed();
    ::pause();
    ::_exit(0);
  }
  return pid;
}

void kill_and_wait(pid_t pid) {
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

TEST_F(Crowd, NeverReadsWhileAskingForInfo) {
  const Peer mute = daemon_.connect();
  const std::string request = mute.info_request();
  int asked = 0;
  const auto can_send = [&] {
    return ::send(mute.socket(), request.data(), request.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
  };
  while (can_send() || eventually(can_send, std::chrono::milliseconds(200))) {
    ASSERT_LT(++asked, 100'000) << "the daemon takes in requests without end";
  }
  got("held back after " + std::to_string(asked) + " requests");
}

TEST_F(Crowd, NeverReadsWhileBorrowing) {
  std::vector<Peer> mutes;
  for (int i = 0; i < 40; ++i) {
    mutes.push_back(daemon_.connect());
    for (int j = 0; j < 2; ++j)
      mutes.back().send(mutes.back().alloc_request(kSlice));
  }
  EXPECT_TRUE(eventually([&] { return calm_.info().free == 0; }));
  got("32 grants that it never reads; all come back with its connections");
}

TEST_F(Crowd, TwoThousandAtOnce) {
  std::vector<Peer> crowd;
  for (int i = 0; i < 2000; ++i)
    crowd.push_back(daemon_.connect());
  for (const Peer& peer : crowd)
    peer.send(peer.info_request());
  for (const Peer& peer : crowd) {
    ASSERT_EQ(member(peer.receive().bytes, "size"), 32 * kSlice);
  }
  got("info, each of them");
}

TEST_F(Crowd, AMillionRequestsFromOne) {
  const Peer flooder = daemon_.connect();
  const std::string request = flooder.info_request();
  constexpr int kDepth = 50;
  for (int i = 0; i < kFlood; i += kDepth) {
    for (int j = 0; j < kDepth; ++j)
      ASSERT_TRUE(flooder.send(request));
    for (int j = 0; j < kDepth; ++j)
      ASSERT_FALSE(flooder.receive().ended());
  }
  got("info, " + std::to_string(kFlood) + " times");
}

TEST_F(Crowd, RefusedOverAndOver) {
  for (int i = 0; i < 5000; ++i) {
    const Peer peer = daemon_.connect();
    ASSERT_EQ(peer.ask("junk").bytes, kUnknownKey);
  }
  got("missing or unknown key, then the end, 5,000 times");
}

TEST_F(Crowd, AThousandAsksAtOnceWithARefusalInTheMiddle) {
  // 1,000 on one connection; the reservation has room for 32.
  const Peer greedy = daemon_.connect();
  const pid_t sender = child([&] {
    for (int i = 0; i < 1000 && greedy.send(greedy.alloc_request(1)); ++i) {
    }
  });
  for (int i = 0; i < 32; ++i) {
    const Reply reply = greedy.receive();
    ASSERT_EQ(reply.bytes, R"({"ok": true, "base": 10739515392, "size": 2097152})");
    ASSERT_EQ(reply.descriptors.size(), 1U);
  }
  const Reply refused = greedy.receive();
  EXPECT_EQ(member(refused.bytes, "free"), 0U) << refused.bytes;
  EXPECT_NE(refused.bytes.find("not enough free carveout"), std::string::npos);
  const Reply end = greedy.receive();
  EXPECT_TRUE(end.ended());
  EXPECT_EQ(end.error, 0) << "an end, not a reset";
  kill_and_wait(sender);
  got("32 grants, the refusal, the end");
}

TEST_F(Crowd, KilledBetweenRequestAndReply) {
  for (int i = 0; i < 50; ++i) {
    kill_and_wait(child([&] {
      const Peer peer = daemon_.connect();
      peer.send(peer.alloc_request(16 * kSlice));
      ::kill(::getpid(), SIGKILL);
    }));
  }
  got("nothing; nothing of it is left");
}

TEST_F(Crowd, KilledWhileHolding) {
  for (int i = 0; i < 20; ++i) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd out(ends[0]);
    const UniqueFd in(ends[1]);
    const pid_t holder = child([&] {
      const Peer peer = daemon_.connect();
      const UniqueFd memory = peer.alloc(8 * kSlice);
      [[maybe_unused]] const auto told = ::write(in.get(), "x", 1);
      ::pause();
    });
    char byte = 0;
    ASSERT_EQ(::read(out.get(), &byte, 1), 1);
    EXPECT_EQ(calm_.info().free, 24 * kSlice);
    kill_and_wait(holder);
    EXPECT_EQ(calm_.info().free, 32 * kSlice) << "at once";
  }
  got("its grant, back at once");
}

class FewDescriptors : public Hostile {
 protected:
  FewDescriptors() : Hostile({"--size", "64MiB"}, {"prlimit", "--nofile=64:64"}) {}
};

TEST_F(FewDescriptors, AreNotUsedUpByACrowd) {
  std::vector<Peer> crowd;
  int closed = 0;
  for (int i = 0; i < 200; ++i) {
    crowd.push_back(daemon_.connect());
    // The one that was let in before the limit of connections, or the end.
    if (!crowd.back().send(crowd.back().info_request()) || crowd.back().receive().ended()) ++closed;
  }
  EXPECT_GT(closed, 100);
  EXPECT_LE(count_descriptors(daemon_.pid()), 64U);
  // There is still enough for a borrower that was there before.
  EXPECT_TRUE(calm_.alloc(kSlice));
  // A newcomer gets in once somebody has been silent for a second.
  EXPECT_TRUE(eventually([&] {
    const Peer newcomer = daemon_.connect();
    return newcomer.send(newcomer.info_request()) && !newcomer.receive().ended();
  }));
  // What it borrowed goes back with its connection; the row is about the crowd.
  crowd.clear();
  calm_ = daemon_.connect();
  got("the end, " + std::to_string(closed) + " of 200 times");
}

}  // namespace
}  // namespace carveout::test
