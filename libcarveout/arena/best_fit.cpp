#include "arena/best_fit.hpp"

#include <algorithm>
#include <iterator>

namespace carveout::arena {

BestFit::BestFit(std::uint64_t base, Bytes region) {
  const std::uint64_t unit = kUnit.count();
  const std::uint64_t before = (unit - base % unit) % unit;
  const std::uint64_t size = region.count() > before ? (region.count() - before) / unit * unit : 0;
  counted_.region = Bytes(size);
  if (size == 0) return;
  parts_.emplace(before, Part{size, false});
  rooms_.emplace(size, before);
}

std::optional<Bytes> BestFit::take(Bytes size) {
  const std::uint64_t unit = kUnit.count();
  const std::uint64_t wanted = (size.count() / unit + (size.count() % unit != 0 ? 1 : 0)) * unit;
  const std::lock_guard<std::mutex> lock(mutex_);
  // A size within kUnit of 2^64 became 0.
  const auto found = wanted == 0 ? rooms_.end() : rooms_.lower_bound({wanted, 0});
  if (found == rooms_.end()) {
    ++counted_.not_had;
    return std::nullopt;
  }
  const auto [had, offset] = *found;
  if (had > wanted) {
    // What needs memory comes before what changes anything.
    Parts rest;
    Rooms room;
    rest.emplace(offset + wanted, Part{had - wanted, false});
    room.emplace(had - wanted, offset + wanted);
    parts_.merge(rest);
    rooms_.merge(room);
  }
  parts_.find(offset)->second = {wanted, true};
  set_room(offset, had, 0);
  counted_.in_use = counted_.in_use + Bytes(wanted);
  counted_.peak = std::max(counted_.peak, counted_.in_use);
  ++counted_.pieces;
  ++counted_.taken;
  return Bytes(offset);
}

bool BestFit::give_back(Bytes offset) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto part = parts_.find(offset.count());
  if (part == parts_.end() || !part->second.taken) {
    ++counted_.refused;
    return false;
  }
  counted_.in_use = counted_.in_use - Bytes(part->second.size);
  --counted_.pieces;
  // One hole with those on either side.
  std::uint64_t room = 0;
  if (part != parts_.begin() && !std::prev(part)->second.taken) {
    const auto before = std::prev(part);
    room = before->second.size;
    before->second.size += part->second.size;
    rooms_.erase({0, part->first});
    parts_.erase(part);
    part = before;
  }
  if (const auto behind = std::next(part); behind != parts_.end() && !behind->second.taken) {
    part->second.size += behind->second.size;
    rooms_.erase({behind->second.size, behind->first});
    parts_.erase(behind);
  }
  part->second.taken = false;
  set_room(part->first, room, part->second.size);
  return true;
}

bool BestFit::is_taken(Bytes offset) const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto part = parts_.find(offset.count());
  return part != parts_.end() && part->second.taken;
}

void BestFit::set_room(std::uint64_t offset, std::uint64_t before, std::uint64_t now) noexcept {
  auto entry = rooms_.extract({before, offset});
  entry.value() = {now, offset};
  rooms_.insert(std::move(entry));
}

BestFit::Statistics BestFit::statistics() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Statistics now = counted_;
  if (!rooms_.empty()) now.largest = Bytes(rooms_.rbegin()->first);
  return now;
}

}  // namespace carveout::arena
