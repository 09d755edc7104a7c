// Lending with a ledger and the service manager's store: what outlives the daemon, and how it goes
// on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "unit/fake_manager.hpp"
#include "unit/ledger_fixture.hpp"
#include "unit/lending_fixture.hpp"

namespace carveout::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Event = LedgerEvent;

constexpr std::size_t kStore = 3;

// What has to be there before Lending is.
class RestartPlace : protected LedgerPlace {
 protected:
  RestartPlace() { ::setenv("NOTIFY_SOCKET", directory_.path("notify").c_str(), 1); }
  ~RestartPlace() { ::unsetenv("NOTIFY_SOCKET"); }
  // A start that leaves 1 lent, 2 granted and 3 requested, of as many slices.
  void leave_three() const {
    const auto before = open();
    lend(*before, 1, 1);
    EXPECT_TRUE(before->append(of(Event::kRequested, 2, 2)));
    EXPECT_TRUE(before->append(of(Event::kGranted, 2, 2)));
    EXPECT_TRUE(before->append(of(Event::kRequested, 3, 3)));
  }
  // Behind the last start.
  [[nodiscard]] std::vector<Event> happened() const {
    std::vector<Event> all = events();
    const auto start = std::find(all.rbegin(), all.rend(), Event::kStarted);
    return {start.base(), all.end()};
  }
  [[nodiscard]] LedgerRecord last() const { return records_of(text()).back(); }

  FakeManager manager_{directory_.path("notify")};
};

class LendingStore : protected RestartPlace, public LendingTest {
 protected:
  LendingStore() : LendingTest(open(Ledger::kMaxFile, kSlices), kStore) {}

  void deliver(FakeBorrower& borrower) {
    ASSERT_TRUE(lending_.record_grant(borrower.lease));
    lending_.answered(borrower.lease, std::move(borrower.memory));
  }
};

TEST_F(LendingStore, PromisesNobodyAnythingWhileItCannotRecord) {
  {
    const FileLimit full(text().size() + 20);
    EXPECT_FALSE(ledger_->append(of(Event::kRequested, 1)));
    lending_.watch_ledger();
    EXPECT_EQ(lending_.figures().largest, Bytes(0)) << "the operator is told, too";
    EXPECT_EQ(lending_.figures_for(0, 77).largest, Bytes(0));
    EXPECT_EQ(lending_.figures().free, Slices(kSlices).bytes());
  }
  EXPECT_TRUE(ledger_->retry());
  EXPECT_EQ(lending_.figures().largest, Slices(kSlices).bytes());
}

TEST_F(LendingStore, KeepsTheConnectionThenRecordsThenAllocates) {
  FakeBorrower borrower;
  bool looked = false;
  source_.on_allocate = [&](Bytes) {
    EXPECT_THAT(manager_.texts(), ElementsAre("FDSTORE=1\nFDPOLL=0\nFDNAME=conn-77"));
    EXPECT_THAT(happened(), ElementsAre(Event::kRequested));
    looked = true;
  };
  close_gate();
  ASSERT_TRUE(begin(borrower, 3, 77));
  EXPECT_THAT(happened(), IsEmpty()) << "it is the worker's";
  EXPECT_FALSE(lending_.keeps(77));
  open_gate();
  serve_until([&] { return borrower.granted == 1; });
  EXPECT_TRUE(looked);
  EXPECT_TRUE(lending_.keeps(77));
  EXPECT_EQ(borrower.lease, 1U);
  deliver(borrower);
  EXPECT_THAT(happened(), ElementsAre(Event::kRequested, Event::kGranted, Event::kAnswered));
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingStore, KeepsAConnectionOnce) {
  FakeBorrower borrower;
  for (int i = 0; i < 3; ++i) {
    grant(borrower, 1, 77);
    deliver(borrower);
  }
  EXPECT_EQ(manager_.told().size(), 1U);
  EXPECT_EQ(supervisor_.stored(), 1U);
}

TEST_F(LendingStore, RequestsOfNewAndOfKeptConnectionsStandInTheirOrder) {
  FakeBorrower first, second, third;
  grant(first, 1, 1);
  deliver(first);
  close_gate();
  ASSERT_TRUE(begin(second, 1, 2));  // recorded on the worker
  ASSERT_TRUE(begin(third, 1, 1));   // recorded at once
  open_gate();
  serve_until([&] { return third.granted == 1; });
  deliver(second);
  deliver(third);
  EXPECT_NE(second.lease, third.lease);
  EXPECT_EQ(lending_.leases().size(), 3U);
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingStore, LetsGoOfAConnectionThatHasEnded) {
  FakeBorrower borrower;
  grant(borrower, 1, 77);
  deliver(borrower);
  EXPECT_EQ(manager_.told().size(), 1U);
  lending_.release(borrower.lease);
  lending_.connection_ended(77);
  lending_.connection_ended(78);  // never was kept
  settle();
  EXPECT_THAT(manager_.texts(), ElementsAre("FDSTOREREMOVE=1\nFDNAME=conn-77"));
  EXPECT_FALSE(lending_.keeps(77));
  EXPECT_EQ(supervisor_.stored(), 0U);
}

TEST_F(LendingStore, AFullStorePromisesNothingToNewConnections) {
  std::vector<FakeBorrower> borrowers(kStore);
  for (std::size_t i = 0; i < kStore; ++i) {
    grant(borrowers[i], 1, 10 + i);
    deliver(borrowers[i]);
  }
  EXPECT_EQ(lending_.figures_for(0, 99).largest, Bytes(0));
  EXPECT_EQ(lending_.figures_for(0, 99).free, Slices(13).bytes());
  EXPECT_EQ(lending_.figures_for(0, 10).largest, Slices(13).bytes()) << "one that is kept";
  FakeBorrower late;
  EXPECT_FALSE(begin(late, 1, 99));
  EXPECT_EQ(last().event, Event::kRefused);
  EXPECT_THAT(last().reason, HasSubstr("--store-max"));
  EXPECT_THAT(logged(), HasSubstr("raise --store-max"));
  grant(borrowers[0], 1, 10);
  EXPECT_EQ(borrowers[0].granted, 2);
  lending_.connection_ended(11);
  grant(late, 1, 99);
  EXPECT_EQ(late.granted, 1);
  EXPECT_FALSE(reservation_.capped());
}

TEST_F(LendingStore, TheLastPlaceIsPromisedOnce) {
  std::vector<FakeBorrower> borrowers(kStore + 1);
  close_gate();
  for (std::size_t i = 0; i < kStore; ++i)
    ASSERT_TRUE(begin(borrowers[i], 1, 10 + i));
  EXPECT_FALSE(begin(borrowers[kStore], 1, 99));
  open_gate();
  serve_until([&] { return borrowers[kStore - 1].granted == 1; });
}

TEST_F(LendingStore, WhatCannotBeKeptIsRefusedAndUndone) {
  manager_.close();
  FakeBorrower borrower;
  grant(borrower, 3, 77);
  EXPECT_EQ(borrower.failed, 1);
  EXPECT_THAT(source_.calls, IsEmpty());
  EXPECT_FALSE(lending_.keeps(77));
  EXPECT_THAT(happened(), ElementsAre(Event::kRefused));
  EXPECT_EQ(last().connection, 77U);
  EXPECT_EQ(lending_.figures_for(0, 77).free, Slices(kSlices).bytes());
  EXPECT_EQ(lending_.figures_for(0, 77).largest, Bytes(0)) << "for a second, nothing is promised";
  manager_.open();
  grant(borrower, 3, 77);
  EXPECT_EQ(borrower.granted, 1);
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingStore, WhatIsKeptButCannotBeRecordedIsRefused) {
  FakeBorrower borrower;
  {
    const FileLimit full(text().size());
    grant(borrower, 3, 77);
    EXPECT_EQ(borrower.failed, 1);
  }
  EXPECT_THAT(source_.calls, IsEmpty());
  expect(kSlices, 0);
  EXPECT_TRUE(lending_.keeps(77)) << "until its session ends, which is now";
  lending_.connection_ended(77);
  settle();
  EXPECT_EQ(supervisor_.stored(), 0U);
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingStore, LeasesOnKeptConnectionsOutliveTheDaemon) {
  FakeBorrower lent, waiting, granted;
  grant(lent, 1, 1);
  deliver(lent);
  grant(waiting, 1, 2);
  grant(granted, 1, 3);
  ASSERT_TRUE(lending_.record_grant(granted.lease));
  // One that is not kept.
  LedgerRecord other = of(Event::kGranted, 7);
  ASSERT_TRUE(ledger_->append(of(Event::kRequested, 7)));
  ASSERT_TRUE(ledger_->append(other));
  lending_.adopt(other, kPeer);
  (void)manager_.told();
  const std::string before = text();

  lending_.leave();
  lending_.release(lent.lease);
  lending_.undo(waiting.lease, std::move(waiting.memory));
  lending_.undo(granted.lease, std::move(granted.memory));
  for (const auto connection : {1U, 2U, 3U})
    lending_.connection_ended(connection);
  settle();
  EXPECT_EQ(text(), before);
  EXPECT_THAT(manager_.told(), IsEmpty());
  EXPECT_EQ(lending_.released(), 0U);
  lending_.release(7);
  EXPECT_EQ(last().event, Event::kReleased);
  EXPECT_EQ(last().lease, 7U);
}

// --- after the restart ---

class LendingRestart : protected RestartPlace, public LendingTest {
 protected:
  LendingRestart() : LendingTest((leave_three(), open(Ledger::kMaxFile, kSlices)), kStore) {}

  [[nodiscard]] LedgerRecord record(std::uint64_t lease) const {
    return ledger_->history().open().at(lease).record;
  }
  // As the kernel still knows it of the connection.
  const Peer peer_{.uid = 1000, .gid = 1001, .pid = 4242};
};

TEST_F(LendingRestart, AdoptsWhatGoesOn) {
  const Peer peer{.uid = 5, .gid = 6, .pid = 7};
  LedgerRecord lease = record(1);
  lease.carried = true;  // as it stands where a file begins
  lending_.keep(101);
  EXPECT_TRUE(lending_.keeps(101));
  lending_.adopt(lease, peer);
  lending_.adopt(record(2), peer);
  expect(13, 13);
  EXPECT_EQ(lending_.adopted(), 2U);
  EXPECT_EQ(lending_.granted(), 0U);
  EXPECT_THAT(happened(), ElementsAre(Event::kAdopted, Event::kAdopted));
  const Lease& adopted = lending_.leases().at(1);
  EXPECT_EQ(adopted.connection, 101U);
  EXPECT_EQ(adopted.size, Slices(1).bytes());
  EXPECT_EQ(adopted.peer.pid, 7);
  EXPECT_EQ(adopted.identity.command, "python3");
  EXPECT_EQ(std::chrono::duration_cast<std::chrono::microseconds>(adopted.since.time_since_epoch())
                .count(),
            static_cast<std::int64_t>(lease.since_unix_us));
  lending_.release(1);
  lending_.release(2);
  expect(kSlices, kSlices);
  EXPECT_EQ(lending_.released(), 2U);
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingRestart, ServesARequestFromTheRecord) {
  lending_.keep(103);
  FakeBorrower borrower;
  ASSERT_TRUE(lending_.resume(borrower, record(3), connection_.first.get(), peer_));
  expect(13, 13);
  serve_until([&] { return borrower.granted == 1; });
  EXPECT_EQ(borrower.lease, 3U);
  EXPECT_THAT(happened(), IsEmpty()) << "it is recorded already";
  EXPECT_THAT(manager_.told(), IsEmpty()) << "and kept";
  ASSERT_TRUE(lending_.record_grant(3));
  lending_.answered(3, std::move(borrower.memory));
  EXPECT_THAT(happened(), ElementsAre(Event::kGranted, Event::kAnswered));
  FakeBorrower next;
  grant(next, 1, 200);
  EXPECT_EQ(next.lease, 4U);
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingRestart, RefusesARequestThatIsNotToBeHadAnyMore) {
  reservation_.set_draining(true);
  FakeBorrower borrower;
  EXPECT_FALSE(lending_.resume(borrower, record(3), connection_.first.get(), peer_));
  EXPECT_THAT(happened(), ElementsAre(Event::kRefused));
  EXPECT_EQ(last().lease, 3U);
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingRestart, ARequestThatFailsIsRefused) {
  lending_.keep(103);
  source_.allocate_error = Error{Code::kExhausted, ENOSPC, "allocating", "not enough memory"};
  FakeBorrower borrower;
  ASSERT_TRUE(lending_.resume(borrower, record(3), connection_.first.get(), peer_));
  serve_until([&] { return borrower.failed == 1; });
  EXPECT_THAT(happened(), ElementsAre(Event::kRefused));
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingRestart, RecordsWhatIsLost) {
  for (const auto lease : {1U, 2U, 3U})
    lending_.lost(record(lease), "its connection has ended");
  lending_.dropped(55, "it has no lease and no request");
  EXPECT_THAT(happened(), ElementsAre(Event::kLost, Event::kLost, Event::kLost, Event::kLost));
  EXPECT_EQ(last().lease, 0U);
  EXPECT_EQ(last().connection, 55U);
  EXPECT_EQ(last().reason, "it has no lease and no request");
  EXPECT_EQ(lending_.lost(), 3U);
  EXPECT_THAT(logged(), HasSubstr("lost lease 1 (2 MiB, pid 4242, uid 1000) on connection 101: "
                                  "its connection has ended"));
  expect(kSlices, kSlices);
  EXPECT_EQ(audit(), "good");
}

TEST_F(LendingRestart, AdoptsMoreThanThereIs) {
  LedgerRecord large = record(2);
  large.size = large.asked = Slices(kSlices + 4).bytes();
  lending_.adopt(large, kPeer);
  expect(0, 0);
  lending_.release(2);
  expect(kSlices, kSlices);
}

}  // namespace
}  // namespace carveout::daemon
