#include "arena/planes.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "base/text.hpp"

namespace carveout::arena {
namespace {

// Of all arenas, so that none takes another's plan for its own. Never 0.
std::uint32_t next_serial() {
  static std::atomic<std::uint32_t> last{0};
  std::uint32_t serial = ++last;
  while (serial == 0)
    serial = ++last;
  return serial;
}

}  // namespace

Result<Planes::PlanId> Planes::place(std::span<const Plane> plan, std::span<Bytes> offsets) {
  if (offsets.size() != plan.size()) {
    return Error{Code::kInvalid, 0, "a plan", "wants as many offsets as planes"};
  }
  return place(
      plan.size(), [plan](std::size_t i) noexcept -> const Plane& { return plan[i]; },
      [offsets](std::size_t i, Bytes offset) noexcept { offsets[i] = offset; });
}

Error Planes::no_planes() {
  return {Code::kInvalid, 0, "a plan", "has no planes"};
}

std::optional<Error> Planes::what_is_wrong(std::size_t index, const Plane& plane) {
  if (plane.size == Bytes(0)) return Error{Code::kInvalid, 0, cat("plane ", index), "is empty"};
  if (is_alignment(plane.alignment.count())) return std::nullopt;
  return Error{
      Code::kInvalid, 0, cat("plane ", index),
      cat("has an alignment of ", plane.alignment.count(), " bytes, which is no power of two")};
}

Error Planes::no_room(std::size_t index, const Plane& plane, Bytes at, Bytes start) {
  std::string what = cat("plane ", index);
  std::string message =
      cat("does not fit: ", format_bytes(plane.size), " behind the ", format_bytes(at - start),
          " of those before it, where ", format_bytes(region_ - start), " are free for the plan");
  ++counted_.not_placed;  // nothing throws from here on
  return {Code::kExhausted, 0, std::move(what), std::move(message)};
}

Planes::PlanId Planes::add(Bytes start, Bytes end, Bytes padding) {
  const PlanId id = (PlanId{next_serial()} << 32U) | plans_.size();
  plans_.push_back({id, start, end, padding, false});
  counted_.in_use = counted_.in_use + (end - start);
  counted_.padding = counted_.padding + padding;
  counted_.peak = std::max(counted_.peak, counted_.in_use);
  ++counted_.plans;
  ++counted_.placed;
  return id;
}

Result<void> Planes::give_back(PlanId plan) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto position = static_cast<std::size_t>(plan & 0xffffffffU);
  if (position >= plans_.size() || plans_[position].id != plan || plans_[position].given_back) {
    return Error{Code::kInvalid, 0, "a plan",
                 "is not placed: it was given back before, or is another arena's"};
  }
  Placed& placed = plans_[position];
  placed.given_back = true;
  const Bytes size = placed.end - placed.start;
  counted_.in_use = counted_.in_use - size;
  counted_.padding = counted_.padding - placed.padding;
  counted_.holes = counted_.holes + size;
  --counted_.plans;
  while (!plans_.empty() && plans_.back().given_back)
    drop_last();
  return {};
}

void Planes::drop_last() {
  counted_.holes = counted_.holes - (plans_.back().end - plans_.back().start);
  plans_.pop_back();
}

Planes::Statistics Planes::statistics() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Statistics now = counted_;
  now.region = region_;
  now.free = region_ - (plans_.empty() ? Bytes(0) : plans_.back().end);
  return now;
}

}  // namespace carveout::arena
