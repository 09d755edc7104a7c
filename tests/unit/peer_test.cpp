#include "peer.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "base/file.hpp"
#include "unit/helpers.hpp"
#include "wire/channel.hpp"

namespace carveout::daemon {
namespace {

TEST(PeerOf, IsWhoConnected) {
  const auto [ours, theirs] = test::socket_pair();
  const auto peer = peer_of(ours.get());
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->uid, ::geteuid());
  EXPECT_EQ(peer->gid, ::getegid());
  EXPECT_EQ(peer->pid, ::getpid());
}

TEST(PeerOf, NeedsASocket) {
  const test::Pipe pipe = test::make_pipe();
  const auto peer = peer_of(pipe.read_end.get());
  ASSERT_FALSE(peer);
  EXPECT_EQ(peer.error().code, Code::kSystem);
}

TEST(Identify, SaysWhatProcSays) {
  const auto [ours, theirs] = test::socket_pair();
  const Identity identity = identify(ours.get(), ::getpid());
  const auto command = read_text("/proc/self/comm", 64);
  ASSERT_TRUE(command);
  EXPECT_EQ(identity.command + "\n", *command);
  EXPECT_FALSE(identity.command.empty());
}

TEST(Identify, SaysNothingOfAProcessThatWeDoNotSee) {
  const auto [ours, theirs] = test::socket_pair();
  for (const pid_t pid : {0, -1}) {
    const Identity identity = identify(ours.get(), pid);
    EXPECT_EQ(identity.command, "");
    EXPECT_EQ(identity.cgroup, "");
    EXPECT_EQ(identity.unit, "");
  }
}

TEST(Identify, LeavesNoDescriptorOpen) {
  const auto [ours, theirs] = test::socket_pair();
  const std::size_t before = test::open_descriptors();
  (void)identify(ours.get(), ::getpid());
  EXPECT_EQ(test::open_descriptors(), before);
}

// A child that connected and is still there or has ended.
class BorrowerTest : public testing::Test {
 protected:
  void connect_a_child() {
    listener_ = test::listen_at(directory_.path("socket"), SOCK_SEQPACKET, 5);
    stay_ = test::make_pipe();
    child_ = ::fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      stay_.write_end.reset();
      const auto connection = wire::connect_to(directory_.path("socket"), SOCK_SEQPACKET,
                                               wire::Clock::now() + std::chrono::seconds(10));
      (void)test::wait_readable(stay_.read_end.get(), std::chrono::milliseconds(30'000));
      ::_exit(connection ? 0 : 1);
    }
    accepted_ = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  void end_the_child() {
    stay_.write_end.reset();
    int status = -1;
    ASSERT_EQ(::waitpid(child_, &status, 0), child_);
    EXPECT_EQ(status, 0);
  }

  test::TemporaryDirectory directory_;
  UniqueFd listener_, accepted_;
  test::Pipe stay_;
  pid_t child_ = -1;
};

TEST_F(BorrowerTest, IsKnownWhileItLivesAndNotAfterwards) {
  connect_a_child();
  const auto peer = peer_of(accepted_.get());
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->pid, child_);
  EXPECT_NE(identify(accepted_.get(), peer->pid).command, "");
  end_the_child();
  const Identity gone = identify(accepted_.get(), peer->pid);
  EXPECT_EQ(gone.command, "");
  EXPECT_EQ(gone.cgroup, "");
}

TEST_F(BorrowerTest, IsNotTakenForAnotherThatHasItsPidNow) {
  connect_a_child();
  end_the_child();
  const auto [ours, theirs] = test::socket_pair();
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
  int pidfd = -1;
  socklen_t length = sizeof pidfd;
  const UniqueFd known(
      ::getsockopt(accepted_.get(), SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0 ? pidfd : -1);
  if (!known) GTEST_SKIP() << "SO_PEERPIDFD of an ended process needs a newer Linux";
  // As if the number were ours by now: the connection's own process has ended.
  EXPECT_EQ(identify(accepted_.get(), ::getpid()).command, "");
}

}  // namespace
}  // namespace carveout::daemon
