#include "reservation.hpp"

#include <algorithm>
#include <utility>

namespace carveout::daemon {

Charge::Charge(Charge&& other) noexcept
    : reservation_(std::exchange(other.reservation_, nullptr)),
      user_(other.user_),
      slices_(std::exchange(other.slices_, Slices())) {}

Charge& Charge::operator=(Charge&& other) noexcept {
  if (this != &other) {
    give_back();
    reservation_ = std::exchange(other.reservation_, nullptr);
    user_ = other.user_;
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
  std::exchange(reservation_, nullptr)->take_back(std::exchange(slices_, Slices()), user_);
}

Figures Reservation::with(Slices largest) const {
  return {.base = base_, .size = size_.bytes(), .free = free().bytes(), .largest = largest.bytes()};
}

Slices Reservation::largest() const {
  if (draining_) return Slices(0);
  Slices most = free();
  if (cap_) most = std::min(most, *cap_);
  if (certain_) most = std::min(most, *certain_);
  return most;
}

Slices Reservation::largest_for(UserId user) const {
  if (!most_per_user_) return largest();
  const auto held = held_.find(user);
  const Slices has = (held == held_.end() ? Slices(0) : held->second) + kept_by(user);
  return has < *most_per_user_ ? std::min(largest(), *most_per_user_ - has) : Slices(0);
}

std::optional<Charge> Reservation::charge(Slices ask, UserId user) {
  if (ask == Slices(0) || ask > largest_for(user)) return std::nullopt;
  return adopt(ask, user);
}

Charge Reservation::adopt(Slices lent, UserId user) {
  used_ = used_ + lent;
  Slices& held = held_[user];
  held = held + lent;
  return {*this, user, lent};
}

void Reservation::suspect(Slices slices, UserId user) {
  Slices& given_back = suspects_[user];
  given_back = given_back + slices;
}

void Reservation::set_missing(Slices missing) {
  missing_ = missing;
  if (missing_ <= missing_before_) suspects_.clear();
  if (suspects_.empty()) missing_before_ = missing_;
  // Nobody keeps more than is missing, whatever it has given back.
  for (auto& [user, given_back] : suspects_)
    given_back = std::min(given_back, missing_);
}

// What nobody else can have kept.
Slices Reservation::kept_by(UserId user) const {
  const auto found = suspects_.find(user);
  if (found == suspects_.end()) return Slices(0);
  Slices others = missing_before_;
  for (const auto& [other, given_back] : suspects_) {
    if (other != user) others = others + given_back;
  }
  return missing_ > others ? std::min(missing_ - others, found->second) : Slices(0);
}

void Reservation::cap_largest(Slices most) {
  cap_ = cap_ ? std::min(*cap_, most) : most;
}

void Reservation::take_back(Slices slices, UserId user) {
  used_ = used_ - slices;
  const auto held = held_.find(user);
  held->second = held->second - slices;
  // Users come and go: only those that hold something are kept.
  if (held->second == Slices(0)) held_.erase(held);
}

}  // namespace carveout::daemon
