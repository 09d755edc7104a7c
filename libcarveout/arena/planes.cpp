#include "arena/planes.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "base/text.hpp"

namespace carveout::arena {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

Error invalid(std::string what, std::string message) {
  return {Code::kInvalid, 0, std::move(what), std::move(message)};
}

std::string plane(std::size_t index) {
  return cat("plane ", index);
}

// Where a plane begins that comes behind `at`; nothing beyond 2^64.
std::optional<std::uint64_t> align(std::uint64_t base, std::uint64_t at, std::uint64_t unit) {
  const std::uint64_t over = (base + at) & (unit - 1);
  if (over == 0) return at;
  const std::uint64_t padding = unit - over;
  if (at > kMost - padding) return std::nullopt;
  return at + padding;
}

}  // namespace

Result<Planes::PlanId> Planes::place(std::span<const Plane> plan, std::span<Bytes> offsets) {
  if (plan.empty()) return invalid("a plan", "has no planes");
  if (offsets.size() != plan.size()) return invalid("a plan", "wants as many offsets as planes");
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].size == Bytes(0)) return invalid(plane(i), "is empty");
    if (!std::has_single_bit(plan[i].alignment.count())) {
      return invalid(plane(i), cat("has an alignment of ", plan[i].alignment.count(),
                                   " bytes, which is no power of two"));
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const Bytes start = plans_.empty() ? Bytes(0) : plans_.back().end;
  // Twice, so that `offsets` is touched only where all of it is placed.
  std::uint64_t at = start.count();
  std::uint64_t padding = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const auto begin = align(base_, at, plan[i].alignment.count());
    const bool fits =
        begin && *begin <= region_.count() && plan[i].size.count() <= region_.count() - *begin;
    if (!fits) {
      ++counted_.not_placed;
      return Error{Code::kExhausted, 0, plane(i),
                   cat("does not fit: ", format_bytes(plan[i].size), " behind ",
                       format_bytes(Bytes(at) - start), " of the same plan, and ",
                       format_bytes(region_ - start), " are free")};
    }
    padding += *begin - at;
    at = *begin + plan[i].size.count();
  }
  ++serial_;
  const PlanId id = (PlanId{serial_} << 32U) | plans_.size();
  plans_.push_back({id, start, Bytes(at), Bytes(padding), false});
  at = start.count();
  for (std::size_t i = 0; i < plan.size(); ++i) {
    offsets[i] = Bytes(*align(base_, at, plan[i].alignment.count()));
    at = offsets[i].count() + plan[i].size.count();
  }
  counted_.in_use = counted_.in_use + (Bytes(at) - start);
  counted_.padding = counted_.padding + Bytes(padding);
  counted_.peak = std::max(counted_.peak, counted_.in_use);
  ++counted_.plans;
  ++counted_.placed;
  return id;
}

Result<void> Planes::give_back(PlanId plan) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto position = static_cast<std::size_t>(plan & 0xffffffffU);
  if (position >= plans_.size() || plans_[position].id != plan || plans_[position].given_back) {
    return invalid("a plan", "is not placed: it was given back before, or is another arena's");
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
