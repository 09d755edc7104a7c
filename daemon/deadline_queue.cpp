#include "deadline_queue.hpp"

#include <algorithm>
#include <utility>

namespace carveout::daemon {

void DeadlineQueue::set(std::uint64_t id, std::uint64_t ticket) {
  entries_.push_back({Clock::now() + delay_, id, ticket});
  if (!timer_) arm();
}

void DeadlineQueue::arm() {
  timer_.reset();
  if (entries_.empty()) return;
  const auto wait = std::max(entries_.front().at - Clock::now(), Clock::duration::zero());
  // Without a timer (no memory for one) the next set() tries again.
  if (auto timer =
          loop_.after(std::chrono::ceil<std::chrono::microseconds>(wait), [this] { run_due(); })) {
    timer_ = *std::move(timer);
  }
}

void DeadlineQueue::run_due() {
  const auto now = Clock::now();
  while (!entries_.empty() && entries_.front().at <= now) {
    const Entry entry = entries_.front();
    entries_.pop_front();
    due_(entry.id, entry.ticket);
  }
  arm();
}

}  // namespace carveout::daemon
