// Lending when all goes well: figures, leases, descriptors, order.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "unit/lending_fixture.hpp"

namespace carveout::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(LendingTest, GrantsExactlyWhatIsAsked) {
  FakeBorrower borrower;
  grant(borrower, 3);
  ASSERT_EQ(borrower.granted, 1);
  struct stat status {};
  ASSERT_EQ(::fstat(borrower.memory.get(), &status), 0);
  EXPECT_EQ(Bytes(static_cast<std::uint64_t>(status.st_size)), Slices(3).bytes());
  expect(13, 13);
  EXPECT_THAT(source_.calls, ElementsAre("allocate 3", "share"));
}

TEST_F(LendingTest, CountsTheSlicesAtOnceAndAsksTheSourceLater) {
  close_gate();
  FakeBorrower borrower;
  ASSERT_TRUE(begin(borrower, 3));
  expect(13, 13);
  EXPECT_EQ(borrower.granted, 0);
  EXPECT_TRUE(lending_.leases().empty());
  open_gate();
  serve_until([&] { return borrower.granted == 1; });
  expect(13, 13);
}

TEST_F(LendingTest, DoesNothingWhenTheAccountsSayNo) {
  FakeBorrower borrower;
  EXPECT_FALSE(begin(borrower, kSlices + 1));
  reservation_.set_draining(true);
  EXPECT_FALSE(begin(borrower, 1));
  reservation_.set_draining(false);
  reservation_.cap_largest(Slices(2));
  EXPECT_FALSE(begin(borrower, 3));
  settle();
  EXPECT_EQ(borrower.granted + borrower.failed, 0);
  EXPECT_TRUE(source_.calls.empty());
  expect(kSlices, 2);
}

TEST_F(LendingTest, TheLeaseSaysWhoHasWhat) {
  const auto before = std::chrono::system_clock::now();
  FakeBorrower borrower;
  grant(borrower, 2, 77);
  const auto& leases = lending_.leases();
  ASSERT_EQ(leases.size(), 1U);
  const auto& [id, lease] = *leases.begin();
  EXPECT_EQ(id, borrower.lease);
  EXPECT_EQ(lease.id, id);
  EXPECT_EQ(lease.connection, 77U);
  EXPECT_EQ(lease.size, Slices(2).bytes());
  EXPECT_EQ(lease.charge.slices(), Slices(2));
  EXPECT_EQ(lease.peer.uid, kPeer.uid);
  EXPECT_EQ(lease.peer.pid, kPeer.pid);
  EXPECT_GE(lease.since, before);
  EXPECT_LE(lease.since, std::chrono::system_clock::now());
  struct stat status {};
  ASSERT_EQ(::fstat(borrower.memory.get(), &status), 0);
  EXPECT_EQ(lease.inode, status.st_ino);
  EXPECT_EQ(lease.identity.command + "\n", *read_text("/proc/self/comm", 64));
}

TEST_F(LendingTest, KeepsOnlyTheDescriptorThatIsLent) {
  FakeBorrower borrower;
  grant(borrower, 2);
  EXPECT_EQ(test::open_descriptors(), descriptors_ + 1);
  lending_.answered(borrower.lease, std::move(borrower.memory));
  settle();
  EXPECT_EQ(test::open_descriptors(), descriptors_);
  EXPECT_EQ(lending_.leases().size(), 1U);
  expect(14, 14);
}

TEST_F(LendingTest, ClosesTheLentDescriptorOnTheWorker) {
  FakeBorrower borrower;
  grant(borrower, 2);
  const int number = borrower.memory.get();
  close_gate();
  lending_.answered(borrower.lease, std::move(borrower.memory));
  EXPECT_TRUE(test::is_open(number));
  open_gate();
  settle();
  EXPECT_FALSE(test::is_open(number));
}

TEST_F(LendingTest, CountsAnsweredGrantsAndReleases) {
  FakeBorrower borrower;
  grant(borrower, 2);
  EXPECT_EQ(lending_.granted(), 0U);
  lending_.answered(borrower.lease, std::move(borrower.memory));
  EXPECT_EQ(lending_.granted(), 1U);
  EXPECT_EQ(lending_.released(), 0U);
  lending_.release(borrower.lease);
  EXPECT_EQ(lending_.released(), 1U);
  lending_.release(borrower.lease);  // there is no such lease any more
  lending_.release(4711);
  EXPECT_EQ(lending_.released(), 1U);
}

TEST_F(LendingTest, AReleaseFreesTheSlicesAtOnce) {
  FakeBorrower borrower;
  grant(borrower, 5);
  lending_.answered(borrower.lease, std::move(borrower.memory));
  close_gate();  // whatever the worker has to do
  lending_.release(borrower.lease);
  expect(kSlices, kSlices);
  EXPECT_TRUE(lending_.leases().empty());
}

TEST_F(LendingTest, UndoFreesTheSlicesOnlyWhenTheMemoryIsClosed) {
  FakeBorrower borrower;
  grant(borrower, 5);
  const int number = borrower.memory.get();
  close_gate();
  lending_.undo(borrower.lease, std::move(borrower.memory));
  EXPECT_TRUE(lending_.leases().empty());
  EXPECT_TRUE(test::is_open(number));
  expect(11, 11);
  open_gate();
  serve_until([&] { return lending_.figures_for(0, 1).free == Slices(kSlices).bytes(); });
  EXPECT_FALSE(test::is_open(number));
  EXPECT_EQ(test::open_descriptors(), descriptors_);
  expect(kSlices, kSlices);
  EXPECT_EQ(lending_.granted(), 0U);
  EXPECT_EQ(lending_.released(), 0U);
}

TEST_F(LendingTest, UndoOfALeaseThatIsGoneStillClosesTheMemory) {
  FakeBorrower borrower;
  grant(borrower, 5);
  lending_.release(borrower.lease);
  lending_.undo(borrower.lease, std::move(borrower.memory));
  settle();
  EXPECT_EQ(test::open_descriptors(), descriptors_);
  expect(kSlices, kSlices);
}

TEST_F(LendingTest, AnAnswerForALeaseThatIsGoneStillClosesTheMemory) {
  FakeBorrower borrower;
  grant(borrower, 5);
  lending_.release(borrower.lease);
  lending_.answered(borrower.lease, std::move(borrower.memory));
  settle();
  EXPECT_EQ(test::open_descriptors(), descriptors_);
}

TEST_F(LendingTest, AnswersInTheOrderAsked) {
  FakeBorrower first, second, third;
  close_gate();
  ASSERT_TRUE(begin(first, 4));
  ASSERT_TRUE(begin(second, 1));
  ASSERT_TRUE(begin(third, 2));
  expect(9, 9);
  open_gate();
  serve_until([&] { return third.granted == 1; });
  EXPECT_THAT(FakeBorrower::order, ElementsAre(&first, &second, &third));
  EXPECT_LT(first.lease, second.lease);
  EXPECT_LT(second.lease, third.lease);
  std::vector<std::uint64_t> ids;
  for (const auto& [id, lease] : lending_.leases())
    ids.push_back(id);
  EXPECT_THAT(ids, ElementsAre(first.lease, second.lease, third.lease));
}

TEST_F(LendingTest, NeverUsesALeasesNumberAgain) {
  FakeBorrower borrower;
  grant(borrower, 1);
  const std::uint64_t first = borrower.lease;
  EXPECT_NE(first, 0U);  // 0 is "no lease"
  lending_.release(first);
  grant(borrower, 1);
  EXPECT_GT(borrower.lease, first);
}

TEST_F(LendingTest, LendsToTheLastSlice) {
  std::vector<FakeBorrower> borrowers(kSlices);
  for (FakeBorrower& borrower : borrowers)
    grant(borrower, 1);
  expect(0, 0);
  FakeBorrower late;
  EXPECT_FALSE(begin(late, 1));
  lending_.release(borrowers[5].lease);
  expect(1, 1);
  grant(late, 1);
  EXPECT_EQ(late.granted, 1);
  expect(0, 0);
}

TEST_F(LendingTest, DrainingLetsAGrantUnderWayThrough) {
  FakeBorrower borrower;
  close_gate();
  ASSERT_TRUE(begin(borrower, 3));
  reservation_.set_draining(true);
  open_gate();
  serve_until([&] { return borrower.granted == 1; });
  expect(13, 0);
}

TEST_F(LendingTest, ScrubsBeforeSharingWhatTheKernelDoesNotZero) {
  source_.kernel_zeroes = false;
  FakeBorrower borrower;
  grant(borrower, 2);
  EXPECT_EQ(borrower.granted, 1);
  EXPECT_THAT(source_.calls, ElementsAre("allocate 2", "scrub", "share"));
}

TEST_F(LendingTest, RepeatsTheSourcesWarningOnce) {
  source_.warning = "the pages ran out";
  FakeBorrower borrower;
  grant(borrower, 1);
  EXPECT_THAT(logged(), HasSubstr("carveoutd: the pages ran out\n"));
  grant(borrower, 1);
  EXPECT_EQ(logged(), "");
}

TEST_F(LendingTest, LogsGrantsAndReleases) {
  FakeBorrower borrower;
  grant(borrower, 3, 42);
  EXPECT_EQ(logged(), "");
  lending_.answered(borrower.lease, std::move(borrower.memory));
  const std::string granted = logged();
  EXPECT_THAT(granted, HasSubstr("granted lease 1: 6 MiB"));
  EXPECT_THAT(granted, HasSubstr(std::to_string(kPeer.pid)));
  EXPECT_THAT(granted, HasSubstr("connection 42"));
  lending_.release(borrower.lease);
  EXPECT_THAT(logged(), HasSubstr("released lease 1: 6 MiB"));
}

TEST_F(LendingTest, GivesEverythingBackWhenTheWorkerIsDroppedWithGrantsUnderWay) {
  FakeBorrower one, two, three;
  close_gate();
  ASSERT_TRUE(begin(one, 3));
  ASSERT_TRUE(begin(two, 4));
  open_gate();
  // The first may be finished on the worker and not yet be done; the others may be in the queue.
  worker_->stop();
  ASSERT_TRUE(begin(three, 5));
  EXPECT_EQ(reservation_.figures().free, Slices(4).bytes());
  worker_.reset();
  EXPECT_EQ(reservation_.figures().free, Slices(kSlices).bytes());
  EXPECT_EQ(one.granted + one.failed + two.granted + two.failed + three.granted + three.failed, 0);
  EXPECT_LE(test::open_descriptors(), descriptors_);
}

}  // namespace
}  // namespace carveout::daemon
