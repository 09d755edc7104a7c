#include "wire/channel.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/text.hpp"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83  // include/uapi/asm-generic/socket.h, Linux 6.16
#endif

namespace carveout::wire {
namespace {

// The kernel's own limit of descriptors in one message (SCM_MAX_FD, include/net/scm.h): a buffer
// for all of them leaves none behind in the kernel.
constexpr std::size_t kMostDescriptors = 253;

// Waits until `events` (or an error or hang-up) shows on the socket.
Result<void> wait_for(int socket, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd item{socket, events, 0};
    const auto bounded = std::clamp<decltype(left)>(left, 0, std::numeric_limits<int>::max());
    const int ready = ::poll(&item, 1, static_cast<int>(bounded));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return system_error(errno, "lending socket", "poll failed");
    if (ready == 0 && left <= 0) {
      return Error{Code::kTimedOut, 0, "the lender", "did not answer within the time limit"};
    }
  }
}

bool is_hang_up(int number) {
  return number == EPIPE || number == ECONNRESET || number == ENOTCONN;
}

Error hang_up() {
  return Error{Code::kClosed, 0, "the lender", "closed the connection"};
}

// What was sent with it did not all arrive; what did is still open.
Error cut_short(int socket) {
  const UniqueFd one(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
  if (!one && errno == EMFILE) {
    return system_error(EMFILE, "the lender's reply",
                        "this process has no descriptor left for the memory: raise its limit "
                        "(ulimit -n)");
  }
  return Error{Code::kProtocol, 0, "the lender's reply", "was cut short"};
}

// Takes every descriptor out of a received message, before anything else is looked at. `adopted`
// has room for all: between the kernel's giving them and their having an owner nothing may fail.
void adopt_descriptors(msghdr& message, std::vector<UniqueFd>& adopted) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof descriptor);
      adopted.emplace_back(descriptor);
    }
  }
}

}  // namespace

Result<sockaddr_un> socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Error{Code::kInvalid, 0, cat("socket path \"", printable(path, 200), "\""),
                 cat("must be 1 to ", sizeof address.sun_path - 1, " bytes long")};
  }
  std::copy(path.begin(), path.end(), std::begin(address.sun_path));
  return address;
}

Transfer receive(int socket, std::span<char> buffer, std::size_t& length) {
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ssize_t got = -1;
  do {
    got = ::recvmsg(socket, &message, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    return errno == EAGAIN || errno == EWOULDBLOCK ? Transfer::kLater : Transfer::kBroken;
  }
  length = static_cast<std::size_t>(got);
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return Transfer::kMalformed;
  return got == 0 ? Transfer::kEnd : Transfer::kDone;
}

namespace {

// sendmsg() with the descriptor alongside.
ssize_t send_with(int socket, std::string_view datagram, int descriptor) {
  iovec part{const_cast<char*>(datagram.data()), datagram.size()};  // NOLINT: sendmsg only reads
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

Transfer send(int socket, std::string_view datagram, int descriptor) {
  ssize_t sent = -1;
  do {
    sent = descriptor >= 0
               ? send_with(socket, datagram, descriptor)
               : ::send(socket, datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return Transfer::kDone;
  if (errno == EAGAIN || errno == EWOULDBLOCK) return Transfer::kLater;
  return errno == ETOOMANYREFS ? Transfer::kTooMany : Transfer::kBroken;
}

bool refuse_descriptors(int socket) {
  const int off = 0;
  return ::setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off) == 0;
}

Result<UniqueFd> connect_to(const std::string& path, int type, Clock::time_point deadline) {
  const auto address = socket_address(path);
  if (!address) return address.error();
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error(errno, cat("socket for ", path), "cannot be made");
  for (;;) {
    // A unix connect either completes at once or, with the listener's backlog full, not at all.
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) ==
        0) {
      return socket;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return system_error(errno, cat("socket ", path), "cannot be connected to");
    if (Clock::now() >= deadline) {
      return Error{Code::kTimedOut, 0, cat("socket ", path),
                   "takes no new connection: its queue stayed full for the whole time limit"};
    }
    ::poll(nullptr, 0, 5);
  }
}

Result<void> send_by(int socket, std::string_view datagram, Clock::time_point deadline) {
  for (;;) {
    switch (send(socket, datagram, -1)) {
      case Transfer::kDone:
        return {};
      case Transfer::kLater:
        break;
      default:
        if (is_hang_up(errno)) return hang_up();
        return system_error(errno, "lending socket", "the request could not be sent");
    }
    if (auto waited = wait_for(socket, POLLOUT, deadline); !waited) return waited;
  }
}

Result<Datagram> receive_by(int socket, std::size_t limit, Clock::time_point deadline) {
  Datagram datagram;
  datagram.descriptors.reserve(kMostDescriptors);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  for (;;) {
    datagram.bytes.assign(limit, '\0');
    iovec part{datagram.bytes.data(), limit};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got >= 0) adopt_descriptors(message, datagram.descriptors);
    if (got == 0) return hang_up();
    if (got > 0) {
      if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        return cut_short(socket);
      }
      datagram.bytes.resize(static_cast<std::size_t>(got));
      return datagram;
    }
    if (is_hang_up(errno)) return hang_up();
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      return system_error(errno, "lending socket", "the reply could not be received");
    }
    if (auto waited = wait_for(socket, POLLIN, deadline); !waited) return waited.error();
  }
}

}  // namespace carveout::wire
