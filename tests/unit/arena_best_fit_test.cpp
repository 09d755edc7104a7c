// Pieces of any size in any order.

#include "arena/best_fit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

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

TEST(ArenaBestFit, TakesTheFirstOfHolesThatAreAlike) {
  BestFit arena(0, kib(64));
  std::vector<Bytes> pieces;
  for (int i = 0; i < 8; ++i)
    pieces.push_back(arena.take(kib(2)).value_or(Bytes(77)));
  for (const std::size_t i : {5U, 1U, 3U})
    EXPECT_TRUE(arena.give_back(pieces[i]));
  for (const std::size_t i : {1U, 3U, 5U})
    EXPECT_EQ(arena.take(kib(2)), pieces[i]);
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

// The same, unit by unit, and by looking at all of them.
class Model {
 public:
  explicit Model(std::size_t units) : owner_(units, 0) {}

  // Where best fit must put it; the units' owner is `me` then.
  std::optional<std::size_t> take(std::size_t wanted, int me) {
    std::size_t at = 0;
    std::size_t size = 0;
    for (const auto& [begin, length] : holes()) {
      if (length >= wanted && (size == 0 || length < size)) {
        at = begin;
        size = length;
      }
    }
    if (size == 0) return std::nullopt;
    std::fill_n(owner_.begin() + static_cast<long>(at), wanted, me);
    return at;
  }
  void give_back(int me) { std::replace(owner_.begin(), owner_.end(), me, 0); }

  [[nodiscard]] std::size_t in_use() const {
    return owner_.size() - static_cast<std::size_t>(std::count(owner_.begin(), owner_.end(), 0));
  }
  [[nodiscard]] std::size_t largest() const {
    std::size_t most = 0;
    for (const auto& hole : holes())
      most = std::max(most, hole.second);
    return most;
  }

 private:
  [[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> holes() const {
    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (std::size_t i = 0; i < owner_.size(); ++i) {
      if (owner_[i] != 0) continue;
      if (i == 0 || owner_[i - 1] != 0) found.emplace_back(i, 0);
      ++found.back().second;
    }
    return found;
  }
  std::vector<int> owner_;
};

// Takes and gives back at random, in step with the model.
class InStep {
 public:
  void take() {
    const std::uint64_t size = 1 + random_() % (random_() % 4 == 0 ? 40'000U : 4'000U);
    const auto piece = arena_.take(Bytes(size));
    const auto units = static_cast<std::size_t>((size + kUnit - 1) / kUnit);
    const auto expected = model_.take(units, ++last_);
    ASSERT_EQ(piece.has_value(), expected.has_value());
    ++(piece ? counted_.taken : counted_.not_had);
    if (!piece) return;
    ASSERT_EQ(piece->count(), kFirst + *expected * kUnit);
    kept_.emplace_back(*piece, last_);
    counted_.peak = std::max(counted_.peak, Bytes(model_.in_use() * kUnit));
  }
  void give_back() {
    std::swap(kept_[random_() % kept_.size()], kept_.back());
    ASSERT_TRUE(arena_.give_back(kept_.back().first));
    model_.give_back(kept_.back().second);
    ASSERT_FALSE(arena_.give_back(kept_.back().first)) << "twice";
    ++counted_.refused;
    kept_.pop_back();
  }
  void turn(unsigned takes_of_eight) {
    if (random_() % 8 < takes_of_eight || kept_.empty()) {
      take();
    } else {
      give_back();
    }
  }
  void expect_alike() {
    const BestFit::Statistics now = arena_.statistics();
    ASSERT_EQ(now.region, Bytes(kUnits * kUnit));
    ASSERT_EQ(now.in_use, Bytes(model_.in_use() * kUnit));
    ASSERT_EQ(now.peak, counted_.peak);
    ASSERT_EQ(now.largest, Bytes(model_.largest() * kUnit));
    ASSERT_EQ(now.pieces, kept_.size());
    ASSERT_EQ(now.taken, counted_.taken);
    ASSERT_EQ(now.not_had, counted_.not_had);
    ASSERT_EQ(now.refused, counted_.refused);
  }
  void end() {
    EXPECT_GT(counted_.not_had, 100U);
    while (!kept_.empty())
      give_back();
    EXPECT_EQ(arena_.statistics().largest, Bytes(kUnits * kUnit)) << "one hole again";
  }

 private:
  static constexpr std::uint64_t kUnit = BestFit::kUnit.count();
  static constexpr std::size_t kUnits = 500;
  static constexpr std::uint64_t kBase = 1000;
  static constexpr std::uint64_t kFirst = 24;  // from there to a multiple of kUnit

  std::mt19937 random_{20261130};
  BestFit arena_{kBase, Bytes(kFirst + kUnits * kUnit + 511)};
  Model model_{kUnits};
  std::vector<std::pair<Bytes, int>> kept_;
  BestFit::Statistics counted_;
  int last_ = 0;
};

TEST(ArenaBestFit, IsWhatLookingAtAllOfItWouldChoose) {
  InStep both;
  for (unsigned i = 0; i < 10'000; ++i) {
    both.turn(i / 1000 % 2 == 0 ? 5 : 3);  // fuller, emptier
    both.expect_alike();
    if (HasFatalFailure()) return;
  }
  both.end();
}

// Each thread marks the units that it has.
TEST(ArenaBestFit, GivesNobodyWhatAnotherThreadHas) {
  constexpr int kThreads = 4;
  constexpr std::size_t kUnits = 256;
  const std::uint64_t unit = BestFit::kUnit.count();
  BestFit arena(0, Bytes(kUnits * unit));
  std::vector<std::atomic<int>> owner(kUnits);
  std::atomic<std::uint64_t> taken{0};
  std::vector<std::thread> threads;
  for (int me = 1; me <= kThreads; ++me) {
    threads.emplace_back([&, me] {
      std::mt19937 random(static_cast<unsigned>(me));
      std::vector<std::pair<std::size_t, std::size_t>> mine;
      for (int turn = 0; turn < 20'000 || !mine.empty(); ++turn) {
        const std::size_t count = 1 + random() % 16;
        if (turn < 20'000 && random() % 2 == 0) {
          const auto piece = arena.take(Bytes(count * unit));
          if (!piece) continue;
          ++taken;
          mine.emplace_back(piece->count() / unit, count);
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(owner[mine.back().first + i].exchange(me), 0);
        } else if (!mine.empty()) {
          for (std::size_t i = 0; i < mine.back().second; ++i)
            ASSERT_EQ(owner[mine.back().first + i].exchange(0), me);
          ASSERT_TRUE(arena.give_back(Bytes(mine.back().first * unit)));
          mine.pop_back();
        }
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(arena.statistics().taken, taken);
  EXPECT_EQ(arena.statistics().pieces, 0U);
  EXPECT_EQ(arena.statistics().largest, Bytes(kUnits * unit));
}

}  // namespace
}  // namespace carveout::arena
