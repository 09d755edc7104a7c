#pragma once

#include <chrono>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace carveout {

// Reads MemAvailable from `path` (/proc/meminfo).
Result<Bytes> read_mem_available(const std::string& path = "/proc/meminfo");

// Answers whether the host can spare memory before it is asked for, since a kernel without a limit
// of its own kills processes rather than refuse. One thread at a time.
class AvailableMemory {
 public:
  // Left to the rest of the host whatever is asked. The kernel's estimate of what is available
  // is itself only good to about its low watermark, which is well below this.
  static constexpr Bytes kMargin = mib(256);

  explicit AvailableMemory(std::string meminfo = "/proc/meminfo") : meminfo_(std::move(meminfo)) {}

  // Counts `ask` as taken if it fits. The figure is read anew when it is a second old or when this
  // ask is more than an eighth of what is left of it, so that many small asks do not each pay for
  // reading it. Errors: kExhausted, with both sizes; kSystem when it cannot be read.
  Result<void> take(Bytes ask);

 private:
  std::string meminfo_;
  Bytes left_;
  std::chrono::steady_clock::time_point read_at_{};
};

}  // namespace carveout
