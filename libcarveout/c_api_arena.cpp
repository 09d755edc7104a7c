// The C ABI: arenas.

#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "arena/blocks.hpp"
#include "arena/planes.hpp"
#include "base/text.hpp"
#include "c_api_wall.hpp"

using carveout::Bytes;
using carveout::Error;
using carveout::arena::Blocks;
using carveout::arena::Plane;
using carveout::arena::Planes;
using carveout::c_api::answer;
using carveout::c_api::bad;
using carveout::c_api::give;
using carveout::c_api::is_usable;
using carveout::c_api::Uncancelled;
using carveout::c_api::walled;

struct carveout_planes {
  carveout_planes(std::uint64_t at, Bytes size) : base(at), planes(at, size) {}
  const std::uint64_t base;
  Planes planes;
};

struct carveout_blocks {
  carveout_blocks(std::uint64_t at, std::unique_ptr<Blocks> divided)
      : base(at), blocks(std::move(divided)) {}
  const std::uint64_t base;
  const std::unique_ptr<Blocks> blocks;
};

namespace {

// What is wrong with a range of addresses.
std::optional<Error> what_is_wrong(std::uint64_t base, std::uint64_t bytes) {
  if (bytes == 0) return std::nullopt;
  if (base == 0) {
    return bad("an arena",
               "begins at address 0: is this a pointer of memory that is not mapped so "
               "(device_pointer of what is mapped for the processor only)?");
  }
  // The last byte's address is one: base + bytes may be 2^64.
  if (bytes - 1 <= std::numeric_limits<std::uint64_t>::max() - base) return std::nullopt;
  return bad("an arena", "ends beyond 2^64");
}

carveout_status_t of(Blocks::GivenBack answer) {
  return answer == Blocks::GivenBack::kDone ? CARVEOUT_OK : CARVEOUT_ERROR_INVALID;
}

}  // namespace

extern "C" {

carveout_status_t carveout_planes_create(uint64_t base, uint64_t bytes, carveout_planes_t** planes,
                                         carveout_error_t* error) noexcept {
  if (planes != nullptr) *planes = nullptr;
  return walled(error, [&]() -> carveout_status_t {
    if (planes == nullptr) return answer(bad("carveout_planes_create()", "planes is NULL"), error);
    if (const auto wrong = what_is_wrong(base, bytes)) return answer(*wrong, error);
    *planes = std::make_unique<carveout_planes>(base, Bytes(bytes)).release();
    return answer(CARVEOUT_OK, error);
  });
}

carveout_status_t carveout_planes_place(carveout_planes_t* planes, carveout_plane_t* plan,
                                        size_t count, uint64_t* plan_id,
                                        carveout_error_t* error) noexcept {
  return walled(error, [&]() -> carveout_status_t {
    if (planes == nullptr || (plan == nullptr && count != 0) || plan_id == nullptr) {
      return answer(bad("carveout_planes_place()", "planes, plan or plan_id is NULL"), error);
    }
    const auto placed = planes->planes.place(
        count,
        [plan](std::size_t i) noexcept {
          return Plane{Bytes(plan[i].bytes), Bytes(plan[i].alignment)};
        },
        [plan, planes](std::size_t i, Bytes offset) noexcept {
          plan[i].address = planes->base + offset.count();
        });
    if (!placed) return answer(placed.error(), error);
    *plan_id = *placed;
    return answer(CARVEOUT_OK, error);
  });
}

carveout_status_t carveout_planes_give_back(carveout_planes_t* planes, uint64_t plan_id,
                                            carveout_error_t* error) noexcept {
  return walled(error, [&]() -> carveout_status_t {
    if (planes == nullptr) {
      return answer(bad("carveout_planes_give_back()", "planes is NULL"), error);
    }
    const auto given_back = planes->planes.give_back(plan_id);
    return given_back ? answer(CARVEOUT_OK, error) : answer(given_back.error(), error);
  });
}

carveout_status_t carveout_planes_get_statistics(
    const carveout_planes_t* planes, carveout_planes_statistics_t* statistics) noexcept {
  if (planes == nullptr || !is_usable(statistics)) return CARVEOUT_ERROR_INVALID;
  const Uncancelled uncancelled;
  const Planes::Statistics counted = planes->planes.statistics();
  carveout_planes_statistics_t value{};
  value.bytes = counted.region.count();
  value.in_use = counted.in_use.count();
  value.peak = counted.peak.count();
  value.padding = counted.padding.count();
  value.holes = counted.holes.count();
  value.free = counted.free.count();
  value.plans = counted.plans;
  value.placed = counted.placed;
  value.not_placed = counted.not_placed;
  give(value, statistics);
  return CARVEOUT_OK;
}

void carveout_planes_destroy(carveout_planes_t* planes) noexcept {
  delete planes;
}

carveout_status_t carveout_blocks_create(uint64_t base, uint64_t bytes, uint64_t block_bytes,
                                         uint64_t alignment, carveout_blocks_t** blocks,
                                         carveout_error_t* error) noexcept {
  if (blocks != nullptr) *blocks = nullptr;
  return walled(error, [&]() -> carveout_status_t {
    if (blocks == nullptr) return answer(bad("carveout_blocks_create()", "blocks is NULL"), error);
    if (const auto wrong = what_is_wrong(base, bytes)) return answer(*wrong, error);
    auto divided = Blocks::divide(base, Bytes(bytes), Bytes(block_bytes), Bytes(alignment));
    if (!divided) return answer(divided.error(), error);
    *blocks = std::make_unique<carveout_blocks>(base, *std::move(divided)).release();
    return answer(CARVEOUT_OK, error);
  });
}

carveout_status_t carveout_blocks_take(carveout_blocks_t* blocks, uint32_t* index,
                                       uint64_t* address) noexcept {
  if (blocks == nullptr || index == nullptr) return CARVEOUT_ERROR_INVALID;
  const auto taken = blocks->blocks->take();
  if (!taken) return CARVEOUT_ERROR_EXHAUSTED;
  *index = *taken;
  if (address != nullptr) *address = blocks->base + blocks->blocks->offset_of(*taken).count();
  return CARVEOUT_OK;
}

carveout_status_t carveout_blocks_give_back(carveout_blocks_t* blocks, uint32_t index) noexcept {
  if (blocks == nullptr) return CARVEOUT_ERROR_INVALID;
  return of(blocks->blocks->give_back(index));
}

carveout_status_t carveout_blocks_give_back_at(carveout_blocks_t* blocks,
                                               uint64_t address) noexcept {
  if (blocks == nullptr) return CARVEOUT_ERROR_INVALID;
  const auto index = address < blocks->base
                         ? std::nullopt
                         : blocks->blocks->index_at(Bytes(address - blocks->base));
  // One that does not exist, so that it is counted.
  return of(blocks->blocks->give_back(index.value_or(std::numeric_limits<std::uint32_t>::max())));
}

carveout_status_t carveout_blocks_get_statistics(
    const carveout_blocks_t* blocks, carveout_blocks_statistics_t* statistics) noexcept {
  if (blocks == nullptr || !is_usable(statistics)) return CARVEOUT_ERROR_INVALID;
  const Blocks::Statistics counted = blocks->blocks->statistics();
  carveout_blocks_statistics_t value{};
  value.first = blocks->base + blocks->blocks->first().count();
  value.block_bytes = blocks->blocks->size().count();
  value.stride_bytes = blocks->blocks->stride().count();
  value.taken = counted.taken;
  value.not_had = counted.not_had;
  value.refused = counted.refused;
  value.blocks = counted.blocks;
  value.in_use = counted.in_use;
  value.peak = counted.peak;
  give(value, statistics);
  return CARVEOUT_OK;
}

void carveout_blocks_destroy(carveout_blocks_t* blocks) noexcept {
  delete blocks;
}

}  // extern "C"
