#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>

namespace carveout::daemon {

// The connections that hold no lease, by how long they have been silent: who goes first when there
// is no room. Strangers, who have not shown a good key, go before guests, who have.
class IdleOrder {
 public:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::uint64_t id = 0;
    Clock::time_point since = {};
    bool guest = false;
  };
  // Where a connection stands; empty once it holds, or waits for, a lease.
  using Place = std::optional<std::list<Entry>::iterator>;

  [[nodiscard]] Place add(std::uint64_t id, Clock::time_point now = Clock::now());
  // It has spoken, with a good key.
  void touch(Place& place, Clock::time_point now = Clock::now());
  void remove(Place& place);

  // The one to close: the oldest stranger, or else the guest that has been silent longest, if that
  // is `least` or longer. (A stranger has no such grace: whoever renews his connections would have
  // it for ever.)
  [[nodiscard]] std::optional<std::uint64_t> first_to_go(
      std::chrono::milliseconds least, Clock::time_point now = Clock::now()) const;

  [[nodiscard]] std::optional<Entry> oldest_stranger() const;

 private:
  std::list<Entry> strangers_;
  std::list<Entry> guests_;
};

}  // namespace carveout::daemon
