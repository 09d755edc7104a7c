#pragma once

// A region of memory in which plans are placed: several planes (a layer's keys, a layer's values)
// at once, whole or not at all. It counts offsets only, and touches nothing.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace carveout::arena {

struct Plane {
  Bytes size;                    // not 0
  Bytes alignment = Bytes(256);  // a power of two; the address's, not the offset's
};

// Plans stand one behind the other, in the order of their placing. What a plan leaves between
// others is used again when all that was placed behind it has been given back, too.
//
// Thread rule: any calls from any threads at once.
class Planes {
 public:
  // Not 0, and no other arena's; not given again until 2^32 others have been.
  using PlanId = std::uint64_t;
  struct Statistics {
    Bytes region;
    Bytes in_use;   // of plans that are placed, with what alignment costs
    Bytes peak;     // of in_use
    Bytes padding;  // of in_use: what alignment costs
    Bytes holes;    // given back, but behind it something is still placed
    Bytes free;     // behind the last plan
    std::uint64_t plans = 0;
    std::uint64_t placed = 0;      // so often
    std::uint64_t not_placed = 0;  // so often there was no room
  };

  // `base` is the region's address.
  Planes(std::uint64_t base, Bytes region) : base_(base), region_(region) {}

  // Places all of them, in their order, and tells the offset of each from the region's start; or
  // none. Errors: kInvalid (an empty plan or plane, an alignment that is none, `offsets` of another
  // length), kExhausted (the message says which plane was the first without room, and how much
  // there is); `offsets` is as it was then. Constant time a plane. Throws std::bad_alloc, and
  // nothing has changed.
  Result<PlanId> place(std::span<const Plane> plan, std::span<Bytes> offsets);

  // The same of planes that are kept otherwise: plane(i) of `count`, and told(i, offset).
  template <typename Get, typename Tell>
  Result<PlanId> place(std::size_t count, const Get& plane, const Tell& told) {
    // Or a plan would stay whose id nobody knows.
    static_assert(std::is_nothrow_invocable_v<const Get&, std::size_t> &&
                  std::is_nothrow_invocable_v<const Tell&, std::size_t, Bytes>);
    const std::lock_guard<std::mutex> lock(mutex_);
    const Bytes start = plans_.empty() ? Bytes(0) : plans_.back().end;
    Walk walk{base_, region_.count(), start.count()};
    // Twice, so that nothing is told where not all of it is placed.
    for (std::size_t i = 0; i < count; ++i) {
      if (walk.take(plane(i))) continue;
      // What is wrong with the plan comes before that there is no room for it.
      for (std::size_t j = i; j < count; ++j) {
        if (auto wrong = what_is_wrong(j, plane(j))) return *std::move(wrong);
      }
      return no_room(i, plane(i), Bytes(walk.at), start);
    }
    if (count == 0) return no_planes();
    const PlanId id = add(start, Bytes(walk.at), Bytes(walk.padding));
    walk.at = start.count();
    for (std::size_t i = 0; i < count; ++i) {
      (void)walk.take(plane(i));
      told(i, Bytes(walk.begin));
    }
    return id;
  }

  // kInvalid for what is not placed: given back before, or another arena's.
  Result<void> give_back(PlanId plan);

  [[nodiscard]] Statistics statistics() const;

 private:
  struct Placed {
    PlanId id = 0;
    Bytes start;
    Bytes end;
    Bytes padding;
    bool given_back = false;
  };

  // A power of two. std::has_single_bit() counts bits, by a call where the processor may not.
  static bool is_alignment(std::uint64_t unit) { return unit != 0 && (unit & (unit - 1)) == 0; }

  // From plane to plane.
  struct Walk {
    std::uint64_t base = 0, region = 0, at = 0;
    std::uint64_t padding = 0;
    std::uint64_t begin = 0;  // of the last one

    bool take(const Plane& plane) {
      const std::uint64_t unit = plane.alignment.count();
      const std::uint64_t size = plane.size.count();
      // `at` is never beyond the region.
      const std::uint64_t before = (std::uint64_t{0} - base - at) & (unit - 1);
      if (size == 0 || !is_alignment(unit) || before > region - at || size > region - at - before) {
        return false;
      }
      begin = at + before;
      padding += before;
      at = begin + size;
      return true;
    }
  };

  static std::optional<Error> what_is_wrong(std::size_t index, const Plane& plane);
  Error no_room(std::size_t index, const Plane& plane, Bytes at, Bytes start);
  static Error no_planes();
  PlanId add(Bytes start, Bytes end, Bytes padding);
  void drop_last();

  const std::uint64_t base_;
  const Bytes region_;
  mutable std::mutex mutex_;
  std::vector<Placed> plans_;  // by address; those at the end are in use
  Statistics counted_;
};

}  // namespace carveout::arena
