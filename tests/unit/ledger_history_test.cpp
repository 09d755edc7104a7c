// What may happen to requests and leases within one start, and what may not.

#include "ledger_history.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "unit/ledger_history_fixture.hpp"

namespace carveout::daemon {
namespace {

using testing::HasSubstr;

class LedgerHistoryOfAStart : public LedgerHistoryTest {
 protected:
  LedgerHistoryOfAStart() { good(start()); }
};

TEST_F(LedgerHistoryOfAStart, ALeaseFromItsRequestToItsEnd) {
  request(1);
  expect_open(1, State::kRequested);
  good(of(LedgerEvent::kGranted, 1));
  expect_open(1, State::kGranted);
  good(of(LedgerEvent::kAnswered, 1));
  expect_open(1, State::kLent);
  good(of(LedgerEvent::kReleased, 1));
  EXPECT_TRUE(history_.open().empty());
  good(next(LedgerEvent::kStopped));
  EXPECT_EQ(history_.last().seq, 6U);
}

TEST_F(LedgerHistoryOfAStart, KnowsTheBorrowerOfALease) {
  LedgerRecord granted = of(LedgerEvent::kGranted, 1, 3);
  granted.inode = 77;
  granted.command = "python3";
  request(1, 3);
  granted.seq = history_.last().seq + 1;
  granted.mono_us = history_.last().mono_us;
  good(granted);
  LedgerRecord answered = next(LedgerEvent::kAnswered);
  answered.lease = 1;
  answered.connection = granted.connection;
  good(answered);
  const LedgerRecord& known = history_.open().at(1).record;
  EXPECT_EQ(known.inode, 77U);
  EXPECT_EQ(known.command, "python3");
  EXPECT_EQ(known.uid, 1000U);
  EXPECT_EQ(known.size, Slices(3).bytes());
}

TEST_F(LedgerHistoryOfAStart, OtherWaysThatARequestCanGo) {
  request(1);
  good(of(LedgerEvent::kRefused, 1));
  grant(2);
  good(of(LedgerEvent::kRefused, 2));  // it could not be delivered
  grant(3);
  good(of(LedgerEvent::kReleased, 3));  // its peer left before the answer
  EXPECT_TRUE(history_.open().empty());
}

TEST_F(LedgerHistoryOfAStart, AReplyThatIsHeldUpIsARequestAgain) {
  grant(1, 8);
  good(of(LedgerEvent::kRequested, 1, 8));
  expect_open(1, State::kRequested);
  grant(2, 8);  // nothing was lent meanwhile
  good(of(LedgerEvent::kReleased, 2, 8));
  good(of(LedgerEvent::kGranted, 1, 8));
  good(of(LedgerEvent::kAnswered, 1, 8));
  expect_open(1, State::kLent);
}

TEST_F(LedgerHistoryOfAStart, SeveralLeasesOnOneConnection) {
  for (std::uint64_t lease = 1; lease <= 3; ++lease) {
    for (const auto event : {LedgerEvent::kRequested, LedgerEvent::kGranted}) {
      LedgerRecord record = of(event, lease);
      record.connection = 5;
      good(record);
    }
  }
  EXPECT_EQ(history_.open().size(), 3U);
  EXPECT_EQ(history_.last_connection(), 5U);
  EXPECT_EQ(history_.last_lease(), 3U);
}

TEST_F(LedgerHistoryOfAStart, WhatWasNeverALease) {
  for (const auto event : {LedgerEvent::kRefused, LedgerEvent::kLost}) {
    LedgerRecord record = next(event);
    record.connection = 9;
    good(record);
  }
  good(next(LedgerEvent::kRepaired));
  EXPECT_TRUE(history_.open().empty());
  EXPECT_EQ(history_.last_connection(), 9U);
  EXPECT_EQ(history_.last_lease(), 0U);
}

TEST_F(LedgerHistoryOfAStart, LendsTheWholeReservation) {
  lend(1, 3);
  lend(2, 5);
  good(of(LedgerEvent::kReleased, 1, 3));
  lend(3, 3);
}

TEST_F(LedgerHistoryOfAStart, NoBytesBeyondTheReservation) {
  lend(1, 3);
  grant(2, 4);  // counts from its grant on
  request(3, 2);
  bad(of(LedgerEvent::kGranted, 3, 2), "with it 18874368 bytes are lent of 16777216");
  good(of(LedgerEvent::kReleased, 1, 3));
  good(of(LedgerEvent::kGranted, 3, 2));
  request(4, 3);
  bad(of(LedgerEvent::kGranted, 4, 3), "are lent of");
  good(of(LedgerEvent::kRefused, 2, 4));
  good(of(LedgerEvent::kGranted, 4, 3));
}

// --- order ---

TEST_F(LedgerHistoryTest, BeginsWithTheFirstStart) {
  EXPECT_TRUE(history_.empty());
  bad(of(LedgerEvent::kRequested, 1), "the first record is not a start");
  LedgerRecord later = start();
  later.seq = 2;
  bad(later, "records before it are missing");
  good(start());
  EXPECT_FALSE(history_.empty());
  EXPECT_EQ(history_.reservation(), Slices(8).bytes());
}

TEST_F(LedgerHistoryOfAStart, NumbersHaveNoGapAndNoDouble) {
  lend(1);
  for (const int off : {-2, -1, 1, 100}) {
    LedgerRecord record = of(LedgerEvent::kReleased, 1);
    record.seq += static_cast<std::uint64_t>(off);
    bad(record, "its number is " + std::to_string(record.seq) + " behind 4");
  }
}

TEST_F(LedgerHistoryOfAStart, RecordsAreOfTheSameStart) {
  LedgerRecord record = of(LedgerEvent::kRequested, 1);
  record.start = 2;
  bad(record, "of another start");
  record = of(LedgerEvent::kRequested, 1);
  record.boot = "another boot";
  bad(record, "of another start");
}

TEST_F(LedgerHistoryOfAStart, TimeGoesOn) {
  request(1);
  LedgerRecord record = of(LedgerEvent::kRefused, 1);
  record.mono_us = history_.last().mono_us - 1;
  bad(record, "its time is before the last");
  record.mono_us = history_.last().mono_us;
  record.unix_us = 0;  // the wall clock may be set
  good(record);
}

TEST_F(LedgerHistoryOfAStart, NothingComesBehindTheStop) {
  lend(1);
  good(next(LedgerEvent::kStopped));
  bad(of(LedgerEvent::kReleased, 1), "the daemon had stopped");
  bad(next(LedgerEvent::kStopped), "the daemon had stopped");
  good(start());
}

// --- each lease ---

TEST_F(LedgerHistoryOfAStart, ALeaseIdIsUsedOnce) {
  lend(2);
  good(of(LedgerEvent::kReleased, 2));
  bad(of(LedgerEvent::kRequested, 2), "lease 2 was used before");
  bad(of(LedgerEvent::kRequested, 1), "lease 1 was used before");
  bad(of(LedgerEvent::kRequested, 0), "lease 0 was used before");
  good(of(LedgerEvent::kRequested, 3));
}

TEST_F(LedgerHistoryOfAStart, ARequestIsForWholeSlices) {
  LedgerRecord record = of(LedgerEvent::kRequested, 1, 2);
  record.size = Slices(1).bytes();
  bad(record, "its 2097152 bytes are not the 4194303 asked for in whole slices");
  record.size = record.asked;
  bad(record, "in whole slices");
  record.size = record.asked = Bytes(0);
  bad(record, "in whole slices");
  record.asked = record.size = Slices(2).bytes();
  good(record);
}

TEST_F(LedgerHistoryOfAStart, AnOpenRequestIsNotRepeated) {
  request(1);
  bad(of(LedgerEvent::kRequested, 1), "requested of lease 1, which is open");
  good(of(LedgerEvent::kGranted, 1));
  bad(of(LedgerEvent::kRequested, 1, 2), "requested of lease 1, which is open");
  good(of(LedgerEvent::kAnswered, 1));
  bad(of(LedgerEvent::kRequested, 1), "requested of lease 1, which is open");
}

TEST_F(LedgerHistoryOfAStart, AGrantHasItsRequest) {
  bad(of(LedgerEvent::kGranted, 1), "granted of lease 1, for which there is no request");
  grant(1);
  bad(of(LedgerEvent::kGranted, 1), "for which there is no request");
  good(of(LedgerEvent::kAnswered, 1));
  bad(of(LedgerEvent::kGranted, 1), "for which there is no request");
  good(of(LedgerEvent::kReleased, 1));
  bad(of(LedgerEvent::kGranted, 1), "for which there is no request");
}

TEST_F(LedgerHistoryOfAStart, AGrantIsItsRequests) {
  const std::vector<std::function<void(LedgerRecord&)>> changes{
      [](LedgerRecord& record) { ++record.connection; },
      [](LedgerRecord& record) { ++record.uid; },
      [](LedgerRecord& record) { ++record.gid; },
      [](LedgerRecord& record) { ++record.pid; },
      [](LedgerRecord& record) { record.asked = record.asked - Bytes(1); },
      [](LedgerRecord& record) { record.size = Slices(2).bytes(); },
  };
  request(1);
  for (const auto& change : changes) {
    LedgerRecord record = of(LedgerEvent::kGranted, 1);
    change(record);
    bad(record, "granted of lease 1 is not its request's");
  }
  LedgerRecord record = of(LedgerEvent::kGranted, 1);
  record.inode = 5;  // known only now
  record.command = "python3";
  good(record);
}

TEST_F(LedgerHistoryOfAStart, OnlyAnOpenLeaseChanges) {
  lend(1);
  good(of(LedgerEvent::kReleased, 1));
  for (const auto lease : {1U, 2U}) {
    for (const auto event : {LedgerEvent::kAnswered, LedgerEvent::kRefused, LedgerEvent::kReleased,
                             LedgerEvent::kAdopted, LedgerEvent::kLost}) {
      bad(of(event, lease), "which is not open");
    }
  }
  for (const auto event : {LedgerEvent::kAnswered, LedgerEvent::kReleased, LedgerEvent::kAdopted}) {
    bad(of(event, 0), "of lease 0, which is not open");
  }
}

TEST_F(LedgerHistoryOfAStart, ALeaseStaysOnItsConnection) {
  grant(1);
  for (const auto event : {LedgerEvent::kAnswered, LedgerEvent::kRefused, LedgerEvent::kReleased,
                           LedgerEvent::kAdopted, LedgerEvent::kLost}) {
    LedgerRecord record = of(event, 1);
    record.connection = 7;
    bad(record, "of lease 1 is of connection 7, not 101");
  }
}

TEST_F(LedgerHistoryOfAStart, OnlyAGrantIsAnswered) {
  request(1);
  bad(of(LedgerEvent::kAnswered, 1), "answered of lease 1, which was not granted");
  good(of(LedgerEvent::kGranted, 1));
  good(of(LedgerEvent::kAnswered, 1));
  bad(of(LedgerEvent::kAnswered, 1), "answered of lease 1, which was not granted");
}

TEST_F(LedgerHistoryOfAStart, WhatIsLentIsNotRefused) {
  lend(1);
  bad(of(LedgerEvent::kRefused, 1), "refused of lease 1, which is lent");
}

TEST_F(LedgerHistoryOfAStart, ARequestIsNotReleased) {
  request(1);
  bad(of(LedgerEvent::kReleased, 1), "released of lease 1, which was not granted");
  good(of(LedgerEvent::kGranted, 1));
  good(of(LedgerEvent::kRequested, 1));  // held up
  bad(of(LedgerEvent::kReleased, 1), "released of lease 1, which was not granted");
}

TEST_F(LedgerHistoryOfAStart, WhatThisStartHasGrantedIsNeitherAdoptedNorLost) {
  request(1);
  bad(of(LedgerEvent::kAdopted, 1), "adopted of lease 1, which was not granted");
  bad(of(LedgerEvent::kLost, 1), "lost of lease 1, which this start has in hand");
  good(of(LedgerEvent::kGranted, 1));
  bad(of(LedgerEvent::kAdopted, 1), "adopted of lease 1, which this start granted itself");
  bad(of(LedgerEvent::kLost, 1), "lost of lease 1, which this start has in hand");
  good(of(LedgerEvent::kAnswered, 1));
  bad(of(LedgerEvent::kAdopted, 1), "adopted of lease 1, which this start granted itself");
  bad(of(LedgerEvent::kLost, 1), "lost of lease 1, which this start has in hand");
}

TEST_F(LedgerHistoryOfAStart, NothingIsCarriedOverInTheMiddle) {
  request(1);
  bad(carried(LedgerEvent::kRequested, 2), "nothing can be carried over here");
  bad(carried(LedgerEvent::kAdopted, 1), "nothing can be carried over here");
}

// What a damaged ledger still says is taken as it is.
TEST_F(LedgerHistoryOfAStart, MakesTheBestOfRecordsThatAreMissing) {
  history_.take(of(LedgerEvent::kGranted, 1));  // without its request
  expect_open(1, State::kGranted);
  history_.take(of(LedgerEvent::kRequested, 2));
  history_.take(of(LedgerEvent::kAnswered, 2));  // without its grant
  expect_open(2, State::kLent);
  history_.take(of(LedgerEvent::kAnswered, 3));  // without either: nobody knows what it is
  history_.take(of(LedgerEvent::kReleased, 4));
  EXPECT_EQ(history_.open().size(), 2U);
  EXPECT_EQ(history_.last_lease(), 4U);
  history_.take(of(LedgerEvent::kReleased, 2));
  history_.take(of(LedgerEvent::kReleased, 1));
  EXPECT_TRUE(history_.open().empty());
  grant(5, 8);  // and nothing of it is counted for ever
}

}  // namespace
}  // namespace carveout::daemon
