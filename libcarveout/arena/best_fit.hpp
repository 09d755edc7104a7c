#pragma once

// A region of memory from which pieces of any size are taken and given back in any order: for
// callers that bring no plan. It counts offsets only, and touches nothing.

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/bytes.hpp"

namespace carveout::arena {

// Every piece is a whole number of kUnit bytes, at a multiple of it. Thread rule: any calls from
// any threads at once.
class BestFit {
 public:
  // What cudaMalloc() promises is less (256); PyTorch's allocator rounds its requests to this.
  static constexpr Bytes kUnit = Bytes(512);

  struct Statistics {
    Bytes region;
    Bytes in_use;
    Bytes peak;     // of in_use
    Bytes largest;  // that can be had now; region - in_use without fragmentation
    std::uint64_t pieces = 0;
    std::uint64_t taken = 0;    // so often
    std::uint64_t not_had = 0;  // so often there was no room
    std::uint64_t refused = 0;  // so often something was given back that was not taken
  };

  // `base` is the region's address: pieces lie at multiples of kUnit of addresses.
  BestFit(std::uint64_t base, Bytes region);

  // The smallest hole that has room, the first of those that are alike; the offset from the
  // region's start. Nothing where there is none, and for a size of 0. Time: the logarithm of how
  // many pieces and holes there are. Throws std::bad_alloc, and nothing has changed.
  std::optional<Bytes> take(Bytes size);
  // False for what is not the offset of a piece that is taken. Needs no memory.
  bool give_back(Bytes offset) noexcept;
  // Whether it is the offset of such a piece.
  [[nodiscard]] bool is_taken(Bytes offset) const noexcept;

  [[nodiscard]] Statistics statistics() const;

 private:
  struct Part {
    std::uint64_t size;
    bool taken;
  };
  using Parts = std::map<std::uint64_t, Part>;  // by offset
  using Rooms =
      std::set<std::pair<std::uint64_t, std::uint64_t>>;  // what a part has room for, offset

  // Of a part that is there, whose entry says `before`.
  void set_room(std::uint64_t offset, std::uint64_t before, std::uint64_t now) noexcept;

  mutable std::mutex mutex_;
  Parts parts_;  // pieces and holes: all of the region, without a gap
  Rooms rooms_;  // an entry for each part, 0 for what is taken: so none is made in giving back
  Statistics counted_;
};

}  // namespace carveout::arena
