// Lending from a reservation that is held: what is promised while it is taken back, and what is
// missing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "unit/call.hpp"
#include "unit/lending_hold_fixture.hpp"

namespace carveout::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Ask = test::ContiguousPool::Ask;

TEST_F(LendingHold, LendsFromWhatIsHeld) {
  expect(128, 128);
  FakeBorrower borrower;
  lend(borrower, 28);
  expect(100, 100);
  EXPECT_EQ(held_.missing(), Slices(0));
  EXPECT_EQ(pool_.free(), 0U);
  release(borrower);
  expect_whole();
}

TEST_F(LendingHold, AReleaseIsFreeAtOnce) {
  FakeBorrower first, second;
  lend(first, 128);
  expect(0, 0);
  close_gate();  // the refill waits
  release(first);
  expect(128, 128);
  EXPECT_EQ(pool_.free(), 128U);
  ASSERT_TRUE(ask(second, 128));
  expect(0, 0);
  open_gate();
  serve_until([&] { return second.granted + second.failed == 1; });
  EXPECT_EQ(second.granted, 1);
  take(second);
  release(second);
  expect_whole();
}

TEST_F(LendingHold, LendsWhatCameBackBeforeTheRefillThatTakesIt) {
  FakeBorrower first, second, third;
  lend(first, 10);
  lend(second, 90);
  close_gate();
  release(first);   // its refill waits in the worker
  release(second);  // ... and this one's for that
  ASSERT_TRUE(ask(third, 128));
  open_gate();
  serve_until([&] { return third.granted + third.failed == 1; });
  EXPECT_EQ(third.granted, 1);
  settle_refills();
  expect(0, 0);
  EXPECT_EQ(held_.missing(), Slices(0));
  take(third);
  release(third);
  expect_whole();
}

TEST_F(LendingHold, AGrantFromBeforeAReleaseSaysNothingOfWhatIsFree) {
  FakeBorrower first, second;
  lend(first, 64);
  ASSERT_TRUE(ask(second, 4));
  std::promise<void> refilled;
  auto wait = std::make_shared<std::future<void>>(refilled.get_future());
  worker_->submit(std::make_unique<Call>([wait] { wait->wait(); }));
  release(first);
  serve_until([&] { return second.granted == 1; });
  expect(124, 124);  // though it left 60
  refilled.set_value();
  settle_refills();
  expect(124, 124);
}

TEST_F(LendingHold, TakesABurstOfReleasesBackAtOnce) {
  std::vector<FakeBorrower> borrowers(100);
  for (FakeBorrower& borrower : borrowers)
    lend(borrower, 1);
  settle_refills();
  (void)pool_.take_asks();
  close_gate();
  for (FakeBorrower& borrower : borrowers)
    release(borrower);
  expect(128, 128);
  open_gate();
  settle_refills();
  EXPECT_THAT(pool_.take_asks(),
              ElementsAre(Ask{.slices = 1, .given = true}, Ask{.slices = 99, .given = true}));
  expect_whole();
}

TEST_F(LendingHold, JoinsWhatHasComeBackOnceForMany) {
  std::vector<FakeBorrower> borrowers(4);
  for (FakeBorrower& borrower : borrowers)
    lend(borrower, 8);
  (void)pool_.take_asks();
  for (FakeBorrower& borrower : borrowers) {
    release(borrower);
    settle_refills();
  }
  EXPECT_THAT(pool_.take_asks(), SizeIs(4));
  pass_joining();
  EXPECT_THAT(pool_.take_asks(), ElementsAre(Ask{.slices = 128, .given = true}));
  EXPECT_EQ(hold_.largest(), Slices(128).bytes());
  expect_whole();
}

TEST_F(LendingHold, PromisesOnePieceOnceThatIsKnown) {
  std::vector<FakeBorrower> borrowers(4);
  for (FakeBorrower& borrower : borrowers)
    lend(borrower, 32);
  release(borrowers[0]);
  release(borrowers[2]);
  settle_refills();
  expect(64, 64);  // believed until it has been tried
  pass_joining();
  expect(64, 32);
  FakeBorrower more;
  EXPECT_FALSE(ask(more, 33));
  lend(more, 32);
  EXPECT_EQ(more.granted, 1);
  expect(32, 32);
}

TEST_F(LendingHold, TriesWhatItBelievesAndHoldsItAfterwards) {
  std::vector<FakeBorrower> borrowers(4);
  for (FakeBorrower& borrower : borrowers)
    lend(borrower, 32);
  release(borrowers[0]);
  release(borrowers[2]);
  settle_refills();
  FakeBorrower more;
  lend(more, 33);
  EXPECT_EQ(more.failed, 1);
  EXPECT_TRUE(held_.capped());
  EXPECT_EQ(held_.missing(), Slices(0));
  EXPECT_EQ(hold_.held(), Slices(64).bytes());
  EXPECT_LE(held_.figures().largest, Slices(32).bytes());
  lend(more, 32);
  EXPECT_EQ(more.granted, 1);
}

TEST_F(LendingHold, SeesWhatABorrowerKeeps) {
  FakeBorrower keeper, other;
  lend(keeper, 100);
  lend(other, 8);
  release(keeper, true);
  expect(120, 120);  // until it is known
  settle_refills();
  EXPECT_EQ(held_.missing(), Slices(100));
  expect(20, 20);
  FakeBorrower late;
  EXPECT_FALSE(ask(late, 21));
  // Nothing of it is given to anybody else.
  lend(late, 20);
  EXPECT_EQ(late.granted, 1);
  EXPECT_EQ(pool_.lent(), 128U);
  expect(0, 0);
  // The next grant or release finds what has come back.
  keeper.memory.reset();
  release(other);
  release(late);
  expect_whole();
}

TEST_F(LendingHold, AskedForWhatIsKeptItRefusesAndHoldsTheRest) {
  FakeBorrower keeper, late;
  lend(keeper, 100);
  close_gate();
  release(keeper, true);
  ASSERT_TRUE(ask(late, 128)) << "believed for as long as it is not known";
  open_gate();
  serve_until([&] { return late.granted + late.failed == 1; });
  EXPECT_EQ(late.failed, 1);
  settle_refills();
  EXPECT_EQ(held_.missing(), Slices(100));
  EXPECT_EQ(hold_.held(), Slices(28).bytes());
  expect(28, 28);
}

TEST_F(LendingHold, TriesAgainEverySecondUntilItIsBack) {
  FakeBorrower keeper;
  lend(keeper, 100);
  release(keeper, true);
  settle_refills();
  EXPECT_EQ(held_.missing(), Slices(100));
  (void)pool_.take_asks();
  std::vector<Ask> asks_meanwhile;
  const auto let_go = loop_->after(std::chrono::milliseconds(1'500), [&] {
    asks_meanwhile = pool_.take_asks();
    keeper.memory.reset();
  });
  ASSERT_TRUE(let_go);
  pass(std::chrono::milliseconds(3'200));
  EXPECT_THAT(asks_meanwhile, ElementsAre(Ask{.slices = 1, .given = false}));
  EXPECT_EQ(hold_.missing(), Bytes(0));
  expect_whole();
}

TEST_F(LendingHold, AsksForNothingWhileNothingIsMissing) {
  FakeBorrower borrower;
  lend(borrower, 100);
  settle_refills();
  (void)pool_.take_asks();
  pass(std::chrono::milliseconds(1'300));
  EXPECT_THAT(pool_.take_asks(), IsEmpty());
}

TEST_F(LendingHold, AGrantThatFailsBehindItsMemoryLeavesNothingOut) {
  pool_.share_error = Error{Code::kSystem, 24, "share", "cannot be done"};
  FakeBorrower borrower;
  lend(borrower, 40);
  EXPECT_EQ(borrower.failed, 1);
  EXPECT_TRUE(held_.capped());
  held_.lift_cap();
  EXPECT_EQ(hold_.held(), Slices(128).bytes()) << "by the time that it is answered";
  EXPECT_EQ(held_.missing(), Slices(0));
  expect_whole();
  pool_.share_error.reset();
  lend(borrower, 128);
  EXPECT_EQ(borrower.granted, 1);
}

TEST_F(LendingHold, AGrantThatHasNoMemoryLeavesNothingOut) {
  bool first = true;
  pool_.on_allocate = [&] {
    pool_.allocate_error.reset();
    if (std::exchange(first, false))
      pool_.allocate_error = Error{Code::kExhausted, 0, "", "pinned"};
  };
  FakeBorrower borrower;
  lend(borrower, 40);
  EXPECT_EQ(borrower.failed, 1);
  expect(128, 39);
  held_.lift_cap();
  expect_whole();
}

TEST_F(LendingHold, UndoingTakesItBack) {
  FakeBorrower borrower;
  ASSERT_TRUE(ask(borrower, 40));
  serve_until([&] { return borrower.granted == 1; });
  expect(88, 88);
  lends_.undo(borrower.lease, std::move(borrower.memory));
  expect(88, 88);
  serve_until([&] { return held_.figures().free == Slices(128).bytes(); });
  expect_whole();
}

TEST_F(LendingHold, WhatCannotBeHandedOverIsTakenBack) {
  FakeBorrower borrower;
  ASSERT_TRUE(ask(borrower, 40));
  serve_until([&] { return borrower.granted == 1; });
  lends_.undeliverable(borrower.lease, std::move(borrower.memory), "no descriptors in flight");
  settle_refills();
  expect(128, 0);
  EXPECT_EQ(held_.missing(), Slices(0));
  held_.lift_cap();
  expect_whole();
}

TEST_F(LendingHold, LeavingItTakesNothingBack) {
  FakeBorrower borrower, undone;
  lend(borrower, 40);
  ASSERT_TRUE(ask(undone, 8));
  serve_until([&] { return undone.granted == 1; });
  settle_refills();
  (void)pool_.take_asks();
  lends_.leave();
  release(borrower);
  lends_.refill(Slices(40).bytes());
  lends_.undo(undone.lease, std::move(undone.memory));
  settle_refills();
  EXPECT_THAT(pool_.take_asks(), IsEmpty());
}

TEST_F(LendingHold, IsToldOfWhatIsLostAtTheStart) {
  test::ContiguousPool pool(kSlices);
  pool.take(0, 50);  // of an earlier start, whose borrower is gone while we start
  Hold hold(pool.source(), Slices(kSlices).bytes());
  hold.count_lent(Slices(50).bytes());
  hold.fill();
  Lending lending(*loop_, *worker_, hold, held_, *journal_, nullptr, supervisor_);
  lending.use_hold(hold);
  EXPECT_EQ(held_.missing(), Slices(0));
  EXPECT_EQ(hold.held(), Slices(78).bytes());
  pool.leave(0, 50);
  lending.refill(Slices(50).bytes());
  settle_refills();
  EXPECT_EQ(hold.held(), Slices(128).bytes());
  EXPECT_EQ(held_.missing(), Slices(0));
}

// No more than 100 slices for one user.
class LendingHoldWithLimit : public LendingHold {
 protected:
  LendingHoldWithLimit() : LendingHold(LendingHold::kSlices, Slices(100)) {}
  [[nodiscard]] std::uint64_t mine() const { return held_.largest_for(kPeer.uid).count(); }
};

TEST_F(LendingHoldWithLimit, WhatAUserKeepsIsChargedToIt) {
  FakeBorrower keeper;
  lend(keeper, 30);
  EXPECT_EQ(mine(), 70U);
  release(keeper, true);
  EXPECT_EQ(mine(), 100U) << "closing is the release";
  settle_refills();
  EXPECT_EQ(held_.missing(), Slices(30));
  EXPECT_EQ(mine(), 70U);
  EXPECT_EQ(held_.largest_for(kPeer.uid + 1), Slices(98));
  FakeBorrower more;
  EXPECT_FALSE(ask(more, 71));
  keeper.memory.reset();
  lend(more, 70);
  EXPECT_EQ(more.granted, 1);
  EXPECT_EQ(held_.missing(), Slices(0)) << "taken back beside the grant";
  EXPECT_EQ(mine(), 30U);
}

TEST_F(LendingHoldWithLimit, WhatComesBackIsNotCharged) {
  for (int i = 0; i < 5; ++i) {
    FakeBorrower borrower;
    lend(borrower, 100);
    EXPECT_EQ(mine(), 0U);
    release(borrower);
    settle_refills();
    EXPECT_EQ(mine(), 100U);
  }
}

// Somebody had 8 slices of it when we came.
class LendingHoldInPart : public LendingHold {
 protected:
  LendingHoldInPart() : LendingHold(LendingHold::kSlices - 8) {}
};

TEST_F(LendingHoldInPart, StartsWithWhatThereIs) {
  expect(120, 120);
  EXPECT_EQ(held_.missing(), Slices(8));
  FakeBorrower borrower;
  EXPECT_FALSE(ask(borrower, 121));
  lend(borrower, 120);
  EXPECT_EQ(borrower.granted, 1);
  expect(0, 0);
  release(borrower);
  settle_refills();
  expect(120, 120);
}

}  // namespace
}  // namespace carveout::daemon
