// What the daemon itself weighs.

#include <gtest/gtest.h>

#include <iostream>
#include <vector>

#include "support/daemon_process.hpp"

namespace carveout::test {
namespace {

TEST(Resident, IdleAndWithEverySliceLent) {
#ifdef CARVEOUT_SANITIZED
  GTEST_SKIP() << "waived: a sanitizer's own memory is what would be measured";
#endif
  const DaemonProcess daemon(CARVEOUTD);
  const std::size_t idle = resident_kib(daemon.pid());
  EXPECT_LT(idle, 8U * 1024);
  std::vector<Peer> borrowers;
  std::vector<UniqueFd> memory;
  for (int i = 0; i < 1023; ++i) {
    borrowers.push_back(daemon.connect());
    memory.push_back(borrowers.back().alloc(1));
  }
  const std::size_t lent = resident_kib(daemon.pid());
  EXPECT_LT(lent, idle + 16U * 1024);
  std::cout << "resident: idle " << idle << " KiB, with 1,023 leases " << lent << " KiB\n";
}

}  // namespace
}  // namespace carveout::test
