#include "support/peer.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace carveout::test {
namespace {

constexpr int kWaitMs = 60'000;
constexpr std::size_t kMostDescriptors = 253;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

std::uint64_t member(std::string_view reply, const std::string& name) {
  const std::string label = "\"" + name + "\": ";
  const std::size_t at = reply.find(label);
  if (at == std::string_view::npos) {
    throw std::runtime_error("no " + name + " in: " + std::string(reply));
  }
  return std::strtoull(reply.data() + at + label.size(), nullptr, 10);
}

Peer::Peer(const std::string& socket_path, std::string key)
    : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), key_(std::move(key)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof address.sun_path - 1);
  if (::connect(socket(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    fail("connect to " + socket_path);
  }
}

bool Peer::send(std::string_view datagram) const {
  if (::send(socket(), datagram.data(), datagram.size(), MSG_NOSIGNAL) >= 0) return true;
  if (errno == EPIPE || errno == ECONNRESET) return false;
  fail("send");
}

bool Peer::send_with_descriptors(std::string_view datagram,
                                 const std::vector<int>& descriptors) const {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  iovec part{const_cast<char*>(datagram.data()), datagram.size()};  // NOLINT: only read
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  return ::sendmsg(socket(), &message, MSG_NOSIGNAL) >= 0;
}

Reply Peer::receive() const {
  pollfd item{socket(), POLLIN, 0};
  if (::poll(&item, 1, kWaitMs) != 1) throw std::runtime_error("no reply within 60 s");
  std::array<char, 65536> bytes{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  Reply reply;
  const ssize_t got = ::recvmsg(socket(), &message, MSG_CMSG_CLOEXEC);
  if (got < 0) {
    reply.error = errno;
    return reply;
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof descriptor);
      reply.descriptors.emplace_back(descriptor);
    }
  }
  reply.bytes.assign(bytes.data(), static_cast<std::size_t>(got));
  return reply;
}

std::string Peer::info_request() const {
  return R"({"key": ")" + key_ + R"(", "op": "info"})";
}

std::string Peer::alloc_request(std::uint64_t bytes) const {
  return R"({"key": ")" + key_ + R"(", "op": "alloc", "size": )" + std::to_string(bytes) + "}";
}

Reply Peer::ask(std::string_view datagram) const {
  if (!send(datagram)) throw std::runtime_error("the daemon closed the connection");
  return receive();
}

Figures Peer::info() const {
  const std::string reply = ask(info_request()).bytes;
  return {member(reply, "base"), member(reply, "size"), member(reply, "free"),
          member(reply, "largest")};
}

UniqueFd Peer::alloc(std::uint64_t bytes) const {
  Reply reply = ask(alloc_request(bytes));
  if (reply.descriptors.size() != 1) throw std::runtime_error("not granted: " + reply.bytes);
  return std::move(reply.descriptors.front());
}

}  // namespace carveout::test
