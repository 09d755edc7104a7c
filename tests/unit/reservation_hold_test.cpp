// The accounts of a reservation that we hold: what is missing, and who is charged with it.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <random>

#include "reservation.hpp"

namespace carveout::daemon {
namespace {

constexpr UserId kAnn = 1001;
constexpr UserId kBob = 1002;

// No more than 8 slices of 20 for one user.
class HeldReservation : public testing::Test {
 protected:
  // What is missing that is known to be this user's. Exact while 8 are free to it.
  [[nodiscard]] std::uint64_t charged(UserId user) const {
    return 8 - reservation_.largest_for(user).count();
  }
  void expect(std::uint64_t free, std::uint64_t largest) const {
    EXPECT_EQ(reservation_.figures().size, Slices(20).bytes());
    EXPECT_EQ(reservation_.figures().free, Slices(free).bytes());
    EXPECT_EQ(reservation_.figures().largest, Slices(largest).bytes());
  }
  // A user has had memory; some of it may be missing now.
  void release(UserId user, std::uint64_t slices, std::uint64_t missing) {
    reservation_.suspect(Slices(slices), user);
    reservation_.set_missing(Slices(missing));
  }

  Reservation reservation_{Bytes(0x280200000), Slices(20), Slices(8)};
};

TEST_F(HeldReservation, WhatIsMissingIsNotFree) {
  expect(20, 20);
  EXPECT_EQ(reservation_.missing(), Slices(0));
  reservation_.set_missing(Slices(3));
  expect(17, 17);
  EXPECT_EQ(reservation_.missing(), Slices(3));
  EXPECT_EQ(reservation_.figures_for(kAnn).free, Slices(17).bytes());
  const auto five = reservation_.charge(Slices(5), kAnn);
  ASSERT_TRUE(five);
  expect(12, 12);
  reservation_.set_missing(Slices(0));
  expect(15, 15);
}

TEST_F(HeldReservation, RefusesWhatIsMissing) {
  reservation_.set_missing(Slices(14));
  EXPECT_FALSE(reservation_.charge(Slices(7), kAnn));
  EXPECT_TRUE(reservation_.charge(Slices(6), kAnn));
  reservation_.set_missing(Slices(20));
  expect(0, 0);
  EXPECT_FALSE(reservation_.charge(Slices(1), kAnn));
}

TEST_F(HeldReservation, MoreMissingThanIsLeftIsNotLessThanNothing) {
  const Charge lent = reservation_.adopt(Slices(15), kAnn);
  reservation_.set_missing(Slices(9));
  expect(0, 0);
  EXPECT_EQ(reservation_.missing(), Slices(9));
  reservation_.set_missing(Slices(4));
  expect(1, 1);
}

TEST_F(HeldReservation, PromisesOnlyWhatIsCertain) {
  reservation_.set_certain(Slices(5));
  expect(20, 5);
  EXPECT_EQ(reservation_.largest_for(kAnn), Slices(5));
  EXPECT_FALSE(reservation_.charge(Slices(6), kAnn));
  const auto five = reservation_.charge(Slices(5), kAnn);
  ASSERT_TRUE(five);
  expect(15, 5);
  reservation_.set_certain(Slices(0));
  expect(15, 0);
  EXPECT_FALSE(reservation_.charge(Slices(1), kBob));
  reservation_.set_certain(std::nullopt);
  expect(15, 15);
}

TEST_F(HeldReservation, TheLowestOfCapAndCertainAndFreeHolds) {
  reservation_.set_certain(Slices(9));
  reservation_.cap_largest(Slices(6));
  expect(20, 6);
  reservation_.lift_cap();
  expect(20, 9);
  reservation_.set_missing(Slices(14));
  expect(6, 6);
  reservation_.set_draining(true);
  expect(6, 0);
}

TEST_F(HeldReservation, AReleaseLeavesWhatIsCertain) {
  auto four = reservation_.charge(Slices(4), kAnn);
  reservation_.set_certain(Slices(3));
  four->give_back();
  expect(20, 3);
}

TEST_F(HeldReservation, ChargesTheOnlyOneThatCanHaveKeptIt) {
  release(kAnn, 6, 4);
  EXPECT_EQ(charged(kAnn), 4U);
  EXPECT_EQ(charged(kBob), 0U);
  EXPECT_FALSE(reservation_.charge(Slices(5), kAnn));
  EXPECT_TRUE(reservation_.charge(Slices(4), kAnn));
  reservation_.set_missing(Slices(1));
  EXPECT_EQ(charged(kAnn), 1U);
}

TEST_F(HeldReservation, ChargesNoMoreThanWasGivenBack) {
  release(kAnn, 3, 5);
  EXPECT_EQ(charged(kAnn), 3U);
}

TEST_F(HeldReservation, ChargesASuspectOnlyOnceItIsMissing) {
  reservation_.suspect(Slices(6), kAnn);
  EXPECT_EQ(charged(kAnn), 0U);
  reservation_.set_missing(Slices(0));
  EXPECT_EQ(charged(kAnn), 0U);
  reservation_.set_missing(Slices(2));
  EXPECT_EQ(charged(kAnn), 0U) << "all that it gave back was there";
}

TEST_F(HeldReservation, OfTwoChargesWhatTheOtherCannotHaveKept) {
  reservation_.suspect(Slices(5), kAnn);
  release(kBob, 3, 6);
  EXPECT_EQ(charged(kAnn), 3U);
  EXPECT_EQ(charged(kBob), 1U);
  reservation_.set_missing(Slices(3));
  EXPECT_EQ(charged(kAnn), 0U);
  EXPECT_EQ(charged(kBob), 0U);
}

TEST_F(HeldReservation, OfTwoThatKeptAllChargesBoth) {
  reservation_.suspect(Slices(5), kAnn);
  release(kBob, 3, 8);
  EXPECT_EQ(charged(kAnn), 5U);
  EXPECT_EQ(charged(kBob), 3U);
}

TEST_F(HeldReservation, HonestReleasesHideNoMoreThanIsMissingAlready) {
  release(kAnn, 2, 2);
  EXPECT_EQ(charged(kAnn), 2U);
  for (int i = 0; i < 10; ++i)
    release(kBob, 6, 2);  // of all that, it can have kept the two
  release(kAnn, 5, 7);
  EXPECT_EQ(charged(kAnn), 5U);
  EXPECT_EQ(charged(kBob), 0U);
}

TEST_F(HeldReservation, ChargesNobodyWithWhatWasMissingBefore) {
  reservation_.set_missing(Slices(4));
  release(kAnn, 6, 4);
  EXPECT_EQ(charged(kAnn), 0U);
  release(kAnn, 6, 7);
  EXPECT_EQ(charged(kAnn), 3U);
}

TEST_F(HeldReservation, WhatWasMissingBeforeMayBeLess) {
  reservation_.set_missing(Slices(4));
  reservation_.set_missing(Slices(1));
  release(kAnn, 6, 5);
  EXPECT_EQ(charged(kAnn), 4U);
}

TEST_F(HeldReservation, IsClearedWhenItComesBack) {
  release(kAnn, 6, 4);
  reservation_.set_missing(Slices(0));
  EXPECT_EQ(charged(kAnn), 0U);
  // What is missing from now on has nothing to do with it.
  reservation_.set_missing(Slices(4));
  EXPECT_EQ(charged(kAnn), 0U);
  release(kBob, 6, 6);
  EXPECT_EQ(charged(kBob), 2U);
  EXPECT_EQ(charged(kAnn), 0U);
}

TEST_F(HeldReservation, CountsWhatIsHadBesideWhatIsKept) {
  const auto three = reservation_.charge(Slices(3), kAnn);
  ASSERT_TRUE(three);
  release(kAnn, 4, 4);
  EXPECT_EQ(reservation_.largest_for(kAnn), Slices(1));
  EXPECT_EQ(reservation_.largest_for(kBob), Slices(8));
  const auto one = reservation_.charge(Slices(1), kAnn);
  ASSERT_TRUE(one);
  EXPECT_EQ(reservation_.largest_for(kAnn), Slices(0));
  release(kAnn, 9, 9);  // over the limit: by a lower one, earlier
  EXPECT_EQ(reservation_.largest_for(kAnn), Slices(0));
}

TEST_F(HeldReservation, WithoutALimitNobodyIsCharged) {
  Reservation unlimited(Bytes(0), Slices(20));
  unlimited.suspect(Slices(6), kAnn);
  unlimited.set_missing(Slices(6));
  EXPECT_EQ(unlimited.largest_for(kAnn), Slices(14));
  EXPECT_EQ(unlimited.largest_for(kBob), Slices(14));
}

TEST_F(HeldReservation, AdoptsBeyondItWhateverIsMissing) {
  reservation_.set_missing(Slices(2));
  Charge lent = reservation_.adopt(Slices(25), kAnn);
  expect(0, 0);
  lent = Charge();
  release(kAnn, 25, 5);
  expect(15, 15);
  EXPECT_EQ(charged(kAnn), 3U);
}

// Who has kept how much, and what the accounts are told of it.
class Keepers {
 public:
  explicit Keepers(std::uint64_t seed) : random_(seed) {}

  void missing_before(std::uint64_t slices) {
    strangers_ = slices;
    tell();
  }
  void step(UserId users) {
    const auto user = static_cast<UserId>(random_() % users);
    std::uint64_t& kept = kept_[user];
    switch (random_() % 4) {
      case 0:
      case 1: {
        const std::uint64_t slices = 1 + random_() % 8;
        auto charge = reservation_.adopt(Slices(slices), user);
        charge.give_back();
        reservation_.suspect(Slices(slices), user);
        if (random_() % 2 == 0 && sum() < kMost) kept += random_() % (slices + 1);
        break;
      }
      case 2:
        kept -= kept == 0 ? 0 : 1 + random_() % kept;
        break;
      default:
        kept = 0;
    }
    if (random_() % 8 == 0) strangers_ -= strangers_ == 0 ? 0 : random_() % strangers_;
    tell();
  }
  // Exact: there is always more free than a user may have.
  [[nodiscard]] std::uint64_t charged(UserId user) const {
    return kLimit - reservation_.largest_for(user).count();
  }
  [[nodiscard]] std::uint64_t kept(UserId user) const {
    const auto found = kept_.find(user);
    return found == kept_.end() ? 0 : found->second;
  }
  [[nodiscard]] std::uint64_t free() const {
    return Slices::holding(reservation_.figures().free).count();
  }
  [[nodiscard]] std::uint64_t sum() const {
    std::uint64_t slices = strangers_;
    for (const auto& [user, count] : kept_)
      slices += count;
    return slices;
  }

  static constexpr std::uint64_t kMost = 300;
  static constexpr std::uint64_t kLimit = 400;
  static constexpr std::uint64_t kSize = 1'000;

 private:
  void tell() { reservation_.set_missing(Slices(sum())); }

  std::mt19937_64 random_;
  Reservation reservation_{Bytes(0), Slices(kSize), Slices(kLimit)};
  std::map<UserId, std::uint64_t> kept_;
  std::uint64_t strangers_ = 0;
};

TEST(HeldReservationWalk, NeverChargesMoreThanIsKept) {
  std::uint64_t charged = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Keepers keepers(seed);
    const auto users = static_cast<UserId>(2 + seed % 4);
    if (seed % 3 == 0) keepers.missing_before(seed % 40);
    for (int i = 0; i < 300; ++i) {
      keepers.step(users);
      ASSERT_EQ(keepers.free(), Keepers::kSize - keepers.sum());
      for (UserId user = 0; user <= users; ++user) {
        ASSERT_LE(keepers.charged(user), keepers.kept(user))
            << "seed " << seed << ", step " << i << ", user " << user;
        charged += keepers.charged(user);
      }
    }
  }
  EXPECT_GT(charged, 0U);
}

TEST(HeldReservationWalk, ChargesTheOnlyOneExactly) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Keepers keepers(seed);
    for (int i = 0; i < 300; ++i) {
      keepers.step(1);
      ASSERT_EQ(keepers.charged(0), keepers.kept(0)) << "seed " << seed << ", step " << i;
    }
  }
}

}  // namespace
}  // namespace carveout::daemon
