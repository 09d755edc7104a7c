// Claiming the whole reservation when the daemon starts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "hold.hpp"
#include "options.hpp"
#include "startup.hpp"
#include "unit/contiguous_source.hpp"

namespace carveout::daemon {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// 16 slices are wanted.
class ClaimReservation : public testing::Test {
 protected:
  ClaimReservation() { options_.size = mib(32); }

  Result<Bytes> claim(std::uint64_t lent = 0, std::uint64_t lost = 0) {
    return claim_reservation(hold_, Slices(lent).bytes(), Slices(lost).bytes(), options_);
  }

  Options options_;
  test::ContiguousPool pool_{16};
  Hold hold_{pool_.source(), mib(32)};
};

TEST_F(ClaimReservation, IsTheWholeOfIt) {
  const auto claimed = claim();
  ASSERT_TRUE(claimed);
  EXPECT_EQ(*claimed, mib(32));
  EXPECT_EQ(hold_.largest(), mib(32));
  EXPECT_EQ(pool_.free(), 0U);
}

TEST_F(ClaimReservation, IsTheWholeOfItInPieces) {
  pool_.take(7, 1);
  options_.size = mib(30);
  hold_.want(mib(30));
  const auto claimed = claim();
  ASSERT_TRUE(claimed);
  EXPECT_EQ(*claimed, mib(30));
  EXPECT_EQ(hold_.held(), mib(30));
  EXPECT_LT(hold_.largest(), mib(30));
}

TEST_F(ClaimReservation, RefusesLessAndSaysHowMuchThereIs) {
  pool_.take(0, 2);
  const auto claimed = claim();
  ASSERT_FALSE(claimed);
  EXPECT_EQ(claimed.error().code, Code::kExhausted);
  EXPECT_EQ(claimed.error().context, "--size 32 MiB");
  EXPECT_THAT(claimed.error().message,
              AllOf(HasSubstr("the kernel gives 28 MiB of it"), HasSubstr("--allow-partial"),
                    HasSubstr("no such run")));  // the kernel's answer
}

TEST_F(ClaimReservation, WhatWasThereCanBeAskedFor) {
  pool_.take(0, 2);
  ASSERT_FALSE(claim());
  options_.size = mib(28);
  hold_.want(mib(28));
  const auto claimed = claim();
  ASSERT_TRUE(claimed);
  EXPECT_EQ(*claimed, mib(28));
}

TEST_F(ClaimReservation, TakesLessIfThatWillDo) {
  options_.allow_partial = true;
  pool_.take(0, 2);
  const auto claimed = claim();
  ASSERT_TRUE(claimed);
  EXPECT_EQ(*claimed, mib(28));
  EXPECT_EQ(hold_.largest(), mib(28));
  EXPECT_EQ(hold_.missing(), Bytes(0)) << "it is the size from now on";
  pool_.leave(0, 2);
  hold_.retry();
  EXPECT_EQ(hold_.held(), mib(28));
}

TEST_F(ClaimReservation, TakesTheWholeWhereLessWouldDo) {
  options_.allow_partial = true;
  const auto claimed = claim();
  ASSERT_TRUE(claimed);
  EXPECT_EQ(*claimed, mib(32));
}

TEST_F(ClaimReservation, RefusesNothingAtAll) {
  pool_.take(0, 16);
  for (const bool allow_partial : {false, true}) {
    options_.allow_partial = allow_partial;
    const auto claimed = claim();
    ASSERT_FALSE(claimed) << allow_partial;
    EXPECT_THAT(claimed.error().message,
                AllOf(HasSubstr("the kernel gives 0 B of it"), HasSubstr("nothing of it is free"),
                      Not(HasSubstr("--allow-partial"))));
  }
}

TEST_F(ClaimReservation, SaysWhyWhereTheDeviceFails) {
  pool_.allocate_error = Error{Code::kSystem, 13, "/dev/dma_heap/carveout", "cannot be used"};
  const auto claimed = claim();
  ASSERT_FALSE(claimed);
  EXPECT_THAT(claimed.error().message, HasSubstr("/dev/dma_heap/carveout: cannot be used"));
}

TEST_F(ClaimReservation, CountsWhatIsLent) {
  pool_.take(0, 5);  // what an earlier start has lent
  const auto claimed = claim(5);
  ASSERT_TRUE(claimed);
  EXPECT_EQ(*claimed, mib(32));
  EXPECT_EQ(hold_.held(), Slices(11).bytes());
  EXPECT_EQ(hold_.missing(), Bytes(0));
  pool_.leave(0, 5);
  hold_.give_back(Slices(5).bytes());
  hold_.fill();
  EXPECT_EQ(hold_.held(), mib(32));
}

TEST_F(ClaimReservation, WithSomethingLentLessIsMissing) {
  pool_.take(0, 5);  // what an earlier start has lent
  pool_.take(5, 3);  // a stranger
  for (const bool allow_partial : {false, true}) {
    options_.allow_partial = allow_partial;
    Hold hold(pool_.source(), mib(32));
    const auto claimed = claim_reservation(hold, Slices(5).bytes(), Bytes(0), options_);
    ASSERT_TRUE(claimed);
    EXPECT_EQ(*claimed, mib(32));
    EXPECT_EQ(hold.held(), Slices(8).bytes());
    EXPECT_EQ(hold.missing(), Slices(3).bytes());
  }
}

TEST_F(ClaimReservation, WithSomethingLentNothingAtAllIsMissing) {
  pool_.take(0, 16);
  const auto claimed = claim(1);
  ASSERT_TRUE(claimed);
  EXPECT_EQ(*claimed, mib(32));
  EXPECT_EQ(hold_.missing(), Slices(15).bytes());
}

TEST_F(ClaimReservation, WithMoreLentThanItIsNothingIsHeld) {
  const auto claimed = claim(20);
  ASSERT_TRUE(claimed);
  EXPECT_EQ(*claimed, mib(32));
  EXPECT_EQ(hold_.held(), Bytes(0));
  EXPECT_EQ(hold_.missing(), Bytes(0));
}

TEST(Holds, ByDefaultWhatADisplayDriverHas) {
  Options options;
  for (const char* backend : {"memfd", "dma-heap", "drm"}) {
    options.backend = backend;
    options.hold = "auto";
    EXPECT_EQ(holds(options), options.backend == "drm") << backend;
    options.hold = "yes";
    EXPECT_TRUE(holds(options)) << backend;
    options.hold = "no";
    EXPECT_FALSE(holds(options)) << backend;
  }
}

// Whoever had them may have the memory still.
TEST_F(ClaimReservation, WhatWasLostMayBeMissing) {
  pool_.take(0, 2);
  const auto claimed = claim(0, 2);
  ASSERT_TRUE(claimed) << claimed.error().describe();
  EXPECT_EQ(*claimed, options_.size);
  EXPECT_EQ(hold_.missing(), Slices(2).bytes());
}

TEST_F(ClaimReservation, MoreThanWasLostMayNot) {
  pool_.take(0, 3);
  EXPECT_FALSE(claim(0, 2));
}

}  // namespace
}  // namespace carveout::daemon
