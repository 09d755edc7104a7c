// Lending when something fails: all or nothing, and what is promised afterwards.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "unit/lending_fixture.hpp"

#include "unit/run_loop.hpp"

namespace carveout::daemon {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

Error exhausted() {
  return {Code::kExhausted, ENOSPC, "allocating", "the kernel has not enough memory"};
}
Error broken() {
  return {Code::kSystem, EIO, "the device", "went up in smoke"};
}

class LendingFailure : public LendingTest {
 protected:
  // The grant fails, and by the time that the borrower hears of it nothing is left of it.
  void expect_all_undone(std::uint64_t slices) {
    const std::size_t leases = lending_.leases().size();
    const Bytes free = lending_.figures_for(0, 1).free;
    const std::size_t descriptors = test::open_descriptors();
    FakeBorrower borrower;
    borrower.when_failed = [&] {
      EXPECT_EQ(lending_.figures_for(0, 1).free, free);
      EXPECT_EQ(lending_.leases().size(), leases);
      EXPECT_EQ(test::open_descriptors(), descriptors);
    };
    grant(borrower, slices);
    EXPECT_EQ(borrower.failed, 1);
    EXPECT_EQ(borrower.granted, 0);
  }

  EventLoop::Source look_again_;
};

TEST_F(LendingFailure, OfAnAllocationUndoesEverything) {
  source_.allocate_error = exhausted();
  expect_all_undone(4);
  EXPECT_THAT(source_.calls, ElementsAre("allocate 4"));
  const std::string log = logged();
  EXPECT_THAT(log, HasSubstr("not granted: "));
  EXPECT_THAT(log, HasSubstr("the kernel has not enough memory"));
}

TEST_F(LendingFailure, OfScrubbingUndoesEverythingAndSharesNothing) {
  source_.kernel_zeroes = false;
  source_.scrub_error = broken();
  expect_all_undone(4);
  EXPECT_THAT(source_.calls, ElementsAre("allocate 4", "scrub"));
  expect(kSlices, 0);
}

TEST_F(LendingFailure, OfSharingUndoesEverything) {
  source_.share_error = broken();
  expect_all_undone(4);
  EXPECT_THAT(source_.calls, ElementsAre("allocate 4", "share"));
  expect(kSlices, 0);
}

TEST_F(LendingFailure, LeavesOtherLeasesAlone) {
  FakeBorrower holder;
  grant(holder, 5);
  source_.allocate_error = exhausted();
  expect_all_undone(4);
  EXPECT_EQ(lending_.leases().size(), 1U);
  EXPECT_TRUE(lending_.leases().contains(holder.lease));
  expect(11, 3);
}

TEST_F(LendingFailure, ForWantOfMemoryLowersLargestBelowTheAsk) {
  source_.allocate_error = exhausted();
  expect_all_undone(9);
  expect(kSlices, 8);
  EXPECT_TRUE(reservation_.capped());
  FakeBorrower borrower;
  EXPECT_FALSE(begin(borrower, 9));
  source_.allocate_error.reset();
  grant(borrower, 8);
  EXPECT_EQ(borrower.granted, 1);
  expect(8, 8);
}

TEST_F(LendingFailure, ForWantOfMemoryLowersLargestStepByStep) {
  source_.allocate_error = exhausted();
  for (std::uint64_t ask = kSlices; ask >= 1; --ask) {
    expect_all_undone(ask);
    expect(kSlices, ask - 1);
  }
  FakeBorrower borrower;
  EXPECT_FALSE(begin(borrower, 1));
}

TEST_F(LendingFailure, ForAnotherReasonLowersLargestToNothing) {
  source_.allocate_error = broken();
  expect_all_undone(9);
  expect(kSlices, 0);
  EXPECT_TRUE(reservation_.capped());
}

TEST_F(LendingFailure, IsForgottenWhenSomethingIsReleased) {
  FakeBorrower holder;
  grant(holder, 2);
  source_.allocate_error = exhausted();
  expect_all_undone(10);
  expect(14, 9);
  lending_.release(holder.lease);
  expect(kSlices, kSlices);
  EXPECT_FALSE(reservation_.capped());
}

TEST_F(LendingFailure, IsForgottenWhenAGrantIsUndone) {
  FakeBorrower holder;
  grant(holder, 2);
  source_.allocate_error = exhausted();
  expect_all_undone(10);
  lending_.undo(holder.lease, std::move(holder.memory));
  expect(14, 9);  // its memory is not back yet
  settle();
  expect(kSlices, kSlices);
}

TEST_F(LendingFailure, IsForgottenAfterASecond) {
  source_.allocate_error = exhausted();
  expect_all_undone(10);
  const auto failed = std::chrono::steady_clock::now();
  milliseconds capped_for{};
  const std::function<void()> look = [&] {
    if (!reservation_.capped() || capped_for > milliseconds(10'000)) return loop_->stop();
    capped_for =
        std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - failed);
    look_again_ = *loop_->after(milliseconds(20), look);
  };
  look_again_ = *loop_->after(milliseconds(20), look);
  ASSERT_TRUE(test::run(*loop_));
  EXPECT_GE(capped_for, milliseconds(900));
  EXPECT_LT(capped_for, milliseconds(3'000));
  expect(kSlices, kSlices);
}

TEST_F(LendingFailure, HoldsForASecondFromTheLastOne) {
  source_.allocate_error = exhausted();
  expect_all_undone(10);
  // 0.6 s later another one fails, so that 1.2 s after the first the cap must still hold.
  FakeBorrower borrower;
  const auto again = loop_->after(milliseconds(600), [&] { grant(borrower, 5); });
  run_loop(milliseconds(1'200));
  EXPECT_EQ(borrower.failed, 1);
  expect(kSlices, 4);
}

TEST_F(LendingFailure, OfALargerAskUnderWayDoesNotRaiseLargestAgain) {
  source_.allocate_error = exhausted();
  FakeBorrower small, large;
  close_gate();
  ASSERT_TRUE(begin(small, 4));
  ASSERT_TRUE(begin(large, 8));
  open_gate();
  serve_until([&] { return large.failed == 1; });
  EXPECT_EQ(small.failed, 1);
  // The kernel refused four slices a moment ago, and nothing has been released since.
  expect(kSlices, 3);
}

TEST_F(LendingFailure, OfOneLeavesTheNextInLineAlone) {
  FakeBorrower first, second;
  source_.on_allocate = [this](Bytes size) {
    source_.allocate_error = size > Slices(4).bytes() ? std::optional(exhausted()) : std::nullopt;
  };
  close_gate();
  ASSERT_TRUE(begin(first, 8));
  ASSERT_TRUE(begin(second, 3));
  open_gate();
  serve_until([&] { return second.granted == 1; });
  EXPECT_EQ(first.failed, 1);
  EXPECT_THAT(FakeBorrower::order, ElementsAre(&first, &second));
  expect(13, 7);
}

TEST_F(LendingFailure, ToDeliverUndoesAndPromisesNothingForASecond) {
  FakeBorrower borrower;
  grant(borrower, 3);
  lending_.undeliverable(borrower.lease, std::move(borrower.memory), "descriptors in flight");
  EXPECT_TRUE(lending_.leases().empty());
  EXPECT_THAT(logged(), HasSubstr("not granted: descriptors in flight"));
  expect(13, 0);
  settle();
  // That memory came back has nothing to do with why nothing is promised.
  expect(kSlices, 0);
  run_loop(milliseconds(1'300));
  expect(kSlices, kSlices);
}

}  // namespace
}  // namespace carveout::daemon
