#pragma once

// A region of memory as blocks of one size: paged KV. It counts offsets only, and touches nothing.

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace carveout::arena {

// Thread rule: any calls from any threads at once. None blocks longer than another thread's take()
// or give_back().
class Blocks {
 public:
  enum class GivenBack {
    kDone,
    kForeign,   // there is no such block
    kNotTaken,  // it is free: given back twice, or never taken
  };
  struct Statistics {
    std::uint32_t blocks = 0;
    std::uint32_t in_use = 0;
    std::uint32_t peak = 0;     // of in_use
    std::uint64_t taken = 0;    // so often
    std::uint64_t not_had = 0;  // so often there was none
    std::uint64_t refused = 0;  // foreign or not taken
  };

  // As many blocks of `size` bytes as the region holds, each `stride` (size, rounded up to
  // `alignment`, a power of two) behind the one before. `base` is the region's address: the first
  // block is at the first multiple of `alignment` from there on. Errors: kInvalid for a size of
  // zero or an alignment that is none, kExhausted where not one fits, or 2^32 - 2 or more would.
  static Result<std::unique_ptr<Blocks>> divide(std::uint64_t base, Bytes region, Bytes size,
                                                Bytes alignment);

  // The index of a block that nobody has; the last one given back first. None is left: nothing.
  std::optional<std::uint32_t> take();
  GivenBack give_back(std::uint32_t index);

  // From the region's start.
  [[nodiscard]] Bytes offset_of(std::uint32_t index) const {
    return first_ + Bytes(stride_.count() * index);
  }
  // The block that starts at that offset; nothing where none does.
  [[nodiscard]] std::optional<std::uint32_t> index_at(Bytes offset) const;

  [[nodiscard]] Bytes first() const { return first_; }
  [[nodiscard]] Bytes size() const { return size_; }
  [[nodiscard]] Bytes stride() const { return stride_; }
  [[nodiscard]] Statistics statistics() const;

 private:
  Blocks(Bytes first, Bytes size, Bytes stride, std::uint32_t count);

  const Bytes first_;
  const Bytes size_;
  const Bytes stride_;
  // At a cache line's beginning (64 bytes, as x86-64 and arm64 have it): wherever the heap puts the
  // arena, threads contend for the same lines, and one arena costs as much as another.
  alignas(64) mutable std::mutex mutex_;
  std::vector<std::uint32_t> next_;  // of a free block: the free one behind it, or kEnd
  std::uint32_t free_;               // the first
  Statistics counted_;
};

}  // namespace carveout::arena
