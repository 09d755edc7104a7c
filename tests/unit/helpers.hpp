#pragma once

// What several test files need: directories and files that go away, children, descriptors counted.

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/unique_fd.hpp"

namespace carveout::test {

// A directory of its own under the system's temporary one, removed with all that is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  TemporaryDirectory(TemporaryDirectory&&) = delete;
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string path(std::string_view name) const;
  // Writes a file (and the directories above it) and gives its path.
  [[nodiscard]] std::string file(std::string_view name, std::string_view text,
                                 mode_t mode = 0600) const;

 private:
  std::string path_;
};

void write_file(const std::string& path, std::string_view text, mode_t mode = 0600);

// Of this process, by /proc/self/fd.
[[nodiscard]] std::size_t open_descriptors();
[[nodiscard]] bool is_open(int descriptor);
[[nodiscard]] bool is_close_on_exec(int descriptor);

struct Pipe {
  UniqueFd read_end, write_end;
};
[[nodiscard]] Pipe make_pipe();

// A connected pair of AF_UNIX sockets; SOCK_SEQPACKET as the protocol has it.
[[nodiscard]] std::pair<UniqueFd, UniqueFd> socket_pair();
[[nodiscard]] std::pair<UniqueFd, UniqueFd> socket_pair(int type);

// A listening socket at `path`.
[[nodiscard]] UniqueFd listen_at(const std::string& path, int type, int backlog);

// Everything up to the end of the file; blocks until then.
[[nodiscard]] std::string read_all(int descriptor);

// Runs `body` in a child (SIGALRM ends it after 30 s): its exit code, or 128 + the signal.
[[nodiscard]] int run_in_child(const std::function<int()>& body);

[[nodiscard]] bool wait_readable(int descriptor, std::chrono::milliseconds limit);

// How long `body` took.
[[nodiscard]] std::chrono::milliseconds time_of(const std::function<void()>& body);

}  // namespace carveout::test
