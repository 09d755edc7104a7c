#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.hpp"
#include "support/peer.hpp"
#include "support/proc.hpp"

namespace carveout::test {

// Plays the service manager's part for one carveoutd, over the real protocol: it holds the
// listening socket (LISTEN_FDS), takes notifications (NOTIFY_SOCKET) and keeps the descriptor
// store. What it does not do is restart by itself.
class ServiceManager {
 public:
  // `options` come behind the key file and the control socket; `store_most` is the unit's
  // FileDescriptorStoreMax=: what is beyond is dropped silently.
  explicit ServiceManager(std::string binary, std::vector<std::string> options = {},
                          std::size_t store_most = 1024);
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;
  ServiceManager(ServiceManager&&) = delete;
  ServiceManager& operator=(ServiceManager&&) = delete;
  ~ServiceManager();

  // With `environment` (NAME=VALUE) more than what the protocol needs. Waits until it is ready.
  void start(const std::vector<std::string>& environment = {});
  // Sends the signal and waits for the end: exit code, or 128 + the signal.
  int end(int signal);
  // Waits for its end by itself.
  int wait_for_end();
  // From the next start on.
  void set_binary(std::string binary) { binary_ = std::move(binary); }
  void set_options(std::vector<std::string> options) { options_ = std::move(options); }

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::string socket() const { return directory_.file("lend.sock"); }
  [[nodiscard]] std::string control() const { return directory_.file("control.sock"); }
  [[nodiscard]] std::string key_file() const { return directory_.file("key"); }
  [[nodiscard]] std::string ledger() const { return directory_.file("ledger.jsonl"); }
  [[nodiscard]] const TempDir& directory() const { return directory_; }
  [[nodiscard]] std::string log() const { return read_file(directory_.file("log")); }
  [[nodiscard]] Peer connect() const { return Peer(socket()); }

  // After everything that has been sent so far.
  [[nodiscard]] std::vector<std::string> stored();
  [[nodiscard]] std::size_t dropped();  // for want of room
  // Puts something into the store, as an earlier start of the daemon could have.
  void put(std::string name, UniqueFd descriptor);

 private:
  void receive();
  void take(const std::string& message, std::vector<UniqueFd> descriptors);
  void settle();
  void tell_receiver(const std::string& message) const;
  [[nodiscard]] pid_t spawn(const std::vector<std::string>& environment);

  std::string binary_;
  std::vector<std::string> options_;
  std::size_t store_most_;
  TempDir directory_;
  UniqueFd listener_;
  UniqueFd notify_;
  pid_t pid_ = -1;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<std::string, UniqueFd>> store_;
  std::size_t dropped_ = 0;
  bool ready_ = false;
  std::uint64_t settled_ = 0;
  std::uint64_t settling_ = 0;
  std::thread receiver_;
};

}  // namespace carveout::test
