// The daemon's side: one datagram, never a wait, never a stranger's descriptor.

#include "wire/channel.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "unit/helpers.hpp"

namespace carveout::wire {
namespace {

class Channel : public testing::Test {
 protected:
  Channel() { std::tie(ours_, theirs_) = test::socket_pair(); }

  Transfer receive_some() { return receive(ours_.get(), buffer_, length_); }
  [[nodiscard]] std::string_view received() const { return {buffer_.data(), length_}; }

  // As a stranger sends, without our own code.
  [[nodiscard]] bool send_raw(std::string_view bytes, const std::vector<int>& descriptors) const {
    std::string copy(bytes);
    iovec part{copy.data(), copy.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
    if (!descriptors.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
    }
    return ::sendmsg(theirs_.get(), &message, MSG_NOSIGNAL) >= 0;
  }

  UniqueFd ours_, theirs_;
  std::array<char, 64> buffer_{};
  std::size_t length_ = 0;
};

TEST_F(Channel, ReceivesOneDatagramAtATime) {
  ASSERT_TRUE(send_raw("first", {}));
  ASSERT_TRUE(send_raw("second one", {}));
  EXPECT_EQ(receive_some(), Transfer::kDone);
  EXPECT_EQ(received(), "first");
  EXPECT_EQ(receive_some(), Transfer::kDone);
  EXPECT_EQ(received(), "second one");
}

TEST_F(Channel, ReceivesLaterWhatIsNotThere) {
  EXPECT_EQ(receive_some(), Transfer::kLater);
  ASSERT_TRUE(send_raw("x", {}));
  EXPECT_EQ(receive_some(), Transfer::kDone);
  EXPECT_EQ(receive_some(), Transfer::kLater);
}

TEST_F(Channel, TakesACloseForTheEnd) {
  ASSERT_TRUE(send_raw("last words", {}));
  theirs_.reset();
  EXPECT_EQ(receive_some(), Transfer::kDone);
  EXPECT_EQ(received(), "last words");
  EXPECT_EQ(receive_some(), Transfer::kEnd);
}

TEST_F(Channel, TakesAHalfCloseForTheEnd) {
  ASSERT_EQ(::shutdown(theirs_.get(), SHUT_WR), 0);
  EXPECT_EQ(receive_some(), Transfer::kEnd);
}

TEST_F(Channel, TakesAnEmptyDatagramForTheEnd) {
  ASSERT_TRUE(send_raw("", {}));
  EXPECT_EQ(receive_some(), Transfer::kEnd);
}

TEST_F(Channel, TakesWhatFillsTheBufferAndNotOneByteMore) {
  ASSERT_TRUE(send_raw(std::string(buffer_.size(), 'x'), {}));
  ASSERT_TRUE(send_raw(std::string(buffer_.size() + 1, 'y'), {}));
  ASSERT_TRUE(send_raw("after", {}));
  EXPECT_EQ(receive_some(), Transfer::kDone);
  EXPECT_EQ(length_, buffer_.size());
  EXPECT_EQ(receive_some(), Transfer::kMalformed);
  // The rest of the long one is gone with it.
  EXPECT_EQ(receive_some(), Transfer::kDone);
  EXPECT_EQ(received(), "after");
}

TEST_F(Channel, NeverTakesAStrangersDescriptors) {
  test::Pipe pipe = test::make_pipe();
  for (const std::size_t count : {1U, 2U, 253U}) {
    ASSERT_TRUE(send_raw("with", std::vector<int>(count, pipe.write_end.get())));
  }
  ASSERT_TRUE(send_raw("", {pipe.write_end.get()}));
  ASSERT_TRUE(send_raw(std::string(100, 'x'), {pipe.write_end.get()}));
  ASSERT_TRUE(send_raw("after", {}));
  pipe.write_end.reset();
  const std::size_t before = test::open_descriptors();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(receive_some(), Transfer::kMalformed) << i;
    EXPECT_EQ(test::open_descriptors(), before) << i;
  }
  EXPECT_EQ(receive_some(), Transfer::kDone);
  EXPECT_EQ(received(), "after");
  // Nobody has the pipe's other end any more.
  EXPECT_EQ(test::read_all(pipe.read_end.get()), "");
}

TEST_F(Channel, ReceivingFromWhatIsNoConnectionIsBroken) {
  const UniqueFd lonely(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(receive(lonely.get(), buffer_, length_), Transfer::kBroken);
  EXPECT_EQ(receive(-1, buffer_, length_), Transfer::kBroken);
}

TEST_F(Channel, APeerThatLeftUnreadRepliesBehindIsBroken) {
  ASSERT_EQ(send(ours_.get(), "unread", -1), Transfer::kDone);
  theirs_.reset();
  EXPECT_EQ(receive_some(), Transfer::kBroken);
}

TEST_F(Channel, SendsADatagram) {
  EXPECT_EQ(send(ours_.get(), "hello", -1), Transfer::kDone);
  std::array<char, 64> got{};
  EXPECT_EQ(::recv(theirs_.get(), got.data(), got.size(), 0), 5);
  EXPECT_STREQ(got.data(), "hello");
}

TEST_F(Channel, SendsADescriptorAlongside) {
  test::Pipe pipe = test::make_pipe();
  EXPECT_EQ(send(ours_.get(), "hello", pipe.write_end.get()), Transfer::kDone);
  EXPECT_TRUE(test::is_open(pipe.write_end.get()));
  pipe.write_end.reset();
  auto datagram = receive_by(theirs_.get(), 64, Clock::now());
  ASSERT_TRUE(datagram);
  EXPECT_EQ(datagram->bytes, "hello");
  ASSERT_EQ(datagram->descriptors.size(), 1U);
  EXPECT_EQ(::write(datagram->descriptors.front().get(), "x", 1), 1);
  datagram->descriptors.clear();
  EXPECT_EQ(test::read_all(pipe.read_end.get()), "x");
}

TEST_F(Channel, SendsLaterWhatThePeerHasNoRoomFor) {
  Transfer outcome = Transfer::kDone;
  int sent = 0;
  while ((outcome = send(ours_.get(), "a reply", -1)) == Transfer::kDone && sent < 1'000'000)
    ++sent;
  EXPECT_EQ(outcome, Transfer::kLater);
  EXPECT_GT(sent, 0);
  std::array<char, 64> got{};
  for (int i = 0; i < sent; ++i) {
    ASSERT_EQ(::recv(theirs_.get(), got.data(), got.size(), 0), 7);
  }
  EXPECT_EQ(send(ours_.get(), "a reply", -1), Transfer::kDone);
}

TEST_F(Channel, SendingToNobodyIsBrokenAndRaisesNoSignal) {
  // Of the two types only a stream raises it; carveoutctl talks over one.
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    auto [ours, theirs] = test::socket_pair(type);
    theirs.reset();
    EXPECT_EQ(send(ours.get(), "hello", -1), Transfer::kBroken) << type;
    const test::Pipe pipe = test::make_pipe();
    EXPECT_EQ(send(ours.get(), "hello", pipe.write_end.get()), Transfer::kBroken) << type;
  }
  std::signal(SIGPIPE, before);
}

TEST_F(Channel, SendingWhatIsNoDescriptorIsBroken) {
  int number = -1;
  {
    const test::Pipe pipe = test::make_pipe();
    number = pipe.read_end.get();
  }
  EXPECT_EQ(send(ours_.get(), "hello", number), Transfer::kBroken);
}

// The kernel counts what a user has in flight against RLIMIT_NOFILE, and exempts the mighty: the
// child becomes somebody else if it can.
TEST_F(Channel, TellsThatTooManyDescriptorsAreInFlight) {
  constexpr int kNoPrivilege = 77;
  const int code = test::run_in_child([this] {
    rlimit limit{.rlim_cur = 40, .rlim_max = 40};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return kNoPrivilege;
    if (::geteuid() == 0 && ::setresuid(65533, 65533, 65533) != 0) return kNoPrivilege;
    const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    for (int i = 0; i < 200; ++i) {
      const Transfer outcome = send(ours_.get(), "x", file.get());
      if (outcome == Transfer::kTooMany) return i > 0 ? 0 : 2;
      if (outcome != Transfer::kDone) return 3;
    }
    return 4;
  });
  if (code == kNoPrivilege) GTEST_SKIP() << "cannot become a user without privileges";
  EXPECT_EQ(code, 0);
}

TEST_F(Channel, RefusesDescriptorsAtTheSenderWhereTheKernelCan) {
  if (!refuse_descriptors(ours_.get())) GTEST_SKIP() << "SO_PASSRIGHTS needs Linux 6.16";
  const test::Pipe pipe = test::make_pipe();
  EXPECT_FALSE(send_raw("with", {pipe.read_end.get()}));
  EXPECT_EQ(errno, EPERM);
  ASSERT_TRUE(send_raw("without", {}));
  EXPECT_EQ(receive_some(), Transfer::kDone);
  // Only that way: replies still carry theirs.
  EXPECT_EQ(send(ours_.get(), "reply", pipe.read_end.get()), Transfer::kDone);
}

TEST(RefuseDescriptors, SaysNoOfWhatIsNoSocket) {
  const test::Pipe pipe = test::make_pipe();
  EXPECT_FALSE(refuse_descriptors(pipe.read_end.get()));
}

TEST(SocketAddress, HoldsUpTo107Bytes) {
  const auto longest = socket_address("/" + std::string(106, 'x'));
  ASSERT_TRUE(longest);
  EXPECT_EQ(longest->sun_family, AF_UNIX);
  EXPECT_EQ(std::string(longest->sun_path), "/" + std::string(106, 'x'));
  for (const std::string& path :
       {std::string(), "/" + std::string(107, 'x'), std::string(5000, 'x')}) {
    const auto address = socket_address(path);
    ASSERT_FALSE(address);
    EXPECT_EQ(address.error().code, Code::kInvalid);
    EXPECT_LT(address.error().describe().size(), 400U);
  }
}

}  // namespace
}  // namespace carveout::wire
