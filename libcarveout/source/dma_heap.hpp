#pragma once

#include <memory>
#include <string>

#include "base/result.hpp"
#include "source/source.hpp"

namespace carveout {

struct DmaHeapSettings {
  std::string heap;                         // its name, as in `directory`
  std::string directory = "/dev/dma_heap";  // where the kernel has them
  std::string meminfo = "/proc/meminfo";
};

// dma-bufs from a heap of the kernel's, which zeroes them. A heap with memory of its own (CMA, a
// carve-out) refuses what it does not have; "system" takes what everybody shares and would rather
// kill than refuse, so it is never asked for more than the host can spare. Errors: kNotFound (no
// such heap: those that there are, are named), kSystem (not allowed, no device).
Result<std::unique_ptr<Source>> open_dma_heap_source(const DmaHeapSettings& settings);

}  // namespace carveout
