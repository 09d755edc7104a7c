#include "arena/blocks.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/text.hpp"

namespace carveout::arena {
namespace {

constexpr std::uint32_t kEnd = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kTaken = kEnd - 1;
constexpr const char* kContext = "dividing into blocks";

}  // namespace

Result<std::unique_ptr<Blocks>> Blocks::divide(std::uint64_t base, Bytes region, Bytes size,
                                               Bytes alignment) {
  const std::uint64_t unit = alignment.count();
  if (size == Bytes(0)) return Error{Code::kInvalid, 0, kContext, "a block must not be empty"};
  if (!std::has_single_bit(unit)) {
    return Error{Code::kInvalid, 0, kContext,
                 cat("an alignment of ", unit, " bytes is no power of two")};
  }
  const std::uint64_t before = (unit - base % unit) % unit;
  const std::uint64_t stride = size.count() / unit * unit + (size.count() % unit != 0 ? unit : 0);
  // The last block needs no room behind it. (A stride beyond 2^64 became less than the size.)
  const bool fits =
      stride >= size.count() && before <= region.count() && size.count() <= region.count() - before;
  if (!fits) {
    return Error{Code::kExhausted, 0, kContext,
                 cat("a block of ", format_bytes(size), " at a multiple of ",
                     format_bytes(alignment), " does not fit into ", format_bytes(region))};
  }
  const std::uint64_t count = (region.count() - before - size.count()) / stride + 1;
  if (count >= kTaken) {
    return Error{Code::kExhausted, 0, kContext,
                 cat(count, " blocks are more than can be counted: make them larger")};
  }
  return std::unique_ptr<Blocks>(
      new Blocks(Bytes(before), size, Bytes(stride), static_cast<std::uint32_t>(count)));
}

Blocks::Blocks(Bytes first, Bytes size, Bytes stride, std::uint32_t count)
    : first_(first), size_(size), stride_(stride), next_(count), free_(0) {
  for (std::uint32_t i = 0; i < count; ++i)
    next_[i] = i + 1;
  next_.back() = kEnd;
  counted_.blocks = count;
}

std::optional<std::uint32_t> Blocks::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (free_ == kEnd) {
    ++counted_.not_had;
    return std::nullopt;
  }
  const std::uint32_t index = free_;
  free_ = next_[index];
  next_[index] = kTaken;
  ++counted_.taken;
  counted_.peak = std::max(counted_.peak, ++counted_.in_use);
  return index;
}

Blocks::GivenBack Blocks::give_back(std::uint32_t index) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (index >= next_.size() || next_[index] != kTaken) {
    ++counted_.refused;
    return index >= next_.size() ? GivenBack::kForeign : GivenBack::kNotTaken;
  }
  next_[index] = free_;
  free_ = index;
  --counted_.in_use;
  return GivenBack::kDone;
}

std::optional<std::uint32_t> Blocks::index_at(Bytes offset) const {
  if (offset < first_) return std::nullopt;
  const std::uint64_t behind = (offset - first_).count();
  const std::uint64_t index = behind / stride_.count();
  if (behind % stride_.count() != 0 || index >= next_.size()) return std::nullopt;
  return static_cast<std::uint32_t>(index);
}

Blocks::Statistics Blocks::statistics() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counted_;
}

}  // namespace carveout::arena
