// Accounting over many connections, and what an end of a connection does to it.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "support/daemon_process.hpp"
#include "support/memory.hpp"

namespace carveout::test {
namespace {

constexpr std::uint64_t kReservation = 1023 * kSlice;

TEST(Leases, AThousandAndTwentyThreeOfOneSlice) {
  const DaemonProcess daemon(CARVEOUTD);
  const Peer bystander = daemon.connect();
  const std::size_t before = daemon.descriptors_with(bystander);
  std::vector<Peer> borrowers;
  std::vector<UniqueFd> kept;
  for (int i = 0; i < 1023; ++i) {
    borrowers.push_back(daemon.connect());
    kept.push_back(borrowers.back().alloc(1));
  }
  EXPECT_EQ(bystander.info().free, 0U);
  EXPECT_EQ(bystander.info().largest, 0U);
  EXPECT_EQ(daemon.connect().ask(bystander.alloc_request(1)).bytes,
            R"({"ok": false, "error": "not enough free carveout", "base": 10739515392, )"
            R"("size": 2145386496, "free": 0, "largest": 0})");

  kept.resize(10);  // these borrowers keep their memory beyond the lease
  for (Peer& borrower : borrowers)
    borrower.close();
  // At once: no waiting, on a connection that was there before and on a new one.
  EXPECT_EQ(bystander.info().free, kReservation);
  EXPECT_EQ(daemon.connect().info().largest, kReservation);
  EXPECT_TRUE(eventually([&] { return count_descriptors(daemon.pid()) == before; }));

  const Peer next = daemon.connect();
  const UniqueFd all = next.alloc(kReservation);
  EXPECT_TRUE(is_zeroed_memory(all.get(), kReservation));
}

TEST(Leases, SeveralOnOneConnectionEndTogether) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "64MiB"});
  const Peer bystander = daemon.connect();
  Peer borrower = daemon.connect();
  std::vector<UniqueFd> memory;
  for (std::uint64_t slices = 1; slices <= 6; ++slices)
    memory.push_back(borrower.alloc(slices * kSlice));
  EXPECT_EQ(bystander.info().free, (32 - 21) * kSlice);
  memory.clear();
  EXPECT_EQ(bystander.info().free, (32 - 21) * kSlice) << "the connection is the lease";
  borrower.close();
  EXPECT_EQ(bystander.info().free, 32 * kSlice);
}

TEST(Leases, TheLendersOwnReferenceIsGoneOnceTheReplyIsRead) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "64MiB"});
  const Peer borrower = daemon.connect();
  const std::size_t before = daemon.descriptors_with(borrower);
  const UniqueFd memory = borrower.alloc(kSlice);
  EXPECT_TRUE(eventually([&] { return count_descriptors(daemon.pid()) == before; }))
      << "the borrower's reference is the lease's memory";
}

TEST(Leases, ABorrowerThatLeavesBeforeItsReplyLeavesNothing) {
  const DaemonProcess daemon(CARVEOUTD);
  const Peer bystander = daemon.connect();
  const std::size_t before = daemon.descriptors_with(bystander);
  for (int i = 0; i < 8; ++i) {
    Peer impatient = daemon.connect();
    impatient.send(impatient.alloc_request(512 * kSlice));
    // Half of them leave once the daemon is at it, half before it has looked.
    if (i % 2 == 0) {
      EXPECT_TRUE(eventually([&] { return bystander.info().free < kReservation; }));
    }
    impatient.close();
    EXPECT_TRUE(eventually([&] { return bystander.info().free == kReservation; }));
  }
  EXPECT_TRUE(eventually([&] { return count_descriptors(daemon.pid()) == before; }));
  const UniqueFd all = bystander.alloc(kReservation);
  EXPECT_TRUE(is_zeroed_memory(all.get(), kReservation));
}

TEST(Leases, OfABorrowerThatDiesWhileAskingForMoreAreFreeAtOnce) {
  const DaemonProcess daemon(CARVEOUTD);
  const Peer bystander = daemon.connect();
  Peer borrower = daemon.connect();
  const UniqueFd memory = borrower.alloc(100 * kSlice);
  // Somebody else keeps the worker busy, and the borrower's second ask waits behind that.
  const Peer busy = daemon.connect();
  busy.send(busy.alloc_request(800 * kSlice));
  ASSERT_TRUE(eventually([&] { return bystander.info().free == (1023 - 900) * kSlice; }));
  borrower.send(borrower.alloc_request(kSlice));
  ASSERT_TRUE(eventually([&] { return bystander.info().free == (1023 - 901) * kSlice; }));
  borrower.close();
  EXPECT_GE(bystander.info().free, (1023 - 801) * kSlice);
}

TEST(Leases, RepliesThatWereNotReadAreTakenBackWithTheConnection) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "64MiB"});
  const Peer bystander = daemon.connect();
  Peer silent = daemon.connect();
  for (int i = 0; i < 5; ++i)
    silent.send(silent.alloc_request(kSlice));
  EXPECT_TRUE(
      eventually([&] { return daemon.status().find("\"granted\":5") != std::string::npos; }));
  EXPECT_EQ(bystander.info().free, 27 * kSlice);
  silent.close();
  EXPECT_EQ(bystander.info().free, 32 * kSlice);
}

TEST(Leases, TheLentDescriptorHasItsOwnOffsetAndCannotBeResized) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "64MiB"});
  const Peer borrower = daemon.connect();
  const UniqueFd memory = borrower.alloc(kSlice);
  EXPECT_EQ(::lseek(memory.get(), 0, SEEK_CUR), 0);
  EXPECT_EQ(::ftruncate(memory.get(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(memory.get(), 2 * kSlice), -1);
  EXPECT_EQ(errno, EPERM);
}

}  // namespace
}  // namespace carveout::test
