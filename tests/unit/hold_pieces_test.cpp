// The pieces of a hold: what was one stays one, whatever comes back beside it.

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "hold.hpp"
#include "unit/contiguous_source.hpp"

namespace carveout::daemon {
namespace {

class HoldOfTwoRuns : public testing::Test {
 protected:
  HoldOfTwoRuns() { hold_.fill(); }

  [[nodiscard]] UniqueFd lend(std::uint64_t slices) {
    auto buffer = hold_.allocate(Slices(slices).bytes());
    EXPECT_TRUE(buffer) << slices;
    return buffer ? *hold_.share(*buffer) : UniqueFd();
  }
  void give_back(UniqueFd memory, std::uint64_t slices) {
    memory.reset();
    hold_.give_back(Slices(slices).bytes());
    hold_.fill();
    hold_.join();
  }
  void expect(std::uint64_t held, std::uint64_t largest) const {
    EXPECT_EQ(hold_.held(), Slices(held).bytes());
    EXPECT_EQ(hold_.largest(), Slices(largest).bytes());
    EXPECT_EQ(hold_.missing(), Bytes(0));
  }

  test::ContiguousPool pool_{16};
  Hold hold_{pool_.source(), Slices(16).bytes()};
  // Somebody has a slice for long, between 4 and 11 others.
  UniqueFd before_ = lend(4);
  UniqueFd between_ = lend(1);
};

TEST_F(HoldOfTwoRuns, ReleasingASmallLeaseDoesNotBreakTheLargePiece) {
  expect(11, 11);
  give_back(std::move(before_), 4);
  expect(15, 11);
  EXPECT_TRUE(hold_.allocate(Slices(11).bytes()));
}

TEST_F(HoldOfTwoRuns, ALargePieceComesBackAsOne) {
  UniqueFd eleven = lend(11);
  give_back(std::move(before_), 4);
  expect(4, 4);
  give_back(std::move(eleven), 11);
  expect(15, 11);
}

TEST_F(HoldOfTwoRuns, ARefusalDoesNotBreakTheLargePiece) {
  give_back(std::move(before_), 4);
  EXPECT_FALSE(hold_.allocate(Slices(12).bytes()));
  expect(15, 11);
}

TEST_F(HoldOfTwoRuns, ARefusalDoesNotZeroEverythingTwice) {
  give_back(std::move(before_), 4);
  const std::uint64_t zeroed = pool_.zeroed;
  EXPECT_FALSE(hold_.allocate(Slices(12).bytes()));
  hold_.join();
  EXPECT_LE(pool_.zeroed - zeroed, 16U);
}

TEST_F(HoldOfTwoRuns, OnePieceIsNotJoined) {
  before_.reset();
  hold_.give_back(Slices(4).bytes());
  hold_.fill();
  const UniqueFd four = lend(4);
  expect(11, 11);
  const std::uint64_t zeroed = pool_.zeroed;
  hold_.join();
  EXPECT_EQ(pool_.zeroed, zeroed);
  EXPECT_TRUE(hold_.figures().joined);
}

TEST_F(HoldOfTwoRuns, NothingIsNotJoined) {
  before_.reset();
  hold_.give_back(Slices(4).bytes());
  hold_.fill();
  const UniqueFd eleven = lend(11);
  const UniqueFd four = lend(4);
  expect(0, 0);
  const std::uint64_t calls = pool_.calls;
  hold_.join();
  EXPECT_EQ(pool_.calls, calls) << "an ask for 0 bytes";
}

TEST_F(HoldOfTwoRuns, PiecesJoinWhenWhatWasBetweenThemIsBack) {
  give_back(std::move(before_), 4);
  give_back(std::move(between_), 1);
  expect(16, 16);
}

TEST_F(HoldOfTwoRuns, EverySmallLeaseThatEndsLeavesTheLargestAsItIs) {
  for (int i = 0; i < 50; ++i) {
    UniqueFd one = lend(1);
    give_back(std::move(one), 1);
    EXPECT_GE(hold_.largest(), Slices(11).bytes()) << i;
  }
}

// As CMA, which refuses what it has while others' pages are on their way out of it.
class HoldOfAnUnsteadyPool : public testing::Test {
 protected:
  HoldOfAnUnsteadyPool() { hold_.fill(); }
  // The next `times` asks are refused.
  void refuse(int times) {
    pool_.on_allocate = [this, times]() mutable {
      pool_.allocate_error.reset();
      if (times-- > 0) pool_.allocate_error = Error{Code::kExhausted, 0, "", "for a moment"};
    };
  }
  [[nodiscard]] HoldFigures figures() const { return hold_.figures(); }

  test::ContiguousPool pool_{16};
  Hold hold_{pool_.source(), Slices(16).bytes()};
};

TEST_F(HoldOfAnUnsteadyPool, WhatWasOneIsAskedForAgain) {
  int asks = 0;
  pool_.on_allocate = [&] {
    ++asks;
    pool_.allocate_error.reset();
    // The grant itself is the first.
    if (asks == 2 || asks == 3) pool_.allocate_error = Error{Code::kExhausted, 0, "", "busy"};
  };
  EXPECT_TRUE(hold_.allocate(Slices(2).bytes()));
  EXPECT_EQ(figures().largest, Slices(14).bytes());
  EXPECT_FALSE(figures().broken);
}

TEST_F(HoldOfAnUnsteadyPool, WhatStaysBrokenIsJoinedLater) {
  int asks = 0;
  pool_.on_allocate = [&] {
    ++asks;
    pool_.allocate_error.reset();
    if (asks >= 2 && asks <= 4) pool_.allocate_error = Error{Code::kExhausted, 0, "", "busy"};
  };
  EXPECT_TRUE(hold_.allocate(Slices(2).bytes()));
  EXPECT_EQ(hold_.held(), Slices(14).bytes());
  EXPECT_EQ(figures().largest, Slices(7).bytes());
  EXPECT_TRUE(figures().broken);
  hold_.join();
  EXPECT_EQ(figures().largest, Slices(14).bytes());
  EXPECT_FALSE(figures().broken);
}

TEST_F(HoldOfAnUnsteadyPool, WithNothingLentItShouldBeOne) {
  auto buffer = hold_.allocate(Slices(2).bytes());
  ASSERT_TRUE(buffer);
  *buffer = Buffer();
  hold_.give_back(Slices(2).bytes());
  hold_.fill();
  refuse(3);
  hold_.join();
  EXPECT_EQ(figures().largest, Slices(14).bytes());
  EXPECT_TRUE(figures().joined);
  EXPECT_TRUE(figures().broken);
  hold_.join();
  EXPECT_EQ(figures().largest, Slices(16).bytes());
  EXPECT_FALSE(figures().broken);
}

TEST_F(HoldOfAnUnsteadyPool, AroundALeaseItNeedNotBe) {
  const auto first = hold_.allocate(Slices(4).bytes());
  const auto between = hold_.allocate(Slices(1).bytes());
  ASSERT_TRUE(first && between);
  {
    auto gone = hold_.allocate(Slices(3).bytes());
    ASSERT_TRUE(gone);
  }
  hold_.give_back(Slices(3).bytes());
  hold_.fill();
  hold_.join();
  EXPECT_FALSE(figures().broken);
}

// Each piece has a descriptor.
TEST(HoldOfManyPieces, IsOfNoMoreThanItMay) {
  test::ContiguousPool pool(16);
  for (std::uint64_t slice = 3; slice < 16; slice += 4)
    pool.take(slice, 1);
  Hold hold(pool.source(), Slices(12).bytes(), 2);
  hold.fill();
  EXPECT_LE(hold.held(), Slices(6).bytes());
  EXPECT_EQ(hold.held() + hold.missing(), Slices(12).bytes());
  for (std::uint64_t slice = 3; slice < 16; slice += 4)
    pool.leave(slice, 1);
  hold.retry();
  EXPECT_FALSE(hold.figures().joined) << "fewer pieces would make room for more";
  hold.join();
  hold.retry();
  hold.join();
  hold.retry();
  EXPECT_EQ(hold.missing(), Bytes(0));
}

}  // namespace
}  // namespace carveout::daemon
