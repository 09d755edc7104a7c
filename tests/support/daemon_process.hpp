#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "support/peer.hpp"
#include "support/proc.hpp"

namespace carveout::test {

inline constexpr std::uint64_t kSlice = 2097152;

// The real carveoutd as a child, in a directory of its own, ready to lend once constructed.
class DaemonProcess {
 public:
  // `binary` is carveoutd; `options` come behind the paths and the key; `launcher` is what executes
  // it, if anything (prlimit with its options).
  explicit DaemonProcess(std::string binary, std::vector<std::string> options = {},
                         std::vector<std::string> launcher = {});
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;
  DaemonProcess(DaemonProcess&&) = delete;
  DaemonProcess& operator=(DaemonProcess&&) = delete;
  ~DaemonProcess();

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::string socket() const { return directory_.file("lend.sock"); }
  [[nodiscard]] std::string control() const { return directory_.file("control.sock"); }
  [[nodiscard]] std::string key_file() const { return directory_.file("key"); }
  [[nodiscard]] const TempDir& directory() const { return directory_; }
  [[nodiscard]] Peer connect() const { return Peer(socket()); }
  // What carveoutctl's `status` asks, as the daemon answers it.
  [[nodiscard]] std::string status() const;
  // Its open descriptors while nobody but `only` is connected: asking it for `info` first has the
  // daemon accept it and notice whoever has left.
  [[nodiscard]] std::size_t descriptors_with(const Peer& only) const {
    (void)only.info();
    return count_descriptors(pid_);
  }
  // What it has written to standard error so far.
  [[nodiscard]] std::string log() const { return read_file(directory_.file("log")); }

  void signal(int number) const;
  // SIGTERM and its exit code.
  int stop();
  // SIGKILL, waited for.
  void kill();
  // Another one in the same place.
  void start();

 private:
  std::string binary_;
  std::vector<std::string> options_;
  std::vector<std::string> launcher_;
  TempDir directory_;
  pid_t pid_ = -1;
};

}  // namespace carveout::test
