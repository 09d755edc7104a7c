// Many claims on a small CMA heap that the daemon holds: nothing gets lost in it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "guest/devices.hpp"
#include "support/memory.hpp"

namespace carveout::test {
namespace {

// Once others' pages, which may lie in free CMA memory, are out of it (claiming it all moves them),
// and with what was freed a moment ago, which the kernel keeps in lists that do not count.
std::uint64_t cma_free() {
  std::ofstream("/proc/sys/vm/drop_caches") << 3 << std::flush;
  EXPECT_EQ(run_carveoutd({"--backend", "dma-heap", "--heap", cma_heap(), "--size", "64MiB",
                           "--hold", "yes", "--allow-partial", "--check"})
                .code,
            0);
  std::ofstream("/proc/sys/vm/compact_memory") << 1 << std::flush;
  return meminfo("CmaFree");
}

struct Borrower {
  std::optional<Peer> peer;
  std::vector<std::pair<UniqueFd, std::uint64_t>> memory;
};

TEST(CmaClaims, AThousandByEightBorrowersLeaveNothingMissing) {
  if (cma_heap().empty()) GTEST_SKIP() << "waived: no CMA heap in CARVEOUT_TEST_HEAP";
  const std::uint64_t before = cma_free();
  const char* wanted = std::getenv("CARVEOUT_TEST_CLAIMS");  // NOLINT(concurrency-mt-unsafe)
  const int claims = wanted == nullptr ? 1000 : std::atoi(wanted);
  std::mt19937_64 random(20261130);
  std::uint64_t quiet = 0;
  std::uint64_t granted = 0;
  {
    const DaemonProcess daemon(CARVEOUTD, {"--backend", "dma-heap", "--heap", cma_heap(), "--size",
                                           "64MiB", "--hold", "yes", "--allow-partial"});
    const Peer bystander = daemon.connect();
    const std::uint64_t size = bystander.info().size;
    std::vector<Borrower> borrowers(8);
    const auto release_all = [&] {
      for (Borrower& borrower : borrowers)
        borrower = {};
    };
    for (int step = 0; step < claims; ++step) {
      Borrower& borrower = borrowers[random() % borrowers.size()];
      if (!borrower.peer) borrower.peer = daemon.connect();
      const std::uint64_t ask = (1 + random() % 8) * kSlice - random() % 100;
      Reply reply = borrower.peer->ask(borrower.peer->alloc_request(ask));
      if (reply.descriptors.size() == 1) {
        ++granted;
        const std::uint64_t got = member(reply.bytes, "size");
        ASSERT_TRUE(is_zeroed_memory(reply.descriptors[0].get(), got));
        Mapping(reply.descriptors[0].get(), got).fill(0xee);
        borrower.memory.emplace_back(std::move(reply.descriptors[0]), got);
      }
      if (reply.descriptors.empty() || random() % 3 == 0) borrower = {};
      if (step % 50 != 49) continue;
      if (random() % 2 == 0) release_all();
      // Nobody keeps a buffer beyond its lease: as soon as the daemon has had a look, all is there.
      ASSERT_TRUE(eventually([&] { return missing(daemon) == 0; })) << daemon.status();
      std::uint64_t held = 0;
      for (const Borrower& each : borrowers) {
        for (const auto& [memory, bytes] : each.memory)
          held += bytes;
      }
      ASSERT_EQ(bystander.info().free, size - held);
      ++quiet;
    }
    release_all();
    EXPECT_TRUE(eventually([&] { return missing(daemon) == 0 && largest(daemon) == size; }))
        << daemon.status();
  }
  EXPECT_GT(granted * 3, static_cast<std::uint64_t>(claims));
  // A few pages of others' come back into it at once; what we could have lost is slices.
  const std::uint64_t after = cma_free();
  EXPECT_LT(before - std::min(before, after), kSlice) << after << " of " << before;
  std::printf(
      "%d asks, %llu granted, missing 0 at %llu quiet moments, CmaFree %llu before and %llu "
      "after\n",
      claims, static_cast<unsigned long long>(granted), static_cast<unsigned long long>(quiet),
      static_cast<unsigned long long>(before), static_cast<unsigned long long>(after));
}

}  // namespace
}  // namespace carveout::test
