// Lending with a ledger: what is recorded, in which order, and what happens when it cannot be.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "unit/ledger_fixture.hpp"
#include "unit/lending_fixture.hpp"

namespace carveout::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Event = LedgerEvent;

class LendingLedger : protected LedgerPlace, public LendingTest {
 protected:
  LendingLedger() : LendingTest(open(Ledger::kMaxFile, kSlices)) {}

  // Behind the start.
  [[nodiscard]] std::vector<Event> happened() const {
    std::vector<Event> all = events();
    EXPECT_EQ(all.front(), Event::kStarted);
    all.erase(all.begin());
    return all;
  }
  [[nodiscard]] LedgerRecord last() const { return records_of(text()).back(); }
  // From the grant to the answer, as a session does it.
  void deliver(FakeBorrower& borrower) {
    ASSERT_TRUE(lending_.record_grant(borrower.lease));
    lending_.answered(borrower.lease, std::move(borrower.memory));
  }
  [[nodiscard]] std::size_t size() const { return std::filesystem::file_size(path_); }
};

TEST_F(LendingLedger, RecordsALeaseStepByStep) {
  FakeBorrower borrower;
  close_gate();
  ASSERT_TRUE(begin(borrower, 3, 77));
  EXPECT_THAT(happened(), ElementsAre(Event::kRequested)) << "before anything is done for it";
  open_gate();
  serve_until([&] { return borrower.granted == 1; });
  EXPECT_THAT(happened(), ElementsAre(Event::kRequested));
  ASSERT_TRUE(lending_.record_grant(borrower.lease));
  EXPECT_THAT(happened(), ElementsAre(Event::kRequested, Event::kGranted));
  lending_.answered(borrower.lease, std::move(borrower.memory));
  EXPECT_THAT(happened(), ElementsAre(Event::kRequested, Event::kGranted, Event::kAnswered));
  lending_.release(borrower.lease);
  EXPECT_THAT(happened(),
              ElementsAre(Event::kRequested, Event::kGranted, Event::kAnswered, Event::kReleased));
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingLedger, RecordsWhoHasWhat) {
  FakeBorrower borrower;
  ASSERT_TRUE(lending_.begin(borrower, 77, connection_.first.get(), kPeer, Bytes(5'000'000)));
  LedgerRecord record = last();
  EXPECT_EQ(record.connection, 77U);
  EXPECT_EQ(record.lease, 1U);
  EXPECT_EQ(record.uid, kPeer.uid);
  EXPECT_EQ(record.gid, kPeer.gid);
  EXPECT_EQ(record.pid, static_cast<std::uint32_t>(kPeer.pid));
  EXPECT_EQ(record.asked, Bytes(5'000'000));
  EXPECT_EQ(record.size, Slices(3).bytes());
  serve_until([&] { return borrower.granted == 1; });
  ASSERT_TRUE(lending_.record_grant(borrower.lease));
  record = last();
  EXPECT_EQ(record.lease, borrower.lease);
  EXPECT_EQ(record.asked, Bytes(5'000'000));
  EXPECT_EQ(record.command + "\n", *read_text("/proc/self/comm", 64));
  struct stat status {};
  ASSERT_EQ(::fstat(borrower.memory.get(), &status), 0);
  EXPECT_EQ(record.inode, status.st_ino);
  const auto since = lending_.leases().at(1).since.time_since_epoch();
  EXPECT_EQ(record.since_unix_us,
            static_cast<std::uint64_t>(
                std::chrono::duration_cast<std::chrono::microseconds>(since).count()));
}

TEST_F(LendingLedger, CountsLeases) {
  FakeBorrower a, b;
  grant(a, 1, 1);
  grant(b, 1, 2);
  EXPECT_EQ(a.lease, 1U);
  EXPECT_EQ(b.lease, 2U);
}

// --- refusals ---

TEST_F(LendingLedger, RecordsWhatTheAccountsRefuse) {
  FakeBorrower borrower;
  EXPECT_FALSE(begin(borrower, kSlices + 1, 77));
  EXPECT_THAT(happened(), ElementsAre(Event::kRefused));
  EXPECT_EQ(last().lease, 0U);
  EXPECT_EQ(last().connection, 77U);
  EXPECT_EQ(last().uid, kPeer.uid);
  EXPECT_EQ(last().asked, Slices(kSlices + 1).bytes());
  EXPECT_EQ(last().reason, "not enough is free");
  lending_.refused(78, kPeer, Bytes(0), "bad size");
  EXPECT_EQ(last().connection, 78U);
  EXPECT_EQ(last().reason, "bad size");
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingLedger, RecordsWhatTheKernelRefuses) {
  source_.allocate_error = Error{Code::kExhausted, ENOSPC, "allocating", "not enough memory"};
  FakeBorrower borrower;
  grant(borrower, 4);
  EXPECT_EQ(borrower.failed, 1);
  EXPECT_THAT(happened(), ElementsAre(Event::kRequested, Event::kRefused));
  EXPECT_EQ(last().lease, 1U);
  EXPECT_THAT(last().reason, HasSubstr("not enough memory"));
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingLedger, RecordsWhatCouldNotBeDelivered) {
  FakeBorrower borrower;
  grant(borrower, 3);
  ASSERT_TRUE(lending_.record_grant(borrower.lease));
  lending_.undeliverable(borrower.lease, std::move(borrower.memory), "descriptors in flight");
  EXPECT_THAT(happened(), ElementsAre(Event::kRequested, Event::kGranted, Event::kRefused));
  EXPECT_EQ(last().reason, "descriptors in flight");
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingLedger, RecordsThatAPeerLeftBeforeItsAnswer) {
  FakeBorrower early, late;
  grant(early, 1);
  lending_.undo(early.lease, std::move(early.memory));
  EXPECT_EQ(last().event, Event::kRefused);
  grant(late, 1);
  ASSERT_TRUE(lending_.record_grant(late.lease));
  lending_.undo(late.lease, std::move(late.memory));
  EXPECT_EQ(last().event, Event::kReleased);
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingLedger, AReplyThatIsHeldUpIsARequestAgain) {
  FakeBorrower borrower, other;
  grant(borrower, 10, 1);
  ASSERT_TRUE(lending_.record_grant(borrower.lease));
  lending_.held_up(borrower.lease);
  grant(other, 2, 2);
  deliver(other);
  deliver(borrower);
  lending_.release(borrower.lease);
  EXPECT_THAT(happened(), ElementsAre(Event::kRequested, Event::kGranted, Event::kRequested,
                                      Event::kRequested, Event::kGranted, Event::kAnswered,
                                      Event::kGranted, Event::kAnswered, Event::kReleased));
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingLedger, AHeldUpReplyWhosePeerLeavesWasRefused) {
  FakeBorrower borrower;
  grant(borrower, 10);
  ASSERT_TRUE(lending_.record_grant(borrower.lease));
  lending_.held_up(borrower.lease);
  lending_.undo(borrower.lease, std::move(borrower.memory));
  EXPECT_EQ(last().event, Event::kRefused);
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingLedger, RecordsNothingOfLeasesThatThereAreNot) {
  EXPECT_TRUE(lending_.record_grant(4711));
  lending_.held_up(4711);
  lending_.answered(4711, {});
  lending_.undo(4711, {});
  lending_.undeliverable(4711, {}, "");
  lending_.release(4711);
  EXPECT_THAT(happened(), IsEmpty());
}

// --- a ledger that cannot be written ---

TEST_F(LendingLedger, ARequestThatCannotBeRecordedIsRefused) {
  FakeBorrower borrower;
  {
    const FileLimit full(size() + 10);
    EXPECT_FALSE(begin(borrower, 3));
    // Not for less either: nothing is promised for as long as a refusal holds.
    expect(kSlices, 0);
  }
  settle();
  EXPECT_EQ(borrower.granted + borrower.failed, 0);
  EXPECT_THAT(source_.calls, IsEmpty());
  EXPECT_THAT(happened(), IsEmpty());
  EXPECT_EQ(ledger_->owed(), 0U);
  EXPECT_THAT(logged(), AllOf(HasSubstr("not granted: "), HasSubstr("cannot be written")));
  run_loop(std::chrono::milliseconds(1'300));
  expect(kSlices, kSlices);
  grant(borrower, 3);
  EXPECT_EQ(borrower.granted, 1);
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingLedger, AGrantThatCannotBeRecordedIsUndone) {
  FakeBorrower borrower;
  grant(borrower, 3);
  {
    const FileLimit full(size() + 10);
    const auto recorded = lending_.record_grant(borrower.lease);
    ASSERT_FALSE(recorded);
    lending_.undeliverable(borrower.lease, std::move(borrower.memory), recorded.error().describe());
    EXPECT_TRUE(lending_.leases().empty());
    EXPECT_EQ(ledger_->owed(), 1U);
    settle();
    expect(kSlices, 0);
  }
  lending_.refused(5, kPeer, Bytes(1), "bad size");
  EXPECT_THAT(happened(), ElementsAre(Event::kRequested, Event::kRefused, Event::kRefused));
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingLedger, WhatHappensMeanwhileIsRecordedLater) {
  FakeBorrower a, b, held_up;
  grant(a, 1, 1);
  deliver(a);
  grant(b, 1, 2);
  grant(held_up, 1, 3);
  ASSERT_TRUE(lending_.record_grant(b.lease));
  ASSERT_TRUE(lending_.record_grant(held_up.lease));
  {
    const FileLimit full(size());
    lending_.answered(b.lease, std::move(b.memory));
    lending_.held_up(held_up.lease);
    lending_.release(a.lease);
    lending_.release(b.lease);
    lending_.undo(held_up.lease, std::move(held_up.memory));
    EXPECT_EQ(ledger_->owed(), 5U);
    settle();
    expect(kSlices, kSlices);
  }
  FakeBorrower next;
  grant(next, kSlices);
  deliver(next);
  EXPECT_EQ(ledger_->owed(), 0U);
  EXPECT_EQ(audit(), "good");
}

// --- the end, without a store ---

TEST_F(LendingLedger, WithoutAStoreNothingOutlivesTheDaemon) {
  FakeBorrower lent, waiting;
  grant(lent, 1);
  deliver(lent);
  grant(waiting, 1);
  EXPECT_FALSE(lending_.keeps(1));
  lending_.leave();
  EXPECT_TRUE(lending_.leaving());
  lending_.release(lent.lease);
  EXPECT_EQ(last().event, Event::kReleased);
  EXPECT_EQ(last().reason, "the daemon stops");
  lending_.undo(waiting.lease, std::move(waiting.memory));
  EXPECT_EQ(last().event, Event::kRefused);
  EXPECT_EQ(audit(), "good");
}

}  // namespace
}  // namespace carveout::daemon
