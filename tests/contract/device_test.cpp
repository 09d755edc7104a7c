// The sources that need a device in the contract suite: tests/guest/run gives them vkms, the heap
// "system", and a CMA heap by the name in CARVEOUT_TEST_HEAP. Elsewhere they are waived.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "contract/source_contract.hpp"
#include "source/dma_heap.hpp"
#include "source/drm.hpp"
#include "unit/helpers.hpp"

namespace carveout::test {
namespace {

// Answers whatever /proc/meminfo would, of a host with `spare` beyond the margin.
class PoorHost {
 public:
  explicit PoorHost(Bytes spare) {
    path_ = directory_.file("meminfo",
                            cat("MemAvailable: ", (mib(256) + spare).count() / 1024, " kB\n"));
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  TemporaryDirectory directory_;
  std::string path_;
};

SourceOrWaived waived_or(Result<std::unique_ptr<Source>> source) {
  if (!source) return Waived{source.error().describe()};
  return *std::move(source);
}

SourceOrWaived system_heap() {
  return waived_or(open_dma_heap_source({.heap = "system"}));
}

SourceOrWaived poor_system_heap() {
  static const PoorHost host(kPoorSize + mib(2));
  return waived_or(open_dma_heap_source({.heap = "system", .meminfo = host.path()}));
}

// NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets it
const char* cma_name() {
  return std::getenv("CARVEOUT_TEST_HEAP");
}

SourceOrWaived cma_heap() {
  if (cma_name() == nullptr) return Waived{"no CMA heap named in CARVEOUT_TEST_HEAP"};
  return waived_or(open_dma_heap_source({.heap = cma_name()}));
}

SourceOrWaived poor_cma_heap() {
  return Waived{"a CMA heap has what it has: tests/guest tries one that is full"};
}

SourceOrWaived drm_card() {
  return waived_or(open_drm_source({.allow_display = true}));
}

SourceOrWaived poor_drm_card() {
  return Waived{"no card here has less than the machine"};
}

INSTANTIATE_TEST_SUITE_P(Device, SourceContract,
                         testing::Values(SourceCase{.name = "SystemHeap",
                                                    .make = system_heap,
                                                    .make_poor = poor_system_heap,
                                                    .opened_anew = false},
                                         SourceCase{.name = "CmaHeap",
                                                    .make = cma_heap,
                                                    .make_poor = poor_cma_heap,
                                                    .opened_anew = false},
                                         SourceCase{.name = "DumbBuffers",
                                                    .make = drm_card,
                                                    .make_poor = poor_drm_card,
                                                    .opened_anew = false}),
                         source_case_name);

}  // namespace
}  // namespace carveout::test
