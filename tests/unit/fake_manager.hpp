#pragma once

// A service manager's ear: the socket behind $NOTIFY_SOCKET.

#include <sys/types.h>

#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"

struct msghdr;

namespace carveout::daemon {

// Takes notifications on a thread, as the manager does: each barrier is let go as soon as it has
// been reached, and so is every descriptor.
class FakeManager {
 public:
  struct Told {
    std::string text;
    std::size_t descriptors = 0;
    ino_t inode = 0;  // of the first
  };

  explicit FakeManager(std::string path) : path_(std::move(path)) { open(); }
  FakeManager(const FakeManager&) = delete;
  FakeManager& operator=(const FakeManager&) = delete;
  FakeManager(FakeManager&&) = delete;
  FakeManager& operator=(FakeManager&&) = delete;
  ~FakeManager() { close(); }

  void open();
  // From now on nobody is there.
  void close();

  // What has been said since the last call, barriers left out. $NOTIFY_SOCKET must lead here.
  std::vector<Told> told();
  std::vector<std::string> texts();
  // Those that were not told()'s own.
  int barriers();

 private:
  void receive();
  void take(const std::string& text, msghdr& message);

  const std::string path_;
  UniqueFd socket_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<Told> told_;
  int barriers_ = 0;
};

}  // namespace carveout::daemon
