#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "event_loop.hpp"

namespace carveout::daemon {

// Deadlines that all lie equally far ahead, so that they come due in the order in which they were
// set: one timer of the loop serves any number of connections.
class DeadlineQueue {
 public:
  // `due` is told the pair that was given to set(); whether it still matters is its business.
  using Due = std::function<void(std::uint64_t id, std::uint64_t ticket)>;

  // `loop` must outlive this.
  DeadlineQueue(EventLoop& loop, std::chrono::microseconds delay, Due due)
      : loop_(loop), delay_(delay), due_(std::move(due)) {}
  DeadlineQueue(const DeadlineQueue&) = delete;
  DeadlineQueue& operator=(const DeadlineQueue&) = delete;
  DeadlineQueue(DeadlineQueue&&) = delete;
  DeadlineQueue& operator=(DeadlineQueue&&) = delete;
  ~DeadlineQueue() = default;

  void set(std::uint64_t id, std::uint64_t ticket);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    Clock::time_point at;
    std::uint64_t id = 0;
    std::uint64_t ticket = 0;
  };

  void arm();
  void run_due();

  EventLoop& loop_;
  std::chrono::microseconds delay_;
  Due due_;
  std::deque<Entry> entries_;
  std::optional<EventLoop::Source> timer_;
};

}  // namespace carveout::daemon
