#pragma once

// Who may have how much. Pure accounting: no memory, no I/O, no clock.

#include <cstdint>
#include <optional>

#include "base/bytes.hpp"

namespace carveout::daemon {

class Reservation;

// Slices taken out of a reservation: they go back when this is destroyed.
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
  Charge(Reservation& reservation, Slices slices) : reservation_(&reservation), slices_(slices) {}

  Reservation* reservation_ = nullptr;
  Slices slices_;
};

// What a caller is told.
struct Figures {
  Bytes base, size, free, largest;
};

// Outlives every Charge on it. Not thread-safe: the loop's own.
class Reservation {
 public:
  Reservation(Bytes base, Slices size) : base_(base), size_(size), free_(size) {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  Reservation(Reservation&&) = delete;
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation() = default;

  [[nodiscard]] Figures figures() const;
  [[nodiscard]] Slices largest() const;

  // Empty when `ask` is more than largest().
  std::optional<Charge> charge(Slices ask);

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
  void take_back(Slices slices) { free_ = free_ + slices; }

  Bytes base_;
  Slices size_;
  Slices free_;
  std::optional<Slices> cap_;
  bool draining_ = false;
};

}  // namespace carveout::daemon
