#include "unit/fake_manager.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

#include "wire/channel.hpp"

namespace carveout::daemon {

void FakeManager::open() {
  socket_ = UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto address = wire::socket_address(path_);
  EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address),
            0);
  thread_ = std::thread([this] { receive(); });
}

void FakeManager::close() {
  if (!thread_.joinable()) return;
  ::shutdown(socket_.get(), SHUT_RDWR);
  thread_.join();
  socket_.reset();
  ::unlink(path_.c_str());
}

std::vector<FakeManager::Told> FakeManager::told() {
  // A barrier of our own: everything before it has been taken.
  EXPECT_GT(::sd_notify_barrier(0, 10'000'000), 0);
  const std::lock_guard lock(mutex_);
  --barriers_;
  return std::exchange(told_, {});
}

std::vector<std::string> FakeManager::texts() {
  std::vector<std::string> all;
  for (const Told& one : told())
    all.push_back(one.text);
  return all;
}

int FakeManager::barriers() {
  const std::lock_guard lock(mutex_);
  return barriers_;
}

void FakeManager::receive() {
  for (;;) {
    std::array<char, 4096> bytes{};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(8 * sizeof(int))> control{};
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    if (got <= 0) return;
    take({bytes.data(), static_cast<std::size_t>(got)}, message);
  }
}

void FakeManager::take(const std::string& text, msghdr& message) {
  std::vector<UniqueFd> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof descriptor);
      descriptors.emplace_back(descriptor);
    }
  }
  const std::lock_guard lock(mutex_);
  if (text == "BARRIER=1") {
    ++barriers_;
    return;
  }
  Told told{text, descriptors.size(), 0};
  struct stat status {};
  if (!descriptors.empty() && ::fstat(descriptors[0].get(), &status) == 0) {
    told.inode = status.st_ino;
  }
  told_.push_back(std::move(told));
}

}  // namespace carveout::daemon
