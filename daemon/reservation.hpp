#pragma once

// Who may have how much. Pure accounting: no memory, no I/O, no clock.

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "base/bytes.hpp"

namespace carveout::daemon {

class Reservation;

using UserId = std::uint32_t;  // uid_t, without the system's headers

// Slices taken out of a reservation by a user: they go back when this is destroyed.
class Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept;
  Charge& operator=(Charge&& other) noexcept;
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() { give_back(); }

  [[nodiscard]] Slices slices() const { return slices_; }
  // The memory is free again: a cap on `largest` no longer holds.
  void give_back();
  // There never was any memory: a cap stays.
  void cancel();

 private:
  friend class Reservation;
  Charge(Reservation& reservation, UserId user, Slices slices)
      : reservation_(&reservation), user_(user), slices_(slices) {}

  Reservation* reservation_ = nullptr;
  UserId user_ = 0;
  Slices slices_;
};

// What a caller is told.
struct Figures {
  Bytes base, size, free, largest;
};

// Outlives every Charge on it. Not thread-safe: the loop's own.
class Reservation {
 public:
  // `most_per_user`: what one user may have at once, over all its connections.
  Reservation(Bytes base, Slices size, std::optional<Slices> most_per_user = std::nullopt)
      : base_(base), size_(size), most_per_user_(most_per_user) {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  Reservation(Reservation&&) = delete;
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation() = default;

  // Of nobody in particular: without any user's limit.
  [[nodiscard]] Figures figures() const { return with(largest()); }
  [[nodiscard]] Figures figures_for(UserId user) const { return with(largest_for(user)); }
  [[nodiscard]] Slices largest_for(UserId user) const;

  // Empty when `ask` is none, or more than largest_for(user).
  std::optional<Charge> charge(Slices ask, UserId user);
  // What is lent already, by an earlier start: whatever the limits are now. Beyond the reservation
  // (it is smaller now) nothing is free until enough of it has come back.
  Charge adopt(Slices lent, UserId user);

  // --- of a reservation that we hold ---

  // Given back by closing: whether `user` still keeps it shows by what is missing.
  void suspect(Slices slices, UserId user);
  // What is neither lent nor held by us, with everything tried that was given back. It counts
  // against users that must have kept it.
  void set_missing(Slices missing);
  // The largest grant that is certain; none: whatever is free.
  void set_certain(std::optional<Slices> largest) { certain_ = largest; }
  [[nodiscard]] Slices missing() const { return missing_; }

  // While draining nothing is granted; what is lent stays lent.
  void set_draining(bool draining) { draining_ = draining; }
  [[nodiscard]] bool draining() const { return draining_; }

  // The kernel refused although the accounts said yes: until lift_cap() or the next release, no
  // more than `most` is promised. Of several caps the lowest holds.
  void cap_largest(Slices most);
  void lift_cap() { cap_.reset(); }
  [[nodiscard]] bool capped() const { return cap_.has_value(); }

 private:
  friend class Charge;
  [[nodiscard]] Slices free() const {
    const Slices gone = used_ + missing_;
    return gone < size_ ? size_ - gone : Slices(0);
  }
  [[nodiscard]] Slices largest() const;
  [[nodiscard]] Slices kept_by(UserId user) const;
  [[nodiscard]] Figures with(Slices largest) const;
  void take_back(Slices slices, UserId user);

  Bytes base_;
  Slices size_;
  Slices used_;
  std::optional<Slices> most_per_user_;
  std::unordered_map<UserId, Slices> held_;  // by users that hold any
  std::optional<Slices> cap_;
  Slices missing_;
  Slices missing_before_;  // ... when nobody was suspect
  std::unordered_map<UserId, Slices> suspects_;
  std::optional<Slices> certain_;
  bool draining_ = false;
};

}  // namespace carveout::daemon
