// What goes from one start to the next, and from one file to the next.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "unit/ledger_history_fixture.hpp"

namespace carveout::daemon {
namespace {

class LedgerHistoryStarts : public LedgerHistoryTest {
 protected:
  // Lease 1 is lent, 2 granted, 3 requested.
  void three_states() {
    good(start());
    lend(1);
    grant(2);
    request(3);
  }
};

TEST_F(LedgerHistoryStarts, CountUp) {
  good(start());
  LedgerRecord record = start();
  record.start = 1;
  bad(record, "its start is the 1th behind the 1th");
  record.start = 3;
  bad(record, "its start is the 3th behind the 1th");
  good(start());
  good(next(LedgerEvent::kStopped));
  good(start());
  EXPECT_EQ(history_.last().start, 3U);
}

TEST_F(LedgerHistoryStarts, AnotherBootHasItsOwnTime) {
  good(start());
  LedgerRecord record = start(8, "another boot");
  record.mono_us = 1;
  good(record);
  record = start();
  record.mono_us = 0;
  bad(record, "its time is before the last");
}

TEST_F(LedgerHistoryStarts, AnotherReservationMayBeSmaller) {
  good(start(8));
  lend(1, 6);
  good(start(4));
  EXPECT_EQ(history_.reservation(), Slices(4).bytes());
  good(of(LedgerEvent::kAdopted, 1, 6));
  request(2);
  bad(of(LedgerEvent::kGranted, 2), "are lent of");
  good(of(LedgerEvent::kReleased, 1, 6));
  good(of(LedgerEvent::kGranted, 2));
}

TEST_F(LedgerHistoryStarts, WhatIsOpenIsPending) {
  three_states();
  EXPECT_FALSE(history_.any_pending());
  good(start());
  EXPECT_TRUE(history_.any_pending());
  expect_open(1, State::kLent, true);
  expect_open(2, State::kGranted, true);
  expect_open(3, State::kRequested, true);
}

TEST_F(LedgerHistoryStarts, WhatIsAdoptedGoesOn) {
  three_states();
  good(start());
  good(of(LedgerEvent::kAdopted, 1));
  expect_open(1, State::kLent);
  good(of(LedgerEvent::kAdopted, 2));
  expect_open(2, State::kLent);
  good(of(LedgerEvent::kGranted, 3));
  expect_open(3, State::kGranted);
  EXPECT_FALSE(history_.any_pending());
  for (const auto lease : {1U, 2U, 3U})
    good(of(LedgerEvent::kReleased, lease));
}

TEST_F(LedgerHistoryStarts, WhatCannotGoOnIsLost) {
  three_states();
  good(start());
  for (const auto lease : {1U, 2U, 3U})
    good(of(LedgerEvent::kLost, lease));
  EXPECT_TRUE(history_.open().empty());
  EXPECT_FALSE(history_.any_pending());
  grant(4, 8);
}

TEST_F(LedgerHistoryStarts, ARequestOfAnEarlierStartCanBeRefused) {
  three_states();
  good(start());
  good(of(LedgerEvent::kRefused, 3));
}

TEST_F(LedgerHistoryStarts, WhatIsPendingStaysSoOverAnotherStart) {
  three_states();
  good(start());
  good(of(LedgerEvent::kAdopted, 2));
  good(start());
  expect_open(1, State::kLent, true);
  expect_open(2, State::kLent, true);
  expect_open(3, State::kRequested, true);
}

TEST_F(LedgerHistoryStarts, WhatIsPendingIsLent) {
  good(start());
  lend(1, 6);
  good(start());
  request(2, 3);
  bad(of(LedgerEvent::kGranted, 2, 3), "are lent of");
}

TEST_F(LedgerHistoryStarts, WhatIsPendingIsAdoptedBeforeAnythingElse) {
  three_states();
  good(start());
  bad(of(LedgerEvent::kReleased, 1), "released of lease 1, which was not adopted");
  bad(of(LedgerEvent::kReleased, 2), "released of lease 2, which was not adopted");
  bad(of(LedgerEvent::kReleased, 3), "released of lease 3, which was not granted");
  bad(of(LedgerEvent::kAnswered, 2), "answered of lease 2, which was not granted");
  bad(of(LedgerEvent::kRefused, 2), "refused of lease 2, which is lent");
  bad(of(LedgerEvent::kRequested, 2), "requested of lease 2, which is open");
  bad(of(LedgerEvent::kAdopted, 3), "adopted of lease 3, which was not granted");
}

TEST_F(LedgerHistoryStarts, IsAdoptedOnceAndAsItWas) {
  three_states();
  good(start());
  bad(of(LedgerEvent::kAdopted, 1, 2), "adopted of lease 1 is not as it was granted");
  LedgerRecord record = of(LedgerEvent::kAdopted, 1);
  ++record.uid;
  bad(record, "adopted of lease 1 is not as it was granted");
  good(of(LedgerEvent::kAdopted, 1));
  bad(of(LedgerEvent::kAdopted, 1), "adopted of lease 1, which this start granted itself");
  bad(of(LedgerEvent::kLost, 1), "lost of lease 1, which this start has in hand");
}

TEST_F(LedgerHistoryStarts, AStartKnowsTheHighestIds) {
  LedgerRecord record = next_file();
  record.lease = 40;
  record.connection = 50;
  good(record);
  EXPECT_EQ(history_.last_lease(), 40U);
  EXPECT_EQ(history_.last_connection(), 50U);
  bad(of(LedgerEvent::kRequested, 40), "lease 40 was used before");
  good(of(LedgerEvent::kRequested, 41));
}

// --- files ---

TEST_F(LedgerHistoryStarts, TheNextFileBeginsWithWhatIsOpen) {
  three_states();
  good(next_file());
  EXPECT_TRUE(history_.open().empty());
  good(carried(LedgerEvent::kAdopted, 1));
  good(carried(LedgerEvent::kGranted, 2));
  good(carried(LedgerEvent::kRequested, 3));
  expect_open(1, State::kLent);
  expect_open(2, State::kGranted);
  expect_open(3, State::kRequested);
  good(of(LedgerEvent::kReleased, 1));
  good(of(LedgerEvent::kAnswered, 2));
  good(of(LedgerEvent::kGranted, 3));
}

TEST_F(LedgerHistoryStarts, TheNextFileMayBeginWithNothing) {
  good(start());
  good(next_file());
  lend(1);
  good(of(LedgerEvent::kReleased, 1));
  good(next_file());
  good(next(LedgerEvent::kStopped));
  good(next_file());
  good(start());
}

TEST_F(LedgerHistoryStarts, TheBytesOfWhatIsCarriedOverAreLent) {
  good(start());
  lend(1, 6);
  good(next_file());
  good(carried(LedgerEvent::kAdopted, 1, 6));
  request(2, 3);
  bad(of(LedgerEvent::kGranted, 2, 3), "are lent of");
  good(of(LedgerEvent::kReleased, 1, 6));
  good(of(LedgerEvent::kGranted, 2, 3));
}

TEST_F(LedgerHistoryStarts, EverythingOpenIsCarriedOver) {
  three_states();
  good(next_file());
  bad(of(LedgerEvent::kReleased, 1), "lease 1 was not carried over from the file before");
  good(carried(LedgerEvent::kAdopted, 1));
  good(carried(LedgerEvent::kGranted, 2));
  bad(of(LedgerEvent::kRequested, 4), "lease 3 was not carried over from the file before");
  bad(next(LedgerEvent::kStopped), "lease 3 was not carried over from the file before");
  bad(start(), "the head of the file before is not whole");
  bad(next_file(), "the head of the file before is not whole");
}

TEST_F(LedgerHistoryStarts, AFileIsMoreThanItsHead) {
  good(start());
  good(next_file());
  bad(next_file(), "the head of the file before is not whole");
}

TEST_F(LedgerHistoryStarts, NothingIsCarriedOverTwice) {
  three_states();
  good(next_file());
  good(carried(LedgerEvent::kAdopted, 1));
  bad(carried(LedgerEvent::kAdopted, 1), "lease 1 is carried over twice");
}

TEST_F(LedgerHistoryStarts, NothingElseIsCarriedOver) {
  three_states();
  good(next_file());
  bad(carried(LedgerEvent::kAdopted, 4), "lease 4 was not open in the file before");
  for (const auto event : {LedgerEvent::kReleased, LedgerEvent::kRefused, LedgerEvent::kLost,
                           LedgerEvent::kAnswered, LedgerEvent::kStopped, LedgerEvent::kRepaired}) {
    bad(carried(event, 1), "nothing can be carried over here");
  }
}

TEST_F(LedgerHistoryStarts, ItIsCarriedOverAsItWas) {
  three_states();
  good(next_file());
  bad(carried(LedgerEvent::kGranted, 1), "lease 1 is not carried over as it was");
  bad(carried(LedgerEvent::kAdopted, 2), "lease 2 is not carried over as it was");
  bad(carried(LedgerEvent::kAdopted, 3), "lease 3 is not carried over as it was");
  bad(carried(LedgerEvent::kAdopted, 1, 2), "lease 1 is not carried over as it was");
  LedgerRecord record = carried(LedgerEvent::kAdopted, 1);
  ++record.connection;
  bad(record, "lease 1 is not carried over as it was");
  record = carried(LedgerEvent::kAdopted, 1);
  record.size = Bytes(1);
  bad(record, "in whole slices");
}

TEST_F(LedgerHistoryStarts, AFileIsOfTheSameStartAndReservation) {
  three_states();
  LedgerRecord record = next_file();
  ++record.start;
  bad(record, "of another start");
  record = next_file();
  record.boot = "another boot";
  bad(record, "of another start");
  bad(next_file(7), "the reservation has changed from one file to the next");
}

TEST_F(LedgerHistoryStarts, AFileCanBeReadWithoutTheOneBefore) {
  LedgerRecord head = next_file();
  head.seq = 1000;
  head.start = 5;
  good(head);
  good(carried(LedgerEvent::kAdopted, 1, 6));
  bad(carried(LedgerEvent::kAdopted, 1, 6), "lease 1 is carried over twice");
  bad(carried(LedgerEvent::kReleased, 2), "nothing can be carried over here");
  good(carried(LedgerEvent::kRequested, 2, 3));
  bad(of(LedgerEvent::kGranted, 2, 3), "are lent of");
  good(of(LedgerEvent::kReleased, 1, 6));
  good(of(LedgerEvent::kGranted, 2, 3));
  bad(carried(LedgerEvent::kAdopted, 3), "nothing can be carried over here");
}

TEST_F(LedgerHistoryStarts, WhatNoLeaseCanHaveBeenLikeIsNotCarriedOver) {
  constexpr std::uint64_t kHalfOfEverything = std::uint64_t{1} << 42U;  // slices
  good(next_file());
  bad(carried(LedgerEvent::kAdopted, 0), "no lease can have been like this");
  good(carried(LedgerEvent::kAdopted, 1, kHalfOfEverything));
  bad(carried(LedgerEvent::kAdopted, 2, kHalfOfEverything), "no lease can have been like this");
  good(carried(LedgerEvent::kAdopted, 2, kHalfOfEverything - 1));
}

// Of a damaged head, what can be read goes on.
TEST_F(LedgerHistoryStarts, WhatWasNotCarriedOverIsForgottenAtTheNextStart) {
  three_states();
  good(next_file());
  good(carried(LedgerEvent::kAdopted, 1));
  history_.take(start());
  EXPECT_EQ(history_.open().size(), 1U);
  good(of(LedgerEvent::kAdopted, 1));
}

TEST_F(LedgerHistoryStarts, AStartBehindTheHeadMakesPendingWhatWasCarriedOver) {
  three_states();
  good(next_file());
  good(carried(LedgerEvent::kAdopted, 1));
  good(carried(LedgerEvent::kGranted, 2));
  good(carried(LedgerEvent::kRequested, 3));
  good(start());
  expect_open(1, State::kLent, true);
  expect_open(2, State::kGranted, true);
  expect_open(3, State::kRequested, true);
  bad(carried(LedgerEvent::kAdopted, 1), "nothing can be carried over here");
  good(of(LedgerEvent::kAdopted, 1));
}

}  // namespace
}  // namespace carveout::daemon
