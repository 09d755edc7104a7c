// carveoutd on the kernel's own dma-heaps.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <optional>
#include <utility>

#include "guest/devices.hpp"
#include "support/memory.hpp"
#include "support/service_manager.hpp"

namespace carveout::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void send_descriptor(int socket, int descriptor) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  ASSERT_EQ(::sendmsg(socket, &message, MSG_NOSIGNAL), 1);
}

// A CMA pool never yields its whole size: 510 of 512 MiB.
class CmaHeap : public testing::Test {
 protected:
  void SetUp() override {
    if (cma_heap().empty()) GTEST_SKIP() << "waived: no CMA heap in CARVEOUT_TEST_HEAP";
    whole_ = meminfo("CmaTotal") / kMib;
    yields_ = (whole_ - 2) * kMib;
  }
  [[nodiscard]] std::vector<std::string> options(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{"--backend", "dma-heap", "--heap", cma_heap(),
                                 "--hold",    "yes",      "--size", std::to_string(whole_) + "MiB"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::uint64_t whole_ = 0;   // MiB
  std::uint64_t yields_ = 0;  // bytes
};

using CmaReservation = CmaHeap;  // of a size that is slow to zero in a guest

TEST_F(CmaReservation, RefusesToStartWithLessThanTheSize) {
  const std::string size = std::to_string(whole_) + " MiB";
  const std::string found = std::to_string(whole_ - 2) + " MiB";
  for (const bool check : {false, true}) {
    const Outcome outcome =
        refuse(options(check ? std::vector<std::string>{"--check"} : std::vector<std::string>()));
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("--size " + size), HasSubstr("gives " + found),
                                     HasSubstr("--allow-partial"), HasSubstr(cma_heap())));
  }
}

TEST_F(CmaReservation, LendsAllThatItMeasured) {
  const DaemonProcess daemon(CARVEOUTD, options({"--allow-partial"}));
  const Peer borrower = daemon.connect();
  EXPECT_EQ(borrower.info().size, yields_);
  EXPECT_EQ(borrower.info().free, yields_);
  EXPECT_EQ(borrower.info().largest, yields_);
  // Nobody else gets any of it.
  EXPECT_LT(meminfo("CmaFree"), 2 * kMib);
  const UniqueFd memory = borrower.alloc(yields_);
  EXPECT_EQ(in_another_process([&] {
              Mapping mapping(memory.get(), yields_);
              const bool zero = mapping.all_zero();
              mapping.fill(0x5a);
              return zero && mapping.all(0x5a);
            }),
            0);
  EXPECT_THAT(
      refusal(daemon, 1),
      AllOf(HasSubstr("not enough free carveout"), HasSubstr("\"free\": 0"),
            HasSubstr("\"size\": " + std::to_string(yields_)), HasSubstr("\"largest\": 0")));
  EXPECT_EQ(missing(daemon), 0U);
}

TEST_F(CmaHeap, AGrantLeavesTheRestHeld) {
  const DaemonProcess daemon(CARVEOUTD, options({"--allow-partial"}));
  const Peer borrower = daemon.connect();
  std::vector<UniqueFd> memory;
  std::uint64_t left = yields_;
  for (const std::uint64_t slices : {1U, 5U, 12U, 1U, 7U}) {
    memory.push_back(borrower.alloc(slices * kSlice));
    left -= slices * kSlice;
    EXPECT_EQ(borrower.info().free, left);
    EXPECT_EQ(borrower.info().largest, left);
    EXPECT_LT(meminfo("CmaFree"), 2 * kMib);
  }
}

TEST_F(CmaReservation, WhatABorrowerKeepsIsMissingUntilItLetsGo) {
  constexpr std::uint64_t kKept = 3 * kSlice;
  const DaemonProcess daemon(CARVEOUTD, options({"--allow-partial"}));
  const Peer bystander = daemon.connect();
  std::optional<Peer> borrower = daemon.connect();
  UniqueFd memory = borrower->alloc(kKept);
  struct stat buffer {};
  ASSERT_EQ(::fstat(memory.get(), &buffer), 0);
  borrower.reset();
  EXPECT_TRUE(eventually([&] { return missing(daemon) == kKept; })) << daemon.status();
  EXPECT_EQ(bystander.info().size, yields_);
  EXPECT_EQ(bystander.info().free, yields_ - kKept);
  EXPECT_LE(largest(daemon), yields_ - kKept);
  {
    const Peer other = daemon.connect();
    EXPECT_TRUE(is_zeroed_memory(other.alloc(largest(daemon)).get(), largest(daemon)));
  }
  const Outcome holders = run({CARVEOUTCTL, "--control", daemon.control(), "holders"});
  EXPECT_EQ(holders.code, 0) << holders.error;
  EXPECT_THAT(holders.output,
              AllOf(HasSubstr(std::to_string(::getpid())), HasSubstr("ended"), HasSubstr("6 MiB")));
  std::printf("%s%s", run({CARVEOUTCTL, "--control", daemon.control(), "status"}).output.c_str(),
              holders.output.c_str());

  memory.reset();
  EXPECT_TRUE(eventually([&] { return missing(daemon) == 0; })) << daemon.status();
  EXPECT_TRUE(eventually([&] { return largest(daemon) == yields_; })) << daemon.status();
  EXPECT_THAT(run({CARVEOUTCTL, "--control", daemon.control(), "holders"}).output,
              testing::Not(HasSubstr(std::to_string(::getpid()))));
}

TEST_F(CmaHeap, AMappingIsKeptAsWell) {
  const DaemonProcess daemon(CARVEOUTD, options({"--allow-partial"}));
  std::optional<Peer> borrower = daemon.connect();
  UniqueFd memory = borrower->alloc(2 * kSlice);
  std::optional<Mapping> mapping(std::in_place, memory.get(), 2 * kSlice);
  mapping->fill(0x33);
  memory.reset();
  borrower.reset();
  EXPECT_TRUE(eventually([&] { return missing(daemon) == 2 * kSlice; })) << daemon.status();
  {
    const Peer other = daemon.connect();
    const std::uint64_t all = largest(daemon);
    const UniqueFd taken = other.alloc(all);
    Mapping(taken.get(), all).fill(0x44);
    EXPECT_TRUE(mapping->all(0x33)) << "nobody else got these pages";
  }
  EXPECT_THAT(run({CARVEOUTCTL, "--control", daemon.control(), "holders"}).output,
              AllOf(HasSubstr(std::to_string(::getpid())), HasSubstr("mapping")));
  mapping.reset();
  EXPECT_TRUE(eventually([&] { return missing(daemon) == 0; })) << daemon.status();
}

TEST_F(CmaHeap, HoldersSaysWhatItCannotSee) {
  const DaemonProcess daemon(CARVEOUTD, options({"--allow-partial"}));
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd receiver(ends[0]);
  const UniqueFd sender(ends[1]);
  {
    const Peer borrower = daemon.connect();
    const UniqueFd memory = borrower.alloc(2 * kSlice);
    send_descriptor(sender.get(), memory.get());
  }
  EXPECT_TRUE(eventually([&] { return missing(daemon) == 2 * kSlice; })) << daemon.status();
  const Outcome holders = run({CARVEOUTCTL, "--control", daemon.control(), "holders"});
  EXPECT_THAT(holders.output + holders.error, HasSubstr("4 MiB more are missing"));
}

TEST_F(CmaHeap, WhatIsKeptCountsAgainstItsUser) {
  const std::uint64_t most = 4 * kSlice;
  const DaemonProcess daemon(
      CARVEOUTD, options({"--allow-partial", "--max-bytes-per-uid", std::to_string(most)}));
  const Peer bystander = daemon.connect();
  std::optional<Peer> borrower = daemon.connect();
  UniqueFd memory = borrower->alloc(3 * kSlice);
  borrower.reset();
  EXPECT_TRUE(eventually([&] { return bystander.info().largest == kSlice; }));
  EXPECT_THAT(refusal(daemon, 2 * kSlice), HasSubstr("not enough free carveout"));
  memory.reset();
  EXPECT_TRUE(eventually([&] { return bystander.info().largest == most; }));
}

TEST_F(CmaHeap, SomebodyElsesShareIsMissedAtTheStart) {
  const DaemonProcess first(CARVEOUTD, {"--backend", "dma-heap", "--heap", cma_heap(), "--size",
                                        "16MiB", "--hold", "yes"});
  const Outcome outcome = refuse(options());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.error, HasSubstr("--allow-partial"));
  const DaemonProcess second(CARVEOUTD, options({"--allow-partial"}));
  EXPECT_LE(second.connect().info().size, yields_ - 16 * kMib);
  EXPECT_EQ(missing(second), 0U);
}

TEST_F(CmaHeap, WithoutHoldTheKernelsRefusalIsPassedOn) {
  const DaemonProcess daemon(CARVEOUTD, {"--backend", "dma-heap", "--heap", cma_heap(), "--size",
                                         std::to_string(whole_) + "MiB"});
  const Peer borrower = daemon.connect();
  EXPECT_THAT(refusal(daemon, whole_ * kMib), HasSubstr("not enough free carveout"));
  EXPECT_EQ(borrower.info().largest, yields_) << "a slice less than what was refused";
  EXPECT_TRUE(is_zeroed_memory(borrower.alloc(yields_).get(), yields_));
}

TEST_F(CmaHeap, ALeaseLivesThroughKill9AndTheRestIsHeldAgain) {
  ServiceManager manager(CARVEOUTD, options({"--allow-partial"}));
  manager.start();
  const Peer borrower = manager.connect();
  const UniqueFd memory = borrower.alloc(2 * kSlice);
  Mapping mapping(memory.get(), 2 * kSlice);
  mapping.fill(0x77);
  ASSERT_EQ(manager.end(SIGKILL), 128 + SIGKILL);
  EXPECT_GT(meminfo("CmaFree"), yields_ - 2 * kSlice - 2 * kMib) << "what was held is free";
  manager.start();
  EXPECT_LT(meminfo("CmaFree"), 2 * kMib) << "and held again";
  EXPECT_TRUE(mapping.all(0x77));
  EXPECT_EQ(borrower.info().size, yields_) << "as the first start measured it";
  EXPECT_EQ(borrower.info().free, yields_ - 2 * kSlice);
  const Peer other = manager.connect();
  const std::uint64_t rest = borrower.info().largest;
  EXPECT_TRUE(is_zeroed_memory(other.alloc(rest).get(), rest));
  EXPECT_TRUE(mapping.all(0x77));
  manager.end(SIGTERM);
}

// The heap that has no memory of its own.
class SystemHeap : public testing::Test {
 protected:
  void SetUp() override {
    if (::access("/dev/dma_heap/system", F_OK) != 0) GTEST_SKIP() << "waived: no heap \"system\"";
  }
};

TEST_F(SystemHeap, LendsZeroedMemoryToAnotherProcess) {
  const DaemonProcess daemon(CARVEOUTD,
                             {"--backend", "dma-heap", "--heap", "system", "--size", "64MiB"});
  const Peer borrower = daemon.connect();
  const UniqueFd memory = borrower.alloc(64 * kMib);
  EXPECT_EQ(in_another_process([&] {
              Mapping mapping(memory.get(), 64 * kMib);
              const bool zero = mapping.all_zero();
              mapping.fill(0x5a);
              return zero && mapping.all(0x5a);
            }),
            0);
}

TEST_F(SystemHeap, IsNeverAskedForMoreThanTheHostCanSpare) {
  const DaemonProcess daemon(CARVEOUTD,
                             {"--backend", "dma-heap", "--heap", "system", "--size", "64GiB"});
  const Peer borrower = daemon.connect();
  EXPECT_THAT(refusal(daemon, 32768 * kMib), HasSubstr("not enough free carveout"));
  const UniqueFd memory = borrower.alloc(kSlice);
  EXPECT_TRUE(is_zeroed_memory(memory.get(), kSlice));
  EXPECT_THAT(daemon.log(), HasSubstr("to spare"));
}

}  // namespace
}  // namespace carveout::test
