#include "reservation.hpp"

#include <algorithm>
#include <utility>

namespace carveout::daemon {

Charge::Charge(Charge&& other) noexcept
    : reservation_(std::exchange(other.reservation_, nullptr)),
      slices_(std::exchange(other.slices_, Slices())) {}

Charge& Charge::operator=(Charge&& other) noexcept {
  if (this != &other) {
    give_back();
    reservation_ = std::exchange(other.reservation_, nullptr);
    slices_ = std::exchange(other.slices_, Slices());
  }
  return *this;
}

void Charge::give_back() {
  if (reservation_ == nullptr) return;
  reservation_->lift_cap();
  cancel();
}

void Charge::cancel() {
  if (reservation_ == nullptr) return;
  std::exchange(reservation_, nullptr)->take_back(std::exchange(slices_, Slices()));
}

Figures Reservation::figures() const {
  return {
      .base = base_, .size = size_.bytes(), .free = free_.bytes(), .largest = largest().bytes()};
}

Slices Reservation::largest() const {
  if (draining_) return Slices(0);
  return cap_ ? std::min(free_, *cap_) : free_;
}

std::optional<Charge> Reservation::charge(Slices ask) {
  if (ask > largest()) return std::nullopt;
  free_ = free_ - ask;
  return Charge(*this, ask);
}

void Reservation::cap_largest(Slices most) {
  cap_ = cap_ ? std::min(*cap_, most) : most;
}

}  // namespace carveout::daemon
