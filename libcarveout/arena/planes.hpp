#pragma once

// A region of memory in which plans are placed: several planes (a layer's keys, a layer's values)
// at once, whole or not at all. It counts offsets only, and touches nothing.

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
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
  using PlanId = std::uint64_t;  // not given again until 2^32 others have been
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
  // there is); `offsets` is as it was then. Constant time a plane.
  Result<PlanId> place(std::span<const Plane> plan, std::span<Bytes> offsets);
  // kInvalid for what is not placed: given back before, or another arena's.
  Result<void> give_back(PlanId plan);

  [[nodiscard]] Statistics statistics() const;

 private:
  struct Placed {
    PlanId id;
    Bytes start;
    Bytes end;
    Bytes padding;
    bool given_back;
  };

  void drop_last();

  const std::uint64_t base_;
  const Bytes region_;
  mutable std::mutex mutex_;
  std::vector<Placed> plans_;  // by address; those at the end are in use
  std::uint32_t serial_ = 0;
  Statistics counted_;
};

}  // namespace carveout::arena
