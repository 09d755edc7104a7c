#include "idle_order.hpp"

namespace carveout::daemon {

IdleOrder::Place IdleOrder::add(std::uint64_t id, Clock::time_point now) {
  return strangers_.insert(strangers_.end(), Entry{.id = id, .since = now});
}

void IdleOrder::touch(Place& place, Clock::time_point now) {
  if (!place) return;
  (*place)->since = now;
  guests_.splice(guests_.end(), (*place)->guest ? guests_ : strangers_, *place);
  (*place)->guest = true;
}

void IdleOrder::remove(Place& place) {
  if (!place) return;
  ((*place)->guest ? guests_ : strangers_).erase(*place);
  place.reset();
}

std::optional<std::uint64_t> IdleOrder::first_to_go(std::chrono::milliseconds least,
                                                    Clock::time_point now) const {
  if (!strangers_.empty()) return strangers_.front().id;
  if (!guests_.empty() && now - guests_.front().since >= least) return guests_.front().id;
  return std::nullopt;
}

std::optional<IdleOrder::Entry> IdleOrder::oldest_stranger() const {
  if (strangers_.empty()) return std::nullopt;
  return strangers_.front();
}

}  // namespace carveout::daemon
