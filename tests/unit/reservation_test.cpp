#include "reservation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace carveout::daemon {
namespace {

constexpr Bytes kBase(0x280200000);

class ReservationOfTen : public testing::Test {
 protected:
  void expect(std::uint64_t free, std::uint64_t largest) const {
    const Figures now = reservation_.figures();
    EXPECT_EQ(now.base, kBase);
    EXPECT_EQ(now.size, Slices(10).bytes());
    EXPECT_EQ(now.free, Slices(free).bytes());
    EXPECT_EQ(now.largest, Slices(largest).bytes());
    EXPECT_EQ(reservation_.largest_for(0), Slices(largest));
  }
  Charge charge(std::uint64_t slices) {
    auto charged = reservation_.charge(Slices(slices), 0);
    EXPECT_TRUE(charged) << slices;
    return charged ? *std::move(charged) : Charge();
  }

  Reservation reservation_{kBase, Slices(10)};
};

TEST_F(ReservationOfTen, IsWholeAtFirst) {
  expect(10, 10);
  EXPECT_FALSE(reservation_.draining());
  EXPECT_FALSE(reservation_.capped());
}

TEST_F(ReservationOfTen, ChargesAndTakesBack) {
  {
    const Charge three = charge(3);
    EXPECT_EQ(three.slices(), Slices(3));
    expect(7, 7);
    const Charge seven = charge(7);
    expect(0, 0);
  }
  expect(10, 10);
}

TEST_F(ReservationOfTen, ChargesNoMoreThanThereIs) {
  EXPECT_FALSE(reservation_.charge(Slices(11), 0));
  EXPECT_FALSE(reservation_.charge(Slices(~std::uint64_t{0}), 0));
  expect(10, 10);
  const Charge all = charge(10);
  EXPECT_FALSE(reservation_.charge(Slices(1), 0));
  expect(0, 0);
}

TEST_F(ReservationOfTen, GivesBackOnce) {
  Charge five = charge(5);
  five.give_back();
  expect(10, 10);
  EXPECT_EQ(five.slices(), Slices(0));
  five.give_back();
  expect(10, 10);
  Charge().give_back();
}

TEST_F(ReservationOfTen, AChargeMoves) {
  Charge from = charge(4);
  Charge to(std::move(from));
  EXPECT_EQ(from.slices(), Slices(0));  // NOLINT(bugprone-use-after-move): what it promises
  from.give_back();
  expect(6, 6);
  EXPECT_EQ(to.slices(), Slices(4));
  {
    const Charge inner(std::move(to));
    expect(6, 6);
  }
  expect(10, 10);
}

TEST_F(ReservationOfTen, AnAssignedChargeGivesBackWhatItHeld) {
  Charge held = charge(3);
  held = charge(4);
  EXPECT_EQ(held.slices(), Slices(4));
  expect(6, 6);
  held = Charge();
  expect(10, 10);
}

TEST_F(ReservationOfTen, AChargeSurvivesBeingMovedToItself) {
  Charge held = charge(3);
  Charge& same = held;
  held = std::move(same);
  EXPECT_EQ(held.slices(), Slices(3));
  expect(7, 7);
}

TEST_F(ReservationOfTen, ChargesOfTwoReservationsDoNotMix) {
  Reservation other(Bytes(0), Slices(5));
  Charge held = charge(3);
  held = *other.charge(Slices(2), 0);
  expect(10, 10);
  EXPECT_EQ(other.largest_for(0), Slices(3));
  held.give_back();
  EXPECT_EQ(other.largest_for(0), Slices(5));
}

TEST_F(ReservationOfTen, CapsWhatItPromises) {
  reservation_.cap_largest(Slices(4));
  EXPECT_TRUE(reservation_.capped());
  expect(10, 4);
  EXPECT_FALSE(reservation_.charge(Slices(5), 0));
  const Charge four = charge(4);
  expect(6, 4);
  const Charge other = charge(4);
  expect(2, 2);
}

TEST_F(ReservationOfTen, OfSeveralCapsTheLowestHolds) {
  reservation_.cap_largest(Slices(6));
  reservation_.cap_largest(Slices(3));
  expect(10, 3);
  reservation_.cap_largest(Slices(5));
  expect(10, 3);
  reservation_.cap_largest(Slices(0));
  expect(10, 0);
  EXPECT_FALSE(reservation_.charge(Slices(1), 0));
}

TEST_F(ReservationOfTen, LiftsItsCap) {
  reservation_.cap_largest(Slices(0));
  reservation_.lift_cap();
  EXPECT_FALSE(reservation_.capped());
  expect(10, 10);
  reservation_.lift_cap();
  reservation_.cap_largest(Slices(7));  // an earlier, lower one is forgotten
  expect(10, 7);
}

TEST_F(ReservationOfTen, AReleaseLiftsTheCap) {
  Charge two = charge(2);
  reservation_.cap_largest(Slices(1));
  expect(8, 1);
  two.give_back();
  EXPECT_FALSE(reservation_.capped());
  expect(10, 10);
}

TEST_F(ReservationOfTen, WhileDrainingChargesNothing) {
  Charge three = charge(3);
  reservation_.set_draining(true);
  EXPECT_TRUE(reservation_.draining());
  expect(7, 0);
  EXPECT_FALSE(reservation_.charge(Slices(1), 0));
  EXPECT_EQ(three.slices(), Slices(3));
  three.give_back();
  expect(10, 0);
  reservation_.set_draining(false);
  expect(10, 10);
}

TEST_F(ReservationOfTen, DrainingAndCapsDoNotTouchEachOther) {
  reservation_.cap_largest(Slices(4));
  reservation_.set_draining(true);
  reservation_.lift_cap();
  expect(10, 0);
  reservation_.cap_largest(Slices(2));
  reservation_.set_draining(false);
  expect(10, 2);
}

// The same rules as a list of what is out: nothing is kept that could be computed.
struct Model {
  struct Out {
    UserId user;
    std::uint64_t slices;
  };

  [[nodiscard]] std::uint64_t of(UserId user) const {
    std::uint64_t sum = 0;
    for (const Out& one : out)
      sum += one.user == user ? one.slices : 0;
    return sum;
  }
  [[nodiscard]] std::uint64_t free() const {
    std::uint64_t left = size;
    for (const Out& one : out)
      left -= one.slices;
    return left;
  }
  [[nodiscard]] std::uint64_t largest(UserId user) const {
    const std::uint64_t share = std::max(most_per_user, of(user)) - of(user);
    return draining ? 0 : std::min({free(), cap.value_or(size), share});
  }

  std::vector<Out> out;
  std::optional<std::uint64_t> cap;
  bool draining = false;
  std::uint64_t size = 0;
  std::uint64_t most_per_user = 0;
};

class RandomWalk {
 public:
  RandomWalk(std::uint64_t seed, std::uint64_t size, const std::optional<Slices>& most_per_user)
      : random_(seed), reservation_(kBase, Slices(size), most_per_user) {
    model_.size = size;
    model_.most_per_user = most_per_user.value_or(Slices(size)).count();
  }

  void step() {
    switch (below(8)) {
      case 0:
      case 1:
      case 2:
        return charge();
      case 3:
      case 4:
        return give_back();
      case 5:
        return cap();
      case 6:
        reservation_.lift_cap();
        return model_.cap.reset();
      default:
        model_.draining = below(3) == 0;
        reservation_.set_draining(model_.draining);
    }
  }
  [[nodiscard]] bool agrees() const {
    for (UserId user = 0; user < kUsers; ++user) {
      const Figures now = reservation_.figures_for(user);
      const Bytes largest = Slices(model_.largest(user)).bytes();
      if (now.size != Slices(model_.size).bytes() || now.free != Slices(model_.free()).bytes() ||
          now.largest != largest || reservation_.largest_for(user).bytes() != largest) {
        return false;
      }
    }
    return reservation_.capped() == model_.cap.has_value() && agreed_;
  }

 private:
  static constexpr UserId kUsers = 4;

  std::uint64_t below(std::uint64_t count) { return random_() % count; }

  void charge() {
    const auto user = static_cast<UserId>(below(kUsers));
    const std::uint64_t ask = 1 + below(model_.size / 3 + 1);
    auto charged = reservation_.charge(Slices(ask), user);
    agreed_ = agreed_ && charged.has_value() == (ask <= model_.largest(user));
    if (!charged) return;
    model_.out.push_back({user, ask});
    charges_.push_back(*std::move(charged));
  }
  void give_back() {
    if (charges_.empty()) return;
    const auto at = static_cast<std::ptrdiff_t>(below(charges_.size()));
    const bool cancels = below(3) == 0;
    if (cancels) charges_[static_cast<std::size_t>(at)].cancel();
    // Erasing moves the ones behind it forward.
    charges_.erase(charges_.begin() + at);
    model_.out.erase(model_.out.begin() + at);
    if (!cancels) model_.cap.reset();
  }
  void cap() {
    const std::uint64_t most = below(model_.size);
    reservation_.cap_largest(Slices(most));
    model_.cap = std::min(most, model_.cap.value_or(most));
  }

  std::mt19937_64 random_;
  Reservation reservation_;
  std::vector<Charge> charges_;
  Model model_;
  bool agreed_ = true;
};

TEST(Reservation, BehavesAsItsModelInARandomWalk) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const std::uint64_t size = 1 + seed * 7;
    std::optional<Slices> most_per_user;
    if (seed % 2 == 0) most_per_user = Slices(size / 3);
    RandomWalk walk(seed, size, most_per_user);
    for (int i = 0; i < 5'000; ++i) {
      walk.step();
      ASSERT_TRUE(walk.agrees()) << "seed " << seed << ", step " << i;
    }
  }
}

TEST_F(ReservationOfTen, ChargesNobodyForNothing) {
  EXPECT_FALSE(reservation_.charge(Slices(0), 0));
  EXPECT_EQ(reservation_.figures().free, reservation_.figures().size);
}

TEST_F(ReservationOfTen, AdoptsWhatIsLentAlready) {
  Charge four = reservation_.adopt(Slices(4), 0);
  EXPECT_EQ(four.slices(), Slices(4));
  expect(6, 6);
  EXPECT_FALSE(reservation_.charge(Slices(7), 0));
  four.give_back();
  expect(10, 10);
}

TEST_F(ReservationOfTen, AdoptsWhateverElseHolds) {
  reservation_.set_draining(true);
  reservation_.cap_largest(Slices(1));
  const Charge four = reservation_.adopt(Slices(4), 0);
  expect(6, 0);
  EXPECT_TRUE(reservation_.capped());
  reservation_.set_draining(false);
  expect(6, 1);
}

TEST_F(ReservationOfTen, WhatIsAdoptedBeyondItComesBackFirst) {
  Charge seven = reservation_.adopt(Slices(7), 1);
  Charge five = reservation_.adopt(Slices(5), 2);
  expect(0, 0);
  EXPECT_FALSE(reservation_.charge(Slices(1), 0));
  five.give_back();
  expect(3, 3);
  Charge eight = reservation_.adopt(Slices(8), 2);
  seven.give_back();
  expect(2, 2);
  eight.give_back();
  expect(10, 10);
}

class UserLimit : public testing::Test {
 protected:
  Reservation reservation_{Bytes(0), Slices(10), Slices(4)};
};

TEST_F(UserLimit, IsOneUsersOverAllItsCharges) {
  const auto one = reservation_.charge(Slices(1), 7);
  const auto two = reservation_.charge(Slices(2), 7);
  ASSERT_TRUE(one && two);
  EXPECT_EQ(reservation_.largest_for(7), Slices(1));
  EXPECT_FALSE(reservation_.charge(Slices(2), 7));
  EXPECT_TRUE(reservation_.charge(Slices(1), 7));  // given back at once
  EXPECT_EQ(reservation_.figures_for(7).free, Slices(7).bytes());
  EXPECT_EQ(reservation_.figures_for(7).largest, Slices(1).bytes());
}

TEST_F(UserLimit, LeavesOthersAlone) {
  const auto mine = reservation_.charge(Slices(4), 7);
  ASSERT_TRUE(mine);
  EXPECT_EQ(reservation_.largest_for(7), Slices(0));
  EXPECT_EQ(reservation_.largest_for(8), Slices(4));
  EXPECT_EQ(reservation_.figures().largest, Slices(6).bytes()) << "of nobody in particular";
}

TEST_F(UserLimit, NeverPromisesMoreThanIsFree) {
  const auto a = reservation_.charge(Slices(4), 1);
  const auto b = reservation_.charge(Slices(4), 2);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(reservation_.largest_for(3), Slices(2));
  reservation_.cap_largest(Slices(1));
  EXPECT_EQ(reservation_.largest_for(3), Slices(1));
  reservation_.set_draining(true);
  EXPECT_EQ(reservation_.largest_for(3), Slices(0));
}

TEST_F(UserLimit, ComesBackWithEveryWayOfGivingBack) {
  for (const bool cancels : {true, false}) {
    auto charge = reservation_.charge(Slices(4), 7);
    ASSERT_TRUE(charge);
    Charge moved = *std::move(charge);
    EXPECT_EQ(reservation_.largest_for(7), Slices(0));
    cancels ? moved.cancel() : moved.give_back();
    EXPECT_EQ(reservation_.largest_for(7), Slices(4));
  }
}

TEST_F(UserLimit, CountsWhatIsAdoptedAndDoesNotRefuseIt) {
  Charge six = reservation_.adopt(Slices(6), 7);
  EXPECT_EQ(reservation_.largest_for(7), Slices(0));
  EXPECT_EQ(reservation_.largest_for(8), Slices(4));
  six = Charge();
  EXPECT_EQ(reservation_.largest_for(7), Slices(4));
}

}  // namespace
}  // namespace carveout::daemon
