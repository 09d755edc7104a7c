#pragma once

// One memory as the processor measures it.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engines/anonymous.hpp"
#include "engines/cpu_kernels.hpp"
#include "engines/crew.hpp"
#include "engines/engine.hpp"
#include "engines/expected_sums.hpp"

namespace carveout::probe {

// What the benches of an engine share.
struct CpuParts {
  Crew crew;
  const CpuKernels* kernels;
  ExpectedSums sums;
  // Copied from and to; made when first asked for.
  std::optional<Anonymous> source, sink;
  std::uint64_t seeds = 0;  // given out so far
};

class CpuBench : public Bench {
 public:
  CpuBench(CpuParts& parts, const Place& place)
      : parts_(parts),
        at_(static_cast<char*>(place.host)),
        seed_(++parts.seeds),
        spoiled_(place.size.count()) {}

  Result<double> repeat(Row row, Bytes size) override;

 private:
  Result<double> read(Bytes size, std::uint64_t passes);
  Result<double> write(Bytes size, bool past_caches);
  Result<double> copy_into(Bytes size);
  Result<double> copy_out_of(Bytes size);
  Result<double> gather(Bytes size);
  Result<double> load(Bytes size);

  // Random data wherever it was overwritten.
  void restore();
  // To be said before so many bytes are overwritten.
  void spoil(Bytes size);
  [[nodiscard]] Result<void> check_sum(const char* at, Bytes size, std::uint64_t expected,
                                       const char* what);

  CpuParts& parts_;
  char* at_;
  std::uint64_t seed_;
  std::uint64_t spoiled_;      // so many bytes at the beginning hold something else
  std::uint64_t written_ = 0;  // times
  // Of load(): what refers to what, whether that is what stands in memory now, and where it has
  // come to.
  std::vector<std::uint32_t> chain_;
  bool is_chained_ = false;
  std::uint32_t line_ = 0;
};

}  // namespace carveout::probe
