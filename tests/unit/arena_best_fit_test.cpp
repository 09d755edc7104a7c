// Pieces of any size in any order.

#include "arena/best_fit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>

namespace carveout::arena {
namespace {

TEST(ArenaBestFit, TakesTheSmallestHoleWithRoom) {
  BestFit arena(0, kib(64));
  const auto a = arena.take(kib(8));
  const auto b = arena.take(kib(1));
  const auto c = arena.take(kib(4));
  const auto d = arena.take(kib(1));
  ASSERT_TRUE(a && b && c && d);
  EXPECT_TRUE(arena.give_back(*a));
  EXPECT_TRUE(arena.give_back(*c));
  EXPECT_EQ(arena.take(kib(3)), c) << "in the hole of 4 KiB, not in that of 8";
  EXPECT_EQ(arena.take(kib(5)), a);
}

TEST(ArenaBestFit, JoinsWhatLiesSideBySide) {
  BestFit arena(0, kib(3));
  const auto a = arena.take(kib(1));
  const auto b = arena.take(kib(1));
  const auto c = arena.take(kib(1));
  ASSERT_TRUE(a && b && c);
  EXPECT_FALSE(arena.take(Bytes(1)));
  for (const Bytes piece : {*a, *c, *b})
    EXPECT_TRUE(arena.give_back(piece));
  EXPECT_EQ(arena.statistics().largest, kib(3));
  EXPECT_EQ(arena.take(kib(3)), Bytes(0));
}

TEST(ArenaBestFit, KeepsToTheUnitOfAddresses) {
  BestFit arena(1000, kib(2));
  EXPECT_EQ(arena.statistics().region, Bytes(1536));
  const auto one = arena.take(Bytes(1));
  const auto two = arena.take(Bytes(513));
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one, Bytes(24));
  EXPECT_EQ(two, Bytes(536));
  EXPECT_EQ(arena.statistics().in_use, Bytes(1536));
  EXPECT_EQ(BestFit(1, Bytes(511)).statistics().region, Bytes(0));
  EXPECT_FALSE(BestFit(1, Bytes(600)).take(Bytes(1)));
}

TEST(ArenaBestFit, RefusesWhatIsNone) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  BestFit arena(0, mib(1));
  for (const std::uint64_t size : {std::uint64_t{0}, kMost, kMost - 510, kMost / 2})
    EXPECT_FALSE(arena.take(Bytes(size))) << size;
  const auto piece = arena.take(kib(1));
  ASSERT_TRUE(piece);
  for (const Bytes strange : {*piece + Bytes(1), *piece + Bytes(512), Bytes(kMost), mib(1)})
    EXPECT_FALSE(arena.give_back(strange));
  EXPECT_TRUE(arena.give_back(*piece));
  EXPECT_FALSE(arena.give_back(*piece)) << "twice";
  EXPECT_EQ(arena.statistics().refused, 5U);
  EXPECT_EQ(arena.statistics().not_had, 4U);
  EXPECT_EQ(arena.statistics().in_use, Bytes(0));
}

TEST(ArenaBestFit, GivesNothingTwiceWhateverTheOrder) {
  std::mt19937 random(20261130);
  BestFit arena(0, mib(4));
  std::map<Bytes, Bytes> kept;
  for (int turn = 0; turn < 20'000; ++turn) {
    if (random() % 2 == 0) {
      const Bytes size(1 + random() % 100'000);
      const auto piece = arena.take(size);
      if (!piece) continue;
      const auto behind = kept.lower_bound(*piece);
      ASSERT_TRUE(behind == kept.end() || *piece + size <= behind->first);
      if (behind != kept.begin()) {
        const auto before = std::prev(behind);
        ASSERT_LE(before->first + before->second, *piece);
      }
      ASSERT_LE(*piece + size, mib(4));
      kept[*piece] = size;
    } else if (!kept.empty()) {
      const auto which = std::next(kept.begin(), static_cast<long>(random() % kept.size()));
      ASSERT_TRUE(arena.give_back(which->first));
      kept.erase(which);
    }
    ASSERT_EQ(arena.statistics().pieces, kept.size());
  }
  EXPECT_GT(arena.statistics().not_had, 0U);
  for (const auto& [piece, size] : kept)
    EXPECT_TRUE(arena.give_back(piece));
  EXPECT_EQ(arena.statistics().largest, mib(4)) << "one hole again";
}

}  // namespace
}  // namespace carveout::arena
