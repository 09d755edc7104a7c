// Listening on a socket that the service manager has made.

#include "listener.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "unit/helpers.hpp"
#include "wire/channel.hpp"

namespace carveout::daemon {
namespace {

using testing::HasSubstr;

class TakeOver : public testing::Test {
 protected:
  [[nodiscard]] Result<std::unique_ptr<Listener>> take(UniqueFd socket) {
    return Listener::take_over(context_, 1, std::move(socket),
                               [this](UniqueFd accepted, const Peer& peer) {
                                 accepted_.emplace_back(std::move(accepted), peer);
                               });
  }
  [[nodiscard]] static UniqueFd connect_to(const std::string& path) {
    auto socket =
        wire::connect_to(path, SOCK_SEQPACKET, wire::Clock::now() + std::chrono::seconds(10));
    EXPECT_TRUE(socket) << socket.error().describe();
    return socket ? *std::move(socket) : UniqueFd();
  }
  void expect_unfit(UniqueFd socket, const char* what) {
    const auto taken = take(std::move(socket));
    ASSERT_FALSE(taken) << what;
    EXPECT_EQ(taken.error().code, Code::kInvalid) << what;
    EXPECT_THAT(taken.error().describe(), HasSubstr("ListenSequentialPacket=")) << what;
  }

  test::TemporaryDirectory directory_;
  const std::string path_ = directory_.path("lend.sock");
  std::unique_ptr<EventLoop> loop_ = *EventLoop::create();
  PollSet poll_set_ = *PollSet::create();
  Counters counters_;
  ListenerContext context_{.loop = *loop_,
                           .poll_set = poll_set_,
                           .counters = counters_,
                           .reserve = open_reserve(),
                           .make_room = [] { return false; }};
  std::vector<std::pair<UniqueFd, Peer>> accepted_;
};

TEST_F(TakeOver, AcceptsWhoeverConnects) {
  const auto listener = take(test::listen_at(path_, SOCK_SEQPACKET, 10));
  ASSERT_TRUE(listener) << listener.error().describe();
  EXPECT_EQ((*listener)->path(), path_);
  EXPECT_TRUE((*listener)->in_group());
  const UniqueFd one = connect_to(path_);
  const UniqueFd two = connect_to(path_);
  poll_set_.serve();
  ASSERT_EQ(accepted_.size(), 2U);
  EXPECT_EQ(accepted_[0].second.pid, ::getpid());
  EXPECT_EQ(accepted_[0].second.uid, ::getuid());
  ASSERT_EQ(::send(two.get(), "x", 1, 0), 1);
  EXPECT_TRUE(test::wait_readable(accepted_[1].first.get(), std::chrono::seconds(10)));
}

TEST_F(TakeOver, NeverBlocksOnASocketThatWouldBlock) {
  UniqueFd socket = test::listen_at(path_, SOCK_SEQPACKET, 10);
  const int flags = ::fcntl(socket.get(), F_GETFL);
  ASSERT_EQ(flags & O_NONBLOCK, 0) << "as the service manager passes it";
  // In a child, so that a wait for a second connection ends.
  EXPECT_EQ(test::run_in_child([&] {
              const auto listener = take(std::move(socket));
              if (!listener) return 1;
              const UniqueFd one = connect_to(path_);
              poll_set_.serve();
              return accepted_.size() == 1 ? 0 : 2;
            }),
            0);
}

TEST_F(TakeOver, TheManagersFileStays) {
  struct stat before {};
  {
    const auto listener = take(test::listen_at(path_, SOCK_SEQPACKET, 10));
    ASSERT_TRUE(listener);
    ASSERT_EQ(::lstat(path_.c_str(), &before), 0);
  }
  struct stat after {};
  ASSERT_EQ(::lstat(path_.c_str(), &after), 0);
  EXPECT_EQ(after.st_ino, before.st_ino);
  EXPECT_EQ(after.st_mode, before.st_mode);
}

TEST_F(TakeOver, RefusesWhatIsNoSuchSocket) {
  expect_unfit(test::listen_at(directory_.path("stream"), SOCK_STREAM, 10), "a stream");
  expect_unfit(test::socket_pair().first, "a connection");
  expect_unfit(test::make_pipe().read_end, "a pipe");
  expect_unfit(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), "a device");
  expect_unfit(UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), "not listening");
  UniqueFd bound(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto address = wire::socket_address(directory_.path("bound"));
  ASSERT_EQ(::bind(bound.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address), 0);
  expect_unfit(std::move(bound), "bound and not listening");
  expect_unfit(UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), "not AF_UNIX");
  EXPECT_TRUE(accepted_.empty());
}

TEST_F(TakeOver, RefusesASocketWithoutAFile) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = cat("carveout-test-", ::getpid());
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(socket.get(), 10), 0);
  expect_unfit(std::move(socket), "abstract");
}

// The kernel takes a path that fills its place, without a NUL behind it.
TEST_F(TakeOver, TakesTheLongestPath) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string longest = directory_.path("s");
  longest.resize(sizeof address.sun_path, 's');
  std::memcpy(address.sun_path, longest.data(), longest.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(socket.get(), 10), 0);
  const auto listener = take(std::move(socket));
  ASSERT_TRUE(listener) << listener.error().describe();
  EXPECT_EQ((*listener)->path(), longest);
}

}  // namespace
}  // namespace carveout::daemon
