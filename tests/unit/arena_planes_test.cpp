// Plans of planes: whole or not at all, at the alignment of their addresses.

#include "arena/planes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "unit/refusal.hpp"

namespace carveout::arena {
namespace {

using test::refusal;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Plane> planes(std::size_t count, Bytes size, Bytes alignment = Bytes(256)) {
  return std::vector<Plane>(count, Plane{size, alignment});
}

struct Placing {
  Result<Planes::PlanId> id;
  std::vector<Bytes> offsets;
};

Placing place(Planes& arena, const std::vector<Plane>& plan) {
  std::vector<Bytes> offsets(plan.size(), Bytes(77));
  auto id = arena.place(plan, offsets);
  return {std::move(id), std::move(offsets)};
}

// 771 MiB of keys and values: 32 layers, with what alignment costs.
std::vector<Plane> a_models_plan() {
  std::vector<Plane> plan = planes(64, mib(12), mib(2));
  plan.push_back({mib(3), Bytes(256)});
  return plan;
}

TEST(ArenaPlanes, HoldAModelsPlanOrNoneOfIt) {
  Planes large(std::uint64_t{7} << 30U, mib(1792));
  const Placing placed = place(large, a_models_plan());
  ASSERT_TRUE(placed.id) << refusal(placed.id);
  EXPECT_EQ(large.statistics().in_use, mib(771));
  EXPECT_EQ(large.statistics().free, mib(1792 - 771));
  Planes small(std::uint64_t{7} << 30U, mib(512));
  const Placing refused = place(small, a_models_plan());
  ASSERT_FALSE(refused.id);
  EXPECT_EQ(refused.id.error().code, Code::kExhausted);
  EXPECT_THAT(refusal(refused.id), AllOf(HasSubstr("plane 42: does not fit: 12 MiB"),
                                         HasSubstr("504 MiB"), HasSubstr("512 MiB are free")));
  EXPECT_THAT(refused.offsets, testing::Each(Bytes(77))) << "none is told";
  EXPECT_EQ(small.statistics().in_use, Bytes(0));
  EXPECT_EQ(small.statistics().free, mib(512));
  EXPECT_EQ(small.statistics().not_placed, 1U);
}

TEST(ArenaPlanes, StandAtTheAlignmentOfTheirAddresses) {
  Planes arena(1000, kib(64));
  const Placing placed =
      place(arena, {{Bytes(1), Bytes(1)}, {Bytes(10), Bytes(256)}, {Bytes(1), Bytes(4096)}});
  ASSERT_TRUE(placed.id) << refusal(placed.id);
  EXPECT_THAT(placed.offsets, ElementsAre(Bytes(0), Bytes(24), Bytes(3096)));
  const Planes::Statistics counted = arena.statistics();
  EXPECT_EQ(counted.in_use, Bytes(3097));
  EXPECT_EQ(counted.padding, Bytes(3097 - 12));
}

TEST(ArenaPlanes, UseAgainWhatWasGivenBackBehindAllElse) {
  Planes arena(0, mib(10));
  const auto one = place(arena, planes(2, mib(1)));
  const auto two = place(arena, planes(3, mib(1)));
  const auto three = place(arena, planes(4, mib(1)));
  ASSERT_TRUE(one.id && two.id && three.id);
  EXPECT_FALSE(place(arena, planes(2, mib(1))).id);
  ASSERT_TRUE(arena.give_back(*two.id));
  EXPECT_EQ(arena.statistics().holes, mib(3));
  EXPECT_EQ(arena.statistics().free, mib(1));
  EXPECT_EQ(arena.statistics().in_use, mib(6));
  EXPECT_FALSE(place(arena, planes(2, mib(1))).id) << "what stands behind is in the way";
  ASSERT_TRUE(arena.give_back(*three.id));
  EXPECT_EQ(arena.statistics().holes, Bytes(0));
  EXPECT_EQ(arena.statistics().free, mib(8));
  const auto again = place(arena, planes(8, mib(1)));
  ASSERT_TRUE(again.id) << refusal(again.id);
  EXPECT_EQ(again.offsets.front(), mib(2));
  EXPECT_EQ(arena.statistics().peak, mib(10));
}

TEST(ArenaPlanes, AreGivenBackOnce) {
  Planes arena(0, mib(10));
  const auto one = place(arena, planes(1, mib(1)));
  const auto two = place(arena, planes(1, mib(1)));
  ASSERT_TRUE(one.id && two.id);
  ASSERT_TRUE(arena.give_back(*one.id));
  EXPECT_EQ(arena.give_back(*one.id).error().code, Code::kInvalid) << "a hole";
  ASSERT_TRUE(arena.give_back(*two.id));
  EXPECT_FALSE(arena.give_back(*two.id));
  const auto three = place(arena, planes(1, mib(1)));
  ASSERT_TRUE(three.id);
  EXPECT_FALSE(arena.give_back(*one.id)) << "another stands there now";
  EXPECT_FALSE(arena.give_back(0));
  EXPECT_FALSE(arena.give_back(std::numeric_limits<Planes::PlanId>::max()));
  EXPECT_TRUE(arena.give_back(*three.id));
}

TEST(ArenaPlanes, RefuseAPlanThatIsNone) {
  Planes arena(0, mib(10));
  EXPECT_THAT(refusal(place(arena, {}).id), HasSubstr("has no planes"));
  EXPECT_THAT(refusal(place(arena, {{mib(1)}, {Bytes(0)}}).id), HasSubstr("plane 1: is empty"));
  for (const std::uint64_t alignment : {0U, 3U, 24U}) {
    EXPECT_THAT(refusal(place(arena, {{mib(1), Bytes(alignment)}}).id),
                HasSubstr("no power of two"));
  }
  std::vector<Bytes> few(1);
  const std::vector<Plane> two = planes(2, mib(1));
  EXPECT_FALSE(arena.place(two, few));
  EXPECT_EQ(arena.statistics().in_use, Bytes(0));
  EXPECT_EQ(arena.statistics().not_placed, 0U);
}

TEST(ArenaPlanes, DoNotOverflow) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 63U;
  for (const std::uint64_t base : {std::uint64_t{0}, std::uint64_t{1}, kHalf + 1, kMost}) {
    for (const Bytes region : {Bytes(0), Bytes(1), mib(1), Bytes(kMost)}) {
      for (const std::uint64_t size : {std::uint64_t{1}, kHalf, kMost - 1, kMost}) {
        for (const std::uint64_t alignment : {std::uint64_t{1}, std::uint64_t{4096}, kHalf}) {
          Planes arena(base, region);
          const Placing placed = place(arena, planes(3, Bytes(size), Bytes(alignment)));
          if (!placed.id) continue;
          EXPECT_EQ(size, 1U) << "three of more are beyond 2^64";
          for (const Bytes offset : placed.offsets) {
            EXPECT_EQ((base + offset.count()) % alignment, 0U);
            EXPECT_LT(offset, region);
          }
        }
      }
    }
  }
}

// Nothing overlaps, and the statistics are what is there.
TEST(ArenaPlanes, KeepTheirAccountsWhateverTheOrder) {
  struct Kept {
    Planes::PlanId id;
    std::vector<Plane> plan;
    std::vector<Bytes> offsets;
  };
  std::mt19937 random(20261130);
  Planes arena(std::uint64_t{3} << 20U, mib(64));
  std::vector<Kept> kept;
  std::uint64_t placed = 0;
  std::uint64_t not_placed = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    if (random() % 5 < 3) {
      std::vector<Plane> plan;
      for (std::size_t i = 0; i < 1 + random() % 4; ++i)
        plan.push_back({Bytes(1 + random() % 500'000), Bytes(std::uint64_t{1} << random() % 16)});
      Placing placing = place(arena, plan);
      ++(placing.id ? placed : not_placed);
      if (placing.id) kept.push_back({*placing.id, plan, placing.offsets});
    } else if (!kept.empty()) {
      std::swap(kept[random() % kept.size()], kept.back());
      ASSERT_TRUE(arena.give_back(kept.back().id));
      kept.pop_back();
    }
    const Planes::Statistics counted = arena.statistics();
    Bytes sizes;
    for (const Kept& one : kept) {
      for (const Plane& plane : one.plan)
        sizes = sizes + plane.size;
    }
    ASSERT_EQ(counted.in_use - counted.padding, sizes);
    ASSERT_EQ(counted.in_use + counted.holes + counted.free, counted.region);
    ASSERT_EQ(counted.plans, kept.size());
    ASSERT_EQ(counted.placed, placed);
    ASSERT_EQ(counted.not_placed, not_placed);
  }
  EXPECT_GT(not_placed, 100U);
  std::vector<std::pair<Bytes, Bytes>> ranges;
  for (const Kept& one : kept) {
    for (std::size_t i = 0; i < one.plan.size(); ++i)
      ranges.emplace_back(one.offsets[i], one.offsets[i] + one.plan[i].size);
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i)
    EXPECT_LE(ranges[i - 1].second, ranges[i].first);
}

}  // namespace
}  // namespace carveout::arena
