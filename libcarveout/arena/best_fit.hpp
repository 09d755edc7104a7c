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
    Bytes largest;  // that can be had now
    std::uint64_t pieces = 0;
    std::uint64_t taken = 0;    // so often
    std::uint64_t not_had = 0;  // so often there was no room
    std::uint64_t refused = 0;  // so often something was given back that was not taken
  };

  // `base` is the region's address: pieces lie at multiples of kUnit of addresses.
  BestFit(std::uint64_t base, Bytes region);

  // The smallest hole that has room, the first of those that are alike; the offset from the
  // region's start. Nothing where there is none, and for a size of 0. Time: the logarithm of how
  // many holes there are.
  std::optional<Bytes> take(Bytes size);
  // False for what is not the offset of a piece that is taken.
  bool give_back(Bytes offset);

  [[nodiscard]] Statistics statistics() const;

 private:
  using Holes = std::map<std::uint64_t, std::uint64_t>;  // offset: size

  void add_hole(std::uint64_t offset, std::uint64_t size);
  void remove_hole(Holes::iterator hole);

  mutable std::mutex mutex_;
  Holes holes_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // size, offset
  std::map<std::uint64_t, std::uint64_t> taken_;               // offset: size
  Statistics counted_;
};

}  // namespace carveout::arena
