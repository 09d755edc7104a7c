#pragma once

// A file of a file system in user space (FUSE) whose server is silent where it matters: it answers
// what opening and closing the file need at once, and anything else, such as how long it is, after
// a while, with an error.

#include <sys/types.h>

#include <atomic>
#include <string>

#include "base/unique_fd.hpp"

namespace carveout::test {

class SilentFile {
 public:
  // Mounted at `directory`, an empty one, for as long as it takes to open it: root only. Where it
  // cannot be mounted, descriptor() is negative.
  explicit SilentFile(const std::string& directory);
  SilentFile(const SilentFile&) = delete;
  SilentFile& operator=(const SilentFile&) = delete;
  SilentFile(SilentFile&&) = delete;
  SilentFile& operator=(SilentFile&&) = delete;
  ~SilentFile();

  [[nodiscard]] int descriptor() const { return file_.get(); }
  // How often somebody has waited for its server.
  [[nodiscard]] int waits() const { return *waits_; }

 private:
  UniqueFd file_;
  pid_t server_ = -1;
  std::atomic<int>* waits_;  // the server's, too
};

}  // namespace carveout::test
