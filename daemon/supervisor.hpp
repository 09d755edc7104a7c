#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace carveout::daemon {

// What the service manager has handed over: its listening sockets, and what it kept for us.
struct HandedOver {
  struct Kept {
    std::string name;
    UniqueFd descriptor;
  };
  std::vector<UniqueFd> listeners;  // those named "lend"
  std::vector<Kept> kept;           // all others
};

// Takes it out of the environment (LISTEN_FDS, LISTEN_FDNAMES), once. All are close-on-exec.
Result<HandedOver> take_handed_over();

// The service manager's descriptor store: what is in it comes back after our death (sd_notify(3),
// FDSTORE=1). store() and remove() wait for the manager now and then: they are the worker's.
class Supervisor {
 public:
  // `most` descriptors; 0: no store. Without a manager ($NOTIFY_SOCKET) there is none either.
  explicit Supervisor(std::size_t most);

  [[nodiscard]] bool has_store() const { return has_store_; }
  [[nodiscard]] std::size_t stored() const { return stored_; }
  [[nodiscard]] std::size_t most() const { return most_; }

  // What came back at the start is in the store still: ours, and what is not ours to take out.
  void count_kept(std::size_t ours, std::size_t others) {
    stored_ = ours;
    most_ = most_ > others ? most_ - others : 0;
  }

  // Errors: kExhausted when the store is full (the manager would drop it silently), kSystem. The
  // descriptor stays the caller's.
  Result<void> store(std::uint64_t connection, int descriptor);
  // If the manager cannot be told now, it is before the next descriptor is stored.
  void remove(std::uint64_t connection);

 private:
  Result<void> tell(const std::string& state, const int* descriptor);
  Result<void> pay();

  std::size_t most_;
  bool has_store_;
  std::atomic<std::size_t> stored_ = 0;
  std::deque<std::uint64_t> to_remove_;
  unsigned told_ = 0;  // messages since the manager was last waited for
  std::chrono::steady_clock::time_point wait_again_{};  // after it did not answer
};

}  // namespace carveout::daemon
