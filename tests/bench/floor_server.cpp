// The least that a lender could do: epoll, constant replies, no key, no accounts, no log. For
// "alloc" the same memory as carveoutd's memfd source: committed, sealed, re-opened for lending.
// What carveoutd costs is measured against this.
// Usage: floor_server SOCKET

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // include/uapi/linux/memfd.h, Linux 6.3
#endif

namespace {

constexpr off_t kSlice = 2097152;
constexpr std::string_view kInfo =
    R"({"base": 10739515392, "size": 2145386496, "free": 2145386496, "largest": 2145386496})";
constexpr std::string_view kGrant = R"({"ok": true, "base": 10739515392, "size": 2097152})";

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::_Exit(1);
}

int make_slice() {
  const int file = ::memfd_create("floor", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (file < 0 || ::ftruncate(file, kSlice) != 0 || ::fallocate(file, 0, 0, kSlice) != 0 ||
      ::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    fail("slice");
  }
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", file);
  const int lent = ::open(path.data(), O_RDWR | O_CLOEXEC);
  if (lent < 0) fail("open");
  ::close(file);
  return lent;
}

void answer(int socket, std::string_view reply, int descriptor) {
  iovec part{const_cast<char*>(reply.data()), reply.size()};  // NOLINT: only read
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  [[maybe_unused]] const ssize_t sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void serve(int epoll, int socket) {
  std::array<char, 4096> request;  // NOLINT(cppcoreguidelines-pro-type-member-init): recv fills it
  const ssize_t got = ::recv(socket, request.data(), request.size(), MSG_DONTWAIT);
  if (got <= 0) {
    ::epoll_ctl(epoll, EPOLL_CTL_DEL, socket, nullptr);
    ::close(socket);
    return;
  }
  const std::string_view text(request.data(), static_cast<std::size_t>(got));
  if (text.find("alloc") == std::string_view::npos) return answer(socket, kInfo, -1);
  const int slice = make_slice();
  answer(socket, kGrant, slice);
  ::close(slice);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: floor_server SOCKET\n");
    return 2;
  }
  std::signal(SIGTERM, [](int) { std::_Exit(0); });
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, argv[1], sizeof address.sun_path - 1);
  const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener, SOMAXCONN) != 0) {
    fail(argv[1]);
  }
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  const auto watch = [epoll](int socket) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = socket;
    if (::epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) != 0) fail("epoll_ctl");
  };
  watch(listener);
  std::array<epoll_event, 64> ready{};
  for (;;) {
    const int count = ::epoll_wait(epoll, ready.data(), static_cast<int>(ready.size()), -1);
    for (int i = 0; i < count; ++i) {
      const int socket = ready[static_cast<std::size_t>(i)].data.fd;
      if (socket != listener) {
        serve(epoll, socket);
        continue;
      }
      const int accepted = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (accepted >= 0) watch(accepted);
    }
  }
}
