// The client's side: waits, but never longer than it said; owns every descriptor that arrives.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "unit/helpers.hpp"
#include "wire/channel.hpp"

namespace carveout::wire {
namespace {

using std::chrono::milliseconds;

// Far more than a wait of a few milliseconds takes on a busy machine.
constexpr milliseconds kBound{5000};

Clock::time_point soon() {
  return Clock::now() + milliseconds(50);
}
Clock::time_point far_off() {
  return Clock::now() + std::chrono::seconds(20);
}

class ChannelClient : public testing::Test {
 protected:
  ChannelClient() { std::tie(ours_, theirs_) = test::socket_pair(); }

  void send_with(std::string_view bytes, const std::vector<int>& descriptors) {
    std::string copy(bytes);
    iovec part{copy.data(), copy.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const std::size_t size = descriptors.size() * sizeof(int);
    std::vector<char> control(CMSG_SPACE(size));
    if (!descriptors.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(size);
      std::memcpy(CMSG_DATA(header), descriptors.data(), size);
    }
    ASSERT_GE(::sendmsg(theirs_.get(), &message, MSG_NOSIGNAL), 0) << std::strerror(errno);
  }

  UniqueFd ours_, theirs_;
};

TEST_F(ChannelClient, OwnsEveryDescriptorThatArrives) {
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (const std::size_t count : {0U, 1U, 2U, 253U}) {
    send_with("reply", std::vector<int>(count, file.get()));
    const std::size_t before = test::open_descriptors();
    {
      const auto datagram = receive_by(ours_.get(), 64, far_off());
      ASSERT_TRUE(datagram);
      EXPECT_EQ(datagram->bytes, "reply");
      EXPECT_EQ(datagram->descriptors.size(), count);
      EXPECT_EQ(test::open_descriptors(), before + count);
      for (const UniqueFd& descriptor : datagram->descriptors) {
        EXPECT_TRUE(test::is_close_on_exec(descriptor.get()));
      }
    }
    EXPECT_EQ(test::open_descriptors(), before);
  }
}

TEST_F(ChannelClient, ClosesWhatCameWithAReplyThatItRefuses) {
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::size_t before = test::open_descriptors();
  send_with(std::string(65, 'x'), {file.get(), file.get()});
  const auto cut = receive_by(ours_.get(), 64, far_off());
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, Code::kProtocol);
  EXPECT_EQ(test::open_descriptors(), before);
  send_with("", {file.get()});
  const auto empty = receive_by(ours_.get(), 64, far_off());
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, Code::kClosed);
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST_F(ChannelClient, RefusesAReplyWhoseDescriptorsDidNotAllFit) {
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  send_with("reply", std::vector<int>(10, file.get()));
  const std::size_t before = test::open_descriptors();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit low = limit;
  // Room for a few more, and no others: what is open already stays.
  low.rlim_cur = static_cast<rlim_t>(UniqueFd(::dup(0)).get()) + 3;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto datagram = receive_by(ours_.get(), 64, far_off());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_FALSE(datagram);
  EXPECT_EQ(datagram.error().number, EMFILE) << "not the lender's fault";
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST_F(ChannelClient, ReceivesUpToItsLimit) {
  send_with(std::string(64, 'x'), {});
  const auto datagram = receive_by(ours_.get(), 64, far_off());
  ASSERT_TRUE(datagram);
  EXPECT_EQ(datagram->bytes, std::string(64, 'x'));
}

TEST_F(ChannelClient, KnowsThatTheLenderIsGone) {
  theirs_.reset();
  const auto received = receive_by(ours_.get(), 64, far_off());
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code, Code::kClosed);
  const auto sent = send_by(ours_.get(), "request", far_off());
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Code::kClosed);
}

TEST_F(ChannelClient, KnowsThatTheLenderLeftWithoutReading) {
  ASSERT_TRUE(send_by(ours_.get(), "request", far_off()));
  theirs_.reset();
  const auto received = receive_by(ours_.get(), 64, far_off());
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code, Code::kClosed);
}

TEST_F(ChannelClient, ReadsWhatWasSentBeforeTheLenderLeft) {
  send_with("refused", {});
  theirs_.reset();
  const auto received = receive_by(ours_.get(), 64, far_off());
  ASSERT_TRUE(received);
  EXPECT_EQ(received->bytes, "refused");
}

TEST_F(ChannelClient, WaitsForTheReply) {
  std::thread lender([this] {
    std::this_thread::sleep_for(milliseconds(50));
    send_with("late", {});
  });
  const auto received = receive_by(ours_.get(), 64, far_off());
  lender.join();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->bytes, "late");
}

TEST_F(ChannelClient, StopsWaitingForAReplyInTime) {
  const auto took = test::time_of([this] {
    const auto received = receive_by(ours_.get(), 64, soon());
    ASSERT_FALSE(received);
    EXPECT_EQ(received.error().code, Code::kTimedOut);
  });
  EXPECT_GE(took, milliseconds(49));
  EXPECT_LT(took, kBound);
}

TEST_F(ChannelClient, StopsWaitingForRoomInTime) {
  while (send(ours_.get(), "request", -1) == Transfer::kDone) {
  }
  const auto took = test::time_of([this] {
    const auto sent = send_by(ours_.get(), "request", soon());
    ASSERT_FALSE(sent);
    EXPECT_EQ(sent.error().code, Code::kTimedOut);
  });
  EXPECT_GE(took, milliseconds(49));
  EXPECT_LT(took, kBound);
}

TEST_F(ChannelClient, DoesWhatNeedsNoWaitEvenWhenTheTimeIsOver) {
  const auto over = Clock::now() - std::chrono::seconds(1);
  EXPECT_TRUE(send_by(ours_.get(), "request", over));
  send_with("reply", {});
  EXPECT_TRUE(receive_by(ours_.get(), 64, over));
  EXPECT_EQ(receive_by(ours_.get(), 64, over).error().code, Code::kTimedOut);
}

TEST_F(ChannelClient, IsNotKeptWaitingBySignals) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGALRM, &action, &before), 0);
  const itimerval often{{0, 2000}, {0, 2000}};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  const auto took = test::time_of(
      [this] { EXPECT_EQ(receive_by(ours_.get(), 64, soon()).error().code, Code::kTimedOut); });
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  EXPECT_GE(took, milliseconds(49));
  EXPECT_LT(took, kBound);
}

class ConnectTo : public testing::Test {
 protected:
  test::TemporaryDirectory directory_;
  std::string path_ = directory_.path("socket");
};

TEST_F(ConnectTo, ConnectsToEitherType) {
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    const UniqueFd listener = test::listen_at(path_, type, 5);
    const auto socket = connect_to(path_, type, far_off());
    ASSERT_TRUE(socket) << socket.error().describe();
    EXPECT_TRUE(test::is_close_on_exec(socket->get()));
    const UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(send_by(socket->get(), "hello", far_off()));
    std::string got(5, '\0');
    EXPECT_EQ(::recv(accepted.get(), got.data(), got.size(), 0), 5);
    EXPECT_EQ(got, "hello");
    ::unlink(path_.c_str());
  }
}

TEST_F(ConnectTo, NamesTheErrnoOfWhatItCannotConnectTo) {
  const std::size_t before = test::open_descriptors();
  const auto expect = [](const std::string& path, int number) {
    const auto socket = connect_to(path, SOCK_SEQPACKET, far_off());
    ASSERT_FALSE(socket);
    EXPECT_EQ(socket.error().code, Code::kSystem);
    EXPECT_EQ(socket.error().number, number);
    EXPECT_NE(socket.error().context.find(path), std::string::npos);
  };
  expect(path_, ENOENT);
  expect(directory_.path("no/socket"), ENOENT);
  expect(directory_.file("file", ""), ECONNREFUSED);
  {
    const UniqueFd stream = test::listen_at(path_, SOCK_STREAM, 5);
    expect(path_, EPROTOTYPE);
  }
  expect(path_, ECONNREFUSED);  // its file outlives the listener
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST_F(ConnectTo, RefusesAPathThatFitsNoAddress) {
  const auto socket = connect_to(directory_.path(std::string(200, 'x')), SOCK_SEQPACKET, far_off());
  ASSERT_FALSE(socket);
  EXPECT_EQ(socket.error().code, Code::kInvalid);
}

// Connects until the queue is full.
std::vector<UniqueFd> fill(const std::string& path) {
  std::vector<UniqueFd> waiting;
  for (;;) {
    auto socket = connect_to(path, SOCK_SEQPACKET, Clock::now() - milliseconds(1));
    if (!socket) return waiting;
    waiting.push_back(*std::move(socket));
  }
}

TEST_F(ConnectTo, GivesUpOnAFullQueueInTime) {
  const UniqueFd listener = test::listen_at(path_, SOCK_SEQPACKET, 1);
  const std::vector<UniqueFd> waiting = fill(path_);
  ASSERT_FALSE(waiting.empty());
  const std::size_t before = test::open_descriptors();
  const auto took = test::time_of([this] {
    const auto socket = connect_to(path_, SOCK_SEQPACKET, soon());
    ASSERT_FALSE(socket);
    EXPECT_EQ(socket.error().code, Code::kTimedOut);
  });
  EXPECT_GE(took, milliseconds(49));
  EXPECT_LT(took, kBound);
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST_F(ConnectTo, GetsInWhenTheQueueMovesOn) {
  const UniqueFd listener = test::listen_at(path_, SOCK_SEQPACKET, 1);
  const std::vector<UniqueFd> waiting = fill(path_);
  std::thread acceptor([&listener] {
    std::this_thread::sleep_for(milliseconds(50));
    const UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(accepted);
  });
  const auto socket = connect_to(path_, SOCK_SEQPACKET, far_off());
  acceptor.join();
  EXPECT_TRUE(socket) << socket.error().describe();
}

}  // namespace
}  // namespace carveout::wire
