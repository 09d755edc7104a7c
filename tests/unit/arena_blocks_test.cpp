// Blocks of one size: no block twice, whoever asks at once; what is given back wrongly is refused.

#include "arena/blocks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "unit/refusal.hpp"

namespace carveout::arena {
namespace {

using test::refusal;
using testing::HasSubstr;
using GivenBack = Blocks::GivenBack;

std::unique_ptr<Blocks> divide(Bytes region, Bytes size, Bytes alignment = Bytes(1),
                               std::uint64_t base = 0) {
  return test::required(Blocks::divide(base, region, size, alignment));
}

TEST(ArenaBlocks, AreAsManyAsFit) {
  struct Row {
    std::uint64_t base, region, size, alignment;
    std::uint32_t count;
    std::uint64_t first, stride;
  };
  for (const Row& row : {Row{0, 100, 10, 1, 10, 0, 10},
                         {0, 99, 10, 1, 9, 0, 10},
                         {0, 100, 10, 16, 6, 0, 16},  // the last one's padding is not there
                         {0, 90, 10, 16, 6, 0, 16},
                         {0, 89, 10, 16, 5, 0, 16},
                         {5, 100, 10, 16, 5, 11, 16},  // the address counts, not the offset
                         {0, 10, 10, 4096, 1, 0, 4096},
                         {1, 4105, 10, 4096, 1, 4095, 4096}}) {
    const auto blocks = divide(Bytes(row.region), Bytes(row.size), Bytes(row.alignment), row.base);
    EXPECT_EQ(blocks->statistics().blocks, row.count) << row.region << " by " << row.size;
    EXPECT_EQ(blocks->first(), Bytes(row.first));
    EXPECT_EQ(blocks->stride(), Bytes(row.stride));
    EXPECT_EQ(blocks->size(), Bytes(row.size));
  }
}

TEST(ArenaBlocks, RefuseADivisionThatIsNone) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  struct Row {
    std::uint64_t base, region, size, alignment;
    const char* text;
  };
  for (const Row& row : {Row{0, 100, 0, 1, "must not be empty"},
                         {0, 100, 10, 0, "no power of two"},
                         {0, 100, 10, 24, "no power of two"},
                         {0, 9, 10, 1, "does not fit"},
                         {0, 0, 1, 1, "does not fit"},
                         {1, 4104, 10, 4096, "does not fit"},
                         {1, 100, 10, 4096, "does not fit"},
                         {0, kMost - 1, kMost, 1, "does not fit"},
                         {0, kMost, kMost, 4096, "does not fit"},
                         {1, 100, 10, std::uint64_t{1} << 63U, "does not fit"},
                         {0, kMost, 1, 1, "more than can be counted"},
                         {0, std::uint64_t{1} << 32U, 1, 1, "more than can be counted"}}) {
    const auto blocks =
        Blocks::divide(row.base, Bytes(row.region), Bytes(row.size), Bytes(row.alignment));
    EXPECT_THAT(refusal(blocks), HasSubstr(row.text)) << row.region << " by " << row.size;
  }
}

TEST(ArenaBlocks, AreTakenOnceEachAndGivenBackOnceEach) {
  const auto blocks = divide(mib(1), kib(64));
  std::set<std::uint32_t> taken;
  while (const auto index = blocks->take())
    EXPECT_TRUE(taken.insert(*index).second) << *index;
  EXPECT_EQ(taken.size(), 16U);
  EXPECT_EQ(*taken.rbegin(), 15U);
  EXPECT_FALSE(blocks->take());
  EXPECT_EQ(blocks->give_back(16), GivenBack::kForeign);
  EXPECT_EQ(blocks->give_back(std::numeric_limits<std::uint32_t>::max()), GivenBack::kForeign);
  for (const std::uint32_t index : taken) {
    EXPECT_EQ(blocks->give_back(index), GivenBack::kDone);
    EXPECT_EQ(blocks->give_back(index), GivenBack::kNotTaken);
  }
  const Blocks::Statistics counted = blocks->statistics();
  EXPECT_EQ(counted.in_use, 0U);
  EXPECT_EQ(counted.peak, 16U);
  EXPECT_EQ(counted.taken, 16U);
  EXPECT_EQ(counted.not_had, 2U);
  EXPECT_EQ(counted.refused, 18U);
}

TEST(ArenaBlocks, ComeBackWarm) {
  const auto blocks = divide(mib(1), kib(64));
  const auto one = blocks->take();
  const auto two = blocks->take();
  ASSERT_TRUE(one && two);
  EXPECT_EQ(blocks->give_back(*one), GivenBack::kDone);
  EXPECT_EQ(blocks->take(), one) << "the last one given back is the first one taken";
}

TEST(ArenaBlocks, AreKnownByTheirOffsets) {
  const auto blocks = divide(Bytes(1000), Bytes(10), Bytes(16), 5);
  for (std::uint32_t i = 0; i < blocks->statistics().blocks; ++i) {
    const Bytes offset = blocks->offset_of(i);
    EXPECT_EQ((5 + offset.count()) % 16, 0U);
    EXPECT_LE(offset.count() + 10, 1000U);
    EXPECT_EQ(blocks->index_at(offset), i);
    EXPECT_FALSE(blocks->index_at(offset + Bytes(1))) << "in the middle of one";
  }
  EXPECT_FALSE(blocks->index_at(Bytes(0))) << "before the first";
  EXPECT_FALSE(blocks->index_at(blocks->offset_of(blocks->statistics().blocks)));
  EXPECT_FALSE(blocks->index_at(Bytes(std::numeric_limits<std::uint64_t>::max())));
}

TEST(ArenaBlocks, StandAtTheEndOfAllAddresses) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const auto blocks = divide(Bytes(4096), Bytes(1024), Bytes(1024), kMost - 4095);
  EXPECT_EQ(blocks->statistics().blocks, 4U);
  EXPECT_EQ(blocks->index_at(Bytes(3072)), 3U);
  EXPECT_FALSE(blocks->index_at(Bytes(4096)));
  EXPECT_FALSE(Blocks::divide(kMost - 10, Bytes(11), Bytes(8), Bytes(16)));
}

// Each thread marks what it takes, and finds its mark when it gives it back.
TEST(ArenaBlocks, AreNobodyElsesWhileEightThreadsTakeThem) {
  constexpr int kThreads = 8;
  constexpr int kTurns = 125'000;  // each: a million takings and givings back by all of them
  constexpr std::uint32_t kCount = 256;
  const auto blocks = divide(Bytes(kCount * 64), Bytes(64));
  std::vector<std::atomic<int>> owner(kCount);
  std::atomic<std::uint64_t> taken{0};
  std::atomic<std::uint64_t> not_had{0};
  std::vector<std::thread> threads;
  for (int me = 1; me <= kThreads; ++me) {
    threads.emplace_back([&, me] {
      std::mt19937 random(static_cast<unsigned>(me));
      std::vector<std::uint32_t> mine;
      const auto give_back = [&](std::size_t which) {
        std::swap(mine[which], mine.back());
        ASSERT_EQ(owner[mine.back()].exchange(0), me);
        ASSERT_EQ(blocks->give_back(mine.back()), GivenBack::kDone);
        mine.pop_back();
      };
      for (int turn = 0; turn < kTurns; ++turn) {
        if (turn % 100 == 0) {
          ASSERT_EQ(blocks->give_back(kCount), GivenBack::kForeign);
        }
        if (random() % 2 == 0 || mine.empty()) {
          const auto index = blocks->take();
          ++(index ? taken : not_had);
          if (!index) continue;
          ASSERT_EQ(owner[*index].exchange(me), 0);
          mine.push_back(*index);
        } else {
          give_back(random() % mine.size());
        }
      }
      while (!mine.empty())
        give_back(mine.size() - 1);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  const Blocks::Statistics counted = blocks->statistics();
  EXPECT_EQ(counted.in_use, 0U);
  EXPECT_EQ(counted.taken, taken);
  EXPECT_EQ(counted.not_had, not_had);
  EXPECT_EQ(counted.refused, static_cast<std::uint64_t>(kThreads * kTurns / 100));
  EXPECT_GT(not_had, 0U);
  EXPECT_EQ(counted.peak, kCount) << "all were taken when there was none";
  std::set<std::uint32_t> again;
  while (const auto index = blocks->take())
    EXPECT_TRUE(again.insert(*index).second);
  EXPECT_EQ(again.size(), kCount) << "none is lost";
}

}  // namespace
}  // namespace carveout::arena
