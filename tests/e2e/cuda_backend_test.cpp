// carveoutd on a GPU's memory, by the driver of tests/fake_cuda. (tests/gpu does it on a real one.)

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "support/daemon_process.hpp"
#include "support/memory.hpp"

namespace carveout::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

DaemonProcess lend_gpu_memory() {
  return DaemonProcess(CARVEOUTD, {"--backend", "cuda", "--size", "64MiB"},
                       {"env", std::string("LD_LIBRARY_PATH=") + CARVEOUT_FAKE_CUDA});
}

TEST(CudaBackend, LendsZeroedMemoryThoughTheLastWasDirtied) {
  const DaemonProcess daemon = lend_gpu_memory();
  for (const std::uint64_t slices : {1U, 3U, 32U, 3U}) {
    const Peer borrower = daemon.connect();
    const UniqueFd memory = borrower.alloc(slices * kSlice);
    EXPECT_EQ(borrower.info().free, (32 - slices) * kSlice);
    // The driver's files of the tests can be mapped as its memory; NVIDIA's cannot.
    Mapping mapping(memory.get(), slices * kSlice);
    EXPECT_TRUE(mapping.all_zero()) << slices;
    mapping.fill(0x5a);
  }
  EXPECT_TRUE(eventually([&] { return daemon.connect().info().free == 32 * kSlice; }));
}

TEST(CudaBackend, IsSaidToLendNvidiasFiles) {
  const DaemonProcess daemon = lend_gpu_memory();
  const Peer borrower = daemon.connect();
  const UniqueFd memory = borrower.alloc(kSlice);
  EXPECT_THAT(daemon.status(),
              AllOf(HasSubstr("\"backend\":\"cuda\""), HasSubstr("\"descriptor\":\"nvidia\"")));
}

TEST(CudaBackend, NeedsADriver) {
  const TempDir directory;
  const std::string key = directory.file("key");
  write_file(key, "secret\n", 0640);
  const Outcome outcome = run({"env", "LD_LIBRARY_PATH=" + directory.file("."), CARVEOUTD,
                               "--backend", "cuda", "--check", "--key-file", key, "--control",
                               directory.file("control.sock"), "--ledger", "none"});
  if (outcome.code == 0) GTEST_SKIP() << "waived: this machine has an NVIDIA driver";
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.error, HasSubstr("libcuda.so.1"));
}

}  // namespace
}  // namespace carveout::test
