// carveoutd on a card of the kernel's: vkms, whose memory is ordinary and is allocated as late as
// its driver can.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <xf86drm.h>

#include <csignal>
#include <optional>

#include "guest/devices.hpp"
#include "support/memory.hpp"
#include "support/service_manager.hpp"

namespace carveout::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The guest says of its card whether it shows a picture.
bool has_card(const char* kind) {
  const char* card = std::getenv("CARVEOUT_TEST_CARD");  // NOLINT(concurrency-mt-unsafe)
  return card != nullptr && std::string(card) == kind;
}

class DarkCard : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_card("dark")) GTEST_SKIP() << "waived: no dark card (CARVEOUT_TEST_CARD=dark)";
  }
};

bool is_zero_and_writable(int memory, std::uint64_t bytes) {
  Mapping mapping(memory, bytes);
  const bool zero = mapping.all_zero();
  mapping.fill(0x5a);
  return zero && mapping.all(0x5a);
}

TEST_F(DarkCard, LendsAnySizeZeroedThoughTheLastWasDirtied) {
  // (To hold ordinary memory is to touch it, which is slow in a guest.)
  const DaemonProcess daemon(CARVEOUTD, {"--backend", "drm", "--size", "1GiB", "--hold", "no"});
  for (const std::uint64_t mib : {2U, 6U, 14U, 62U, 254U, 1024U}) {
    Peer borrower = daemon.connect();
    const UniqueFd memory = borrower.alloc(mib * kMib);
    // Its writes stay in the pages that the next one may get.
    EXPECT_EQ(in_another_process([&] { return is_zero_and_writable(memory.get(), mib * kMib); }), 0)
        << mib << " MiB";
  }
}

TEST_F(DarkCard, HoldsWhatIsNotLent) {
  const std::uint64_t before = meminfo("MemAvailable");
  const DaemonProcess daemon(CARVEOUTD, {"--backend", "drm", "--size", "256MiB"});
  EXPECT_LT(meminfo("MemAvailable"), before - 200 * kMib);
  const Peer borrower = daemon.connect();
  const UniqueFd memory = borrower.alloc(100 * kMib);
  EXPECT_EQ(borrower.info().largest, 156 * kMib);
  EXPECT_EQ(missing(daemon), 0U);
  EXPECT_LT(meminfo("MemAvailable"), before - 200 * kMib);
}

TEST_F(DarkCard, GivesTheMemoryBack) {
  const DaemonProcess daemon(CARVEOUTD, {"--backend", "drm", "--size", "512MiB", "--hold", "no"});
  const std::uint64_t before = meminfo("MemAvailable");
  {
    const Peer borrower = daemon.connect();
    const UniqueFd memory = borrower.alloc(512 * kMib);
    EXPECT_LT(meminfo("MemAvailable"), before - 400 * kMib);
  }
  EXPECT_TRUE(eventually([&] { return meminfo("MemAvailable") > before - 50 * kMib; }));
}

TEST_F(DarkCard, IsSaidToGiveOrdinaryMemory) {
  const DaemonProcess daemon(CARVEOUTD, {"--backend", "drm", "--size", "128MiB"});
  EXPECT_THAT(daemon.log(), AllOf(HasSubstr("ordinary memory"), HasSubstr("vkms")));
  EXPECT_THAT(daemon.status(), HasSubstr("\"ordinary_memory\":true"));
  const Outcome status = run({CARVEOUTCTL, "--control", daemon.control(), "status"});
  EXPECT_THAT(status.output, HasSubstr("ordinary memory"));
  std::printf("%s%s", daemon.log().c_str(), status.output.c_str());
}

TEST_F(DarkCard, ABufferIsFoundAtWhoKeepsIt) {
  const DaemonProcess daemon(CARVEOUTD, {"--backend", "drm", "--size", "64MiB"});
  std::optional<Peer> borrower = daemon.connect();
  const UniqueFd memory = borrower->alloc(2 * kSlice);
  borrower.reset();
  EXPECT_TRUE(eventually([&] {
    const std::string found = run({CARVEOUTCTL, "--control", daemon.control(), "holders"}).output;
    return found.find("ended") != std::string::npos &&
           found.find(std::to_string(::getpid())) != std::string::npos;
  }));
}

TEST_F(DarkCard, ALeaseLivesThroughKill9) {
  ServiceManager manager(CARVEOUTD, {"--backend", "drm", "--size", "64MiB"});
  manager.start();
  const Peer borrower = manager.connect();
  const UniqueFd memory = borrower.alloc(2 * kSlice);
  Mapping mapping(memory.get(), 2 * kSlice);
  mapping.fill(0x77);
  ASSERT_EQ(manager.end(SIGKILL), 128 + SIGKILL);
  manager.start();
  EXPECT_EQ(borrower.info().free, 64 * kMib - 2 * kSlice);
  EXPECT_TRUE(mapping.all(0x77));
  manager.end(SIGTERM);
}

TEST_F(DarkCard, IsLeftToADisplayServer) {
  const DaemonProcess daemon(CARVEOUTD, {"--backend", "drm", "--size", "64MiB"});
  // The first to open a card becomes its master, unless there is one.
  const UniqueFd card(::open("/dev/dri/card0", O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(card);
  EXPECT_EQ(::drmIsMaster(card.get()), 1);
}

class LitCard : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_card("lit")) GTEST_SKIP() << "waived: no lit card (CARVEOUT_TEST_CARD=lit)";
  }
};

TEST_F(LitCard, IsRefusedByName) {
  const Outcome outcome = refuse({"--backend", "drm", "--size", "64MiB"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("/dev/dri/card0"), HasSubstr("vkms"),
                                   HasSubstr("picture"), HasSubstr("--allow-display")));
}

TEST_F(LitCard, LendsWhereTheOperatorWantsIt) {
  const DaemonProcess daemon(CARVEOUTD, {"--backend", "drm", "--size", "64MiB", "--allow-display"});
  const Peer borrower = daemon.connect();
  const UniqueFd memory = borrower.alloc(64 * kMib);
  EXPECT_EQ(in_another_process([&] { return is_zero_and_writable(memory.get(), 64 * kMib); }), 0);
}

TEST_F(LitCard, IsNeverAskedForMoreThanTheHostCanSpare) {
  const std::string size = std::to_string(meminfo("MemTotal") / kMib / 2 * 2 + 512) + "MiB";
  const Outcome held = refuse({"--backend", "drm", "--allow-display", "--size", size});
  EXPECT_EQ(held.code, 1);
  EXPECT_THAT(held.error, AllOf(HasSubstr("--allow-partial"), HasSubstr("to spare")));
  const DaemonProcess daemon(
      CARVEOUTD, {"--backend", "drm", "--allow-display", "--size", size, "--hold", "no"});
  const Peer borrower = daemon.connect();
  EXPECT_THAT(refusal(daemon, borrower.info().size), HasSubstr("not enough free carveout"));
  EXPECT_TRUE(is_zeroed_memory(borrower.alloc(kSlice).get(), kSlice));
}

}  // namespace
}  // namespace carveout::test
