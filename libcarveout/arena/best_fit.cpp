#include "arena/best_fit.hpp"

#include <algorithm>
#include <iterator>

namespace carveout::arena {

BestFit::BestFit(std::uint64_t base, Bytes region) {
  const std::uint64_t unit = kUnit.count();
  const std::uint64_t before = (unit - base % unit) % unit;
  const std::uint64_t size = region.count() > before ? (region.count() - before) / unit * unit : 0;
  counted_.region = Bytes(size);
  if (size != 0) add_hole(before, size);
}

std::optional<Bytes> BestFit::take(Bytes size) {
  const std::uint64_t unit = kUnit.count();
  const std::uint64_t wanted = (size.count() / unit + (size.count() % unit != 0 ? 1 : 0)) * unit;
  const std::lock_guard<std::mutex> lock(mutex_);
  // A size within kUnit of 2^64 became 0.
  const auto found = wanted == 0 ? by_size_.end() : by_size_.lower_bound({wanted, 0});
  if (found == by_size_.end()) {
    ++counted_.not_had;
    return std::nullopt;
  }
  const auto [had, offset] = *found;
  taken_.emplace(offset, wanted);
  remove_hole(holes_.find(offset));
  if (had > wanted) add_hole(offset + wanted, had - wanted);
  counted_.in_use = counted_.in_use + Bytes(wanted);
  counted_.peak = std::max(counted_.peak, counted_.in_use);
  ++counted_.pieces;
  ++counted_.taken;
  return Bytes(offset);
}

bool BestFit::give_back(Bytes offset) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto piece = taken_.find(offset.count());
  if (piece == taken_.end()) {
    ++counted_.refused;
    return false;
  }
  std::uint64_t start = piece->first;
  std::uint64_t size = piece->second;
  taken_.erase(piece);
  counted_.in_use = counted_.in_use - Bytes(size);
  --counted_.pieces;
  // One hole with those on either side.
  const auto behind = holes_.lower_bound(start);
  if (behind != holes_.begin()) {
    const auto before = std::prev(behind);
    if (before->first + before->second == start) {
      start = before->first;
      size += before->second;
      remove_hole(before);
    }
  }
  if (behind != holes_.end() && start + size == behind->first) {
    size += behind->second;
    remove_hole(behind);
  }
  add_hole(start, size);
  return true;
}

void BestFit::add_hole(std::uint64_t offset, std::uint64_t size) {
  holes_.emplace(offset, size);
  by_size_.emplace(size, offset);
}

void BestFit::remove_hole(Holes::iterator hole) {
  by_size_.erase({hole->second, hole->first});
  holes_.erase(hole);
}

BestFit::Statistics BestFit::statistics() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Statistics now = counted_;
  if (!by_size_.empty()) now.largest = Bytes(by_size_.rbegin()->first);
  return now;
}

}  // namespace carveout::arena
