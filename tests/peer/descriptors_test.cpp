// Descriptors that a peer sends: where the kernel refuses them at the sender, and, with that
// protection taken off the daemon's sockets by the test, as on a kernel before 6.16.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>

#include "peer/bystander.hpp"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

namespace carveout::test {
namespace {

using Descriptors = Hostile;

// Switches SO_PASSRIGHTS on in every socket of the daemon: as if the kernel had no such option.
// False where it has none, or does not let us.
bool take_protection_off(pid_t daemon) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, daemon, 0)));
  bool any = false;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(daemon) + "/fd")) {
    const int number = std::stoi(entry.path().filename());
    const UniqueFd theirs(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), number, 0)));
    const int on = 1;
    any |= theirs && ::setsockopt(theirs.get(), SOL_SOCKET, SO_PASSRIGHTS, &on, sizeof on) == 0;
  }
  return any;
}

bool is_protected(const DaemonProcess& daemon) {
  return daemon.status().find("\"refuses_descriptors\":true") != std::string::npos;
}

// A TCP socket with unsent data whose last close takes a second.
UniqueFd lingering_socket(UniqueFd& listener, UniqueFd& other_end) {
  listener = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int little = 4096;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* general = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.get(), general, length) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), general, &length) != 0) {
    return {};
  }
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), general, length) != 0) return {};
  other_end = UniqueFd(::accept(listener.get(), nullptr, nullptr));
  const std::string data(65536, 'x');
  while (::send(socket.get(), data.data(), data.size(), MSG_DONTWAIT) > 0) {
  }
  const linger slow{.l_onoff = 1, .l_linger = 1};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &slow, sizeof slow);
  return socket;
}

TEST_F(Descriptors, RefusedAtTheSender) {
  if (!is_protected(daemon_)) GTEST_SKIP() << "waived: this kernel has no SO_PASSRIGHTS (6.16)";
  for (const std::size_t count : {std::size_t{1}, std::size_t{253}}) {
    const Peer peer = daemon_.connect();
    EXPECT_FALSE(
        peer.send_with_descriptors(peer.info_request(), std::vector<int>(count, STDERR_FILENO)));
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(peer.info().size, 32 * kSlice);
  }
  UniqueFd listener, other_end;
  const UniqueFd slow = lingering_socket(listener, other_end);
  ASSERT_TRUE(slow);
  const Peer peer = daemon_.connect();
  EXPECT_FALSE(peer.send_with_descriptors(peer.info_request(), {slow.get()}));
  EXPECT_EQ(errno, EPERM);
  got("EPERM at the sender; its connection goes on");
}

TEST_F(Descriptors, DroppedUnreadWithoutTheProtection) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{253}}) {
    const Peer peer = daemon_.connect();
    (void)peer.info();  // accepted by now
    if (is_protected(daemon_) && !take_protection_off(daemon_.pid())) {
      GTEST_SKIP() << "waived: the daemon's sockets cannot be had by pidfd_getfd here";
    }
    ASSERT_TRUE(
        peer.send_with_descriptors(peer.info_request(), std::vector<int>(count, STDERR_FILENO)));
    EXPECT_EQ(peer.receive().bytes, kUnknownKey);
    EXPECT_TRUE(peer.receive().ended());
  }
  got("missing or unknown key, then the end");
}

TEST_F(Descriptors, OneThatIsSlowToCloseWithoutTheProtection) {
  const Peer peer = daemon_.connect();
  (void)peer.info();
  if (is_protected(daemon_) && !take_protection_off(daemon_.pid())) {
    GTEST_SKIP() << "waived: the daemon's sockets cannot be had by pidfd_getfd here";
  }
  UniqueFd listener, other_end;
  UniqueFd slow = lingering_socket(listener, other_end);
  ASSERT_TRUE(slow);
  ASSERT_TRUE(peer.send_with_descriptors(peer.info_request(), {slow.get()}));
  slow.reset();  // the one in flight is the last
  EXPECT_EQ(peer.receive().bytes, kUnknownKey);
  EXPECT_TRUE(peer.receive().ended());
  got("missing or unknown key; the daemon may have waited its second (docs/threat-model.md)");
}

}  // namespace
}  // namespace carveout::test
