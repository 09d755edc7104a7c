// Arenas through the C ABI and its owners. What they do is arena_*_test's; here it is what passes
// the wall.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "carveout/carveout.hpp"

namespace carveout {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kBase = std::uint64_t{7} << 30U;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

carveout_error_t error_to_fill() {
  carveout_error_t error;
  std::memset(&error, 0x55, sizeof error);
  error.struct_size = sizeof error;
  return error;
}

// 771 MiB: 32 layers' keys and values, and something small.
std::vector<carveout_plane_t> a_models_plan() {
  std::vector<carveout_plane_t> plan(64, {12 * kMiB, 2 * kMiB, 77});
  plan.push_back({3 * kMiB, 256, 77});
  return plan;
}

TEST(CApiPlanes, HoldAModelsPlanOrNoneOfIt) {
  Planes large(kBase, 1792 * kMiB);
  auto plan = a_models_plan();
  const std::uint64_t id = large.place(plan);
  for (std::size_t i = 0; i < plan.size(); ++i)
    EXPECT_EQ(plan[i].address, kBase + i * 12 * kMiB);
  EXPECT_EQ(large.statistics().in_use, 771 * kMiB);
  EXPECT_TRUE(large.give_back(id));
  EXPECT_FALSE(large.give_back(id));

  Planes small(kBase, 512 * kMiB);
  plan = a_models_plan();
  try {
    (void)small.place(plan);
    FAIL() << "there is no room";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), CARVEOUT_ERROR_EXHAUSTED);
    EXPECT_THAT(failure.what(), HasSubstr("plane 42: does not fit"));
  }
  for (const carveout_plane_t& plane : plan)
    EXPECT_EQ(plane.address, 77U) << "none is told";
  EXPECT_EQ(small.statistics().in_use, 0U);
  EXPECT_EQ(small.statistics().free, 512 * kMiB);
}

TEST(CApiPlanes, RefuseWhatIsNone) {
  carveout_error_t error = error_to_fill();
  auto* planes = reinterpret_cast<carveout_planes_t*>(&error);
  EXPECT_EQ(carveout_planes_create(2, std::numeric_limits<std::uint64_t>::max(), &planes, &error),
            CARVEOUT_ERROR_INVALID);
  EXPECT_EQ(planes, nullptr);
  EXPECT_THAT(error.message, HasSubstr("beyond 2^64"));
  EXPECT_EQ(carveout_planes_create(4096, kMiB, nullptr, &error), CARVEOUT_ERROR_INVALID);
  ASSERT_EQ(carveout_planes_create(4096, kMiB, &planes, nullptr), CARVEOUT_OK);
  carveout_plane_t plane{1, 1, 0};
  std::uint64_t id = 0;
  EXPECT_EQ(carveout_planes_place(nullptr, &plane, 1, &id, &error), CARVEOUT_ERROR_INVALID);
  EXPECT_EQ(carveout_planes_place(planes, nullptr, 1, &id, &error), CARVEOUT_ERROR_INVALID);
  EXPECT_EQ(carveout_planes_place(planes, nullptr, 0, &id, &error), CARVEOUT_ERROR_INVALID);
  EXPECT_EQ(carveout_planes_place(planes, &plane, 1, nullptr, &error), CARVEOUT_ERROR_INVALID);
  plane.alignment = 3;
  EXPECT_EQ(carveout_planes_place(planes, &plane, 1, &id, nullptr), CARVEOUT_ERROR_INVALID);
  EXPECT_EQ(carveout_planes_give_back(nullptr, id, &error), CARVEOUT_ERROR_INVALID);
  carveout_planes_statistics_t counted{};
  EXPECT_EQ(carveout_planes_get_statistics(planes, &counted), CARVEOUT_ERROR_INVALID);
  counted.struct_size = sizeof counted;
  EXPECT_EQ(carveout_planes_get_statistics(nullptr, &counted), CARVEOUT_ERROR_INVALID);
  EXPECT_EQ(carveout_planes_get_statistics(planes, &counted), CARVEOUT_OK);
  EXPECT_EQ(counted.bytes, kMiB);
  EXPECT_EQ(counted.placed, 0U);
  carveout_planes_destroy(planes);
  carveout_planes_destroy(nullptr);
}

// Each field of each: what is not passed on would be another number.
TEST(CApiArenas, TellAllThatTheyCount) {
  Planes planes(kBase, kMiB);
  std::vector<carveout_plane_t> plan{{100, 1, 0}, {100, 1024, 0}};
  const std::uint64_t one = planes.place(plan);  // 1,124 bytes, 924 of them for alignment
  plan = {{1024, 512, 0}};
  (void)planes.place(plan);  // 412 + 1,024
  plan = {{10, 1, 0}};
  const std::uint64_t three = planes.place(plan);
  (void)planes.place(plan);
  plan = {{kMiB, 1, 0}};
  EXPECT_THROW((void)planes.place(plan), Failure);
  EXPECT_TRUE(planes.give_back(one));
  EXPECT_TRUE(planes.give_back(three));
  const auto counted = planes.statistics();
  EXPECT_EQ(counted.bytes, kMiB);
  EXPECT_EQ(counted.in_use, 1436U + 10U);
  EXPECT_EQ(counted.peak, 1124U + 1436U + 10U + 10U);
  EXPECT_EQ(counted.padding, 412U);
  EXPECT_EQ(counted.holes, 1124U + 10U);
  EXPECT_EQ(counted.free, kMiB - counted.in_use - counted.holes);
  EXPECT_EQ(counted.plans, 2U);
  EXPECT_EQ(counted.placed, 4U);
  EXPECT_EQ(counted.not_placed, 1U);

  Blocks blocks(kBase + 1, 4096, 100, 1024);
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(blocks.take().has_value(), i < 3);
  EXPECT_TRUE(blocks.give_back(0));
  for (int i = 0; i < 4; ++i)
    EXPECT_FALSE(blocks.give_back(0));
  const auto of_blocks = blocks.statistics();
  EXPECT_EQ(of_blocks.first, kBase + 1024);
  EXPECT_EQ(of_blocks.block_bytes, 100U);
  EXPECT_EQ(of_blocks.stride_bytes, 1024U);
  EXPECT_EQ(of_blocks.taken, 3U);
  EXPECT_EQ(of_blocks.not_had, 2U);
  EXPECT_EQ(of_blocks.refused, 4U);
  EXPECT_EQ(of_blocks.blocks, 3U);
  EXPECT_EQ(of_blocks.in_use, 2U);
  EXPECT_EQ(of_blocks.peak, 3U);
}

// What a mapping for the processor only has as its device_pointer.
TEST(CApiArenas, AreOfNoMemoryAtAddressZero) {
  EXPECT_THROW(Planes(0, kMiB), Failure);
  EXPECT_THROW(Blocks(0, kMiB, 64, 64), Failure);
  EXPECT_EQ(Planes(0, 0).statistics().bytes, 0U);
}

TEST(CApiArenas, TakeNoOtherArenasPlanForTheirOwn) {
  Planes one(4096, kMiB), other(4096, kMiB);
  std::vector<carveout_plane_t> plan{{100, 1, 0}};
  const std::uint64_t id = one.place(plan);
  const std::uint64_t others = other.place(plan);
  EXPECT_FALSE(one.give_back(others));
  EXPECT_FALSE(other.give_back(id));
  EXPECT_TRUE(one.give_back(id));
  EXPECT_TRUE(other.give_back(others));
}

// What is wrong with a plan is not hidden by that it does not fit.
TEST(CApiArenas, SayFirstWhatIsWrongWithAPlan) {
  Planes planes(4096, 4096);
  std::vector<carveout_plane_t> plan{{8192, 64, 0}, {64, 3, 0}};
  try {
    (void)planes.place(plan);
    ADD_FAILURE() << "it was placed";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), CARVEOUT_ERROR_INVALID);
    EXPECT_THAT(failure.what(), HasSubstr("plane 1: has an alignment of 3 bytes"));
  }
  EXPECT_EQ(planes.statistics().not_placed, 0U);
}

// The last byte's address is the last there is.
TEST(CApiArenas, EndWhereAddressesEnd) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  constexpr std::uint64_t kFrom = kMost - 4 * kMiB + 1;
  Planes planes(kFrom, 4 * kMiB);
  std::vector<carveout_plane_t> plan{{4 * kMiB - 1, 1, 0}, {1, 1, 0}};
  (void)planes.place(plan);
  EXPECT_EQ(plan[1].address, kMost);
  EXPECT_THROW(Planes(kFrom, 4 * kMiB + 1), Failure);
  EXPECT_EQ(Planes(kMost, 0).statistics().bytes, 0U);
  EXPECT_EQ(Planes(1, kMost).statistics().free, kMost);

  Blocks blocks(kFrom, 4 * kMiB, kMiB, kMiB);
  EXPECT_THROW(Blocks(kFrom, 4 * kMiB + 1, kMiB, kMiB), Failure);
  std::vector<Blocks::Block> taken;
  while (const auto block = blocks.take())
    taken.push_back(*block);
  ASSERT_EQ(taken.size(), 4U);
  EXPECT_EQ(taken[3].address, kMost - kMiB + 1);
  EXPECT_FALSE(blocks.give_back_at(0)) << "behind the last one, were there such an address";
  EXPECT_TRUE(blocks.give_back_at(taken[3].address));
}

TEST(CApiBlocks, AreGivenBackByIndexOrAddress) {
  Blocks blocks(kBase + 1, 16 * kMiB, kMiB, 2 * kMiB);
  const auto counted = blocks.statistics();
  EXPECT_EQ(counted.first, kBase + 2 * kMiB);
  EXPECT_EQ(counted.stride_bytes, 2 * kMiB);
  EXPECT_EQ(counted.blocks, 7U);
  std::vector<Blocks::Block> taken;
  while (const auto block = blocks.take())
    taken.push_back(*block);
  ASSERT_EQ(taken.size(), 7U);
  for (const auto& block : taken)
    EXPECT_EQ(block.address, counted.first + block.index * 2 * kMiB);
  EXPECT_FALSE(blocks.give_back(7));
  for (const std::uint64_t strange :
       {std::uint64_t{0}, kBase, taken[0].address + 1, counted.first + 14 * kMiB,
        std::numeric_limits<std::uint64_t>::max()}) {
    EXPECT_FALSE(blocks.give_back_at(strange)) << strange;
  }
  EXPECT_TRUE(blocks.give_back(taken[0].index));
  EXPECT_FALSE(blocks.give_back_at(taken[0].address)) << "twice";
  EXPECT_TRUE(blocks.give_back_at(taken[1].address));
  EXPECT_EQ(blocks.statistics().in_use, 5U);
  EXPECT_EQ(blocks.statistics().refused, 7U);
  EXPECT_EQ(blocks.statistics().not_had, 1U);
}

TEST(CApiBlocks, RefuseWhatIsNone) {
  EXPECT_THROW(Blocks(4096, kMiB, 2 * kMiB, 1), Failure);
  EXPECT_THROW(Blocks(4096, kMiB, 0, 1), Failure);
  EXPECT_THROW(Blocks(4096, kMiB, 1, 3), Failure);
  EXPECT_THROW(Blocks(kBase, std::numeric_limits<std::uint64_t>::max(), 1, 1), Failure);
  std::uint32_t index = 77;
  EXPECT_EQ(carveout_blocks_take(nullptr, &index, nullptr), CARVEOUT_ERROR_INVALID);
  EXPECT_EQ(carveout_blocks_give_back(nullptr, 0), CARVEOUT_ERROR_INVALID);
  EXPECT_EQ(carveout_blocks_give_back_at(nullptr, 0), CARVEOUT_ERROR_INVALID);
  const Blocks one(kBase, kMiB, kMiB, 1);
  EXPECT_EQ(carveout_blocks_take(one.handle(), nullptr, nullptr), CARVEOUT_ERROR_INVALID);
  ASSERT_EQ(carveout_blocks_take(one.handle(), &index, nullptr), CARVEOUT_OK);
  EXPECT_EQ(index, 0U);
  std::uint64_t address = 77;
  EXPECT_EQ(carveout_blocks_take(one.handle(), &index, &address), CARVEOUT_ERROR_EXHAUSTED);
  EXPECT_EQ(address, 77U) << "nothing is written";
  carveout_blocks_destroy(nullptr);
}

}  // namespace
}  // namespace carveout
