#pragma once

// Lending from a reservation that is held, of memory that has to lie together.

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "unit/contiguous_source.hpp"
#include "unit/lending_fixture.hpp"

namespace carveout::daemon {

// As LendingTest, with a Lending of its own.
class LendingHold : public LendingTest {
 protected:
  explicit LendingHold(std::uint64_t pool = kSlices,
                       const std::optional<Slices>& most_per_user = std::nullopt)
      : pool_(pool), held_(Bytes(0x280200000), Slices(kSlices), most_per_user) {
    hold_.fill();
    lends_.use_hold(hold_);
    (void)pool_.take_asks();
  }
  ~LendingHold() override {
    open_gate();
    worker_.reset();
  }

  bool ask(FakeBorrower& borrower, std::uint64_t slices) {
    return lends_.begin(borrower, 1, connection_.first.get(), kPeer, Slices(slices).bytes());
  }
  // Asks, and has an answer. What was granted is the borrower's alone then.
  void lend(FakeBorrower& borrower, std::uint64_t slices) {
    const int answers = borrower.granted + borrower.failed;
    ASSERT_TRUE(ask(borrower, slices));
    serve_until([&] { return borrower.granted + borrower.failed > answers; });
    if (borrower.memory) take(borrower);
  }
  // The reply has been sent.
  void take(FakeBorrower& borrower) {
    UniqueFd received(::fcntl(borrower.memory.get(), F_DUPFD_CLOEXEC, 0));
    lends_.answered(borrower.lease, std::exchange(borrower.memory, std::move(received)));
  }
  void release(FakeBorrower& borrower, bool keeps = false) {
    if (!keeps) borrower.memory.reset();
    lends_.release(borrower.lease);
  }
  // All that follows from what has happened so far, without the time that passes.
  void settle_refills() {
    for (int i = 0; i < 4; ++i)
      settle();
  }
  // Turns the loop for a while, with the worker served. Once a test.
  void pass(std::chrono::milliseconds time) {
    const auto served =
        loop_->on_readable(worker_->done_descriptor(), [this] { worker_->run_done(); });
    ASSERT_TRUE(served);
    run_loop(time);
    settle();
  }
  // What is held in pieces has been tried as one.
  void pass_joining() { pass(std::chrono::milliseconds(400)); }
  void expect(std::uint64_t free, std::uint64_t largest) const {
    const Figures now = lends_.figures_for(0, 1);
    EXPECT_EQ(now.size, Slices(kSlices).bytes());
    EXPECT_EQ(now.free, Slices(free).bytes());
    EXPECT_EQ(now.largest, Slices(largest).bytes());
  }
  void expect_whole() {
    settle_refills();
    expect(kSlices, kSlices);
    EXPECT_EQ(held_.missing(), Slices(0));
    EXPECT_EQ(pool_.free(), 0U) << "all of it is held";
  }

  static constexpr std::uint64_t kSlices = 128;

  test::ContiguousPool pool_;
  Hold hold_{pool_.source(), Slices(kSlices).bytes()};
  Reservation held_;
  Lending lends_{*loop_, *worker_, hold_, held_, *journal_, nullptr, supervisor_};
};

}  // namespace carveout::daemon
