// Plans of planes: whole or not at all, at the alignment of their addresses.

#include "arena/planes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <random>
#include <thread>
#include <utility>
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

// What is placed, as somebody keeps it who looks at all of it.
class InStep {
 public:
  void place() {
    std::vector<Plane> plan(1 + random_() % 4);
    for (Plane& plane : plan)
      plane = {Bytes(1 + random_() % 500'000), Bytes(std::uint64_t{1} << random_() % 16)};
    const Placing placing = arena::place(arena_, plan);
    const Kept one = expected(plan, placing.id ? *placing.id : 0);
    ASSERT_EQ(static_cast<bool>(placing.id), one.end <= kRegion);
    ++(placing.id ? placed_ : not_placed_);
    if (!placing.id) return;
    ASSERT_EQ(placing.offsets, one.offsets);
    kept_.push_back(one);
    peak_ = std::max(peak_, in_use());
  }
  void give_back() {
    if (kept_.empty()) return;
    const auto which = kept_.begin() + static_cast<long>(random_() % kept_.size());
    const Planes::PlanId id = which->id;
    ASSERT_TRUE(arena_.give_back(id));
    kept_.erase(which);
    ASSERT_FALSE(arena_.give_back(id)) << "twice";
  }
  void turn() {
    if (random_() % 5 < 3) {
      place();
    } else {
      give_back();
    }
  }
  void expect_alike() const {
    const Planes::Statistics counted = arena_.statistics();
    ASSERT_EQ(counted.region, kRegion);
    ASSERT_EQ(counted.in_use, in_use());
    ASSERT_EQ(counted.peak, peak_);
    ASSERT_EQ(counted.free, kRegion - end());
    ASSERT_EQ(counted.in_use + counted.holes + counted.free, counted.region);
    Bytes padding;
    for (const Kept& one : kept_)
      padding = padding + one.padding;
    ASSERT_EQ(counted.padding, padding);
    ASSERT_EQ(counted.plans, kept_.size());
    ASSERT_EQ(counted.placed, placed_);
    ASSERT_EQ(counted.not_placed, not_placed_);
  }
  void end_all() {
    EXPECT_GT(not_placed_, 100U);
    while (!kept_.empty())
      give_back();
    EXPECT_EQ(arena_.statistics().free, kRegion);
  }

 private:
  struct Kept {
    Planes::PlanId id;
    Bytes start, end, padding;
    std::vector<Bytes> offsets;
  };
  static constexpr Bytes kRegion = mib(64);
  static constexpr std::uint64_t kBase = (std::uint64_t{3} << 20U) + 1001;

  // Behind all that is kept, which is in the order of its placing.
  [[nodiscard]] Bytes end() const { return kept_.empty() ? Bytes(0) : kept_.back().end; }
  [[nodiscard]] Bytes in_use() const {
    Bytes sum;
    for (const Kept& one : kept_)
      sum = sum + (one.end - one.start);
    return sum;
  }
  [[nodiscard]] Kept expected(const std::vector<Plane>& plan, Planes::PlanId id) const {
    Kept one{id, end(), end(), Bytes(0), {}};
    for (const Plane& plane : plan) {
      Bytes begin = one.end;
      while ((kBase + begin.count()) % plane.alignment.count() != 0)
        begin = begin + Bytes(1);
      one.padding = one.padding + (begin - one.end);
      one.offsets.push_back(begin);
      one.end = begin + plane.size;
    }
    return one;
  }

  std::mt19937 random_{20261130};
  Planes arena_{kBase, kRegion};
  std::vector<Kept> kept_;
  Bytes peak_;
  std::uint64_t placed_ = 0;
  std::uint64_t not_placed_ = 0;
};

TEST(ArenaPlanes, KeepTheirAccountsWhateverTheOrder) {
  InStep both;
  for (int turn = 0; turn < 10'000; ++turn) {
    both.turn();
    both.expect_alike();
    if (HasFatalFailure()) return;
  }
  both.end_all();
}

// Each thread marks the bytes of its plans.
TEST(ArenaPlanes, AreNobodyElsesWhileThreadsPlaceThem) {
  constexpr int kThreads = 4;
  constexpr std::size_t kBytes = 1024;
  Planes arena(0, Bytes(kBytes));
  std::vector<std::atomic<int>> owner(kBytes);
  std::atomic<std::uint64_t> placed{0};
  std::vector<std::thread> threads;
  for (int me = 1; me <= kThreads; ++me) {
    threads.emplace_back([&, me] {
      std::mt19937 random(static_cast<unsigned>(me));
      for (int turn = 0; turn < 5'000; ++turn) {
        const std::vector<Plane> plan(1 + random() % 4, {Bytes(1 + random() % 100), Bytes(16)});
        const Placing placing = place(arena, plan);
        if (!placing.id) continue;
        ++placed;
        const auto mark = [&](int from, int to) {
          for (const Bytes offset : placing.offsets) {
            for (std::uint64_t i = 0; i < plan[0].size.count(); ++i)
              ASSERT_EQ(owner[offset.count() + i].exchange(to), from);
          }
        };
        mark(0, me);
        if (turn % 8 == 0) std::this_thread::yield();
        mark(me, 0);
        ASSERT_TRUE(arena.give_back(*placing.id));
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(arena.statistics().placed, placed);
  EXPECT_EQ(arena.statistics().free, Bytes(kBytes));
  EXPECT_EQ(arena.statistics().in_use, Bytes(0));
}

}  // namespace
}  // namespace carveout::arena
