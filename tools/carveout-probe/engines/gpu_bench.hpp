#pragma once

// One memory as the GPU engine measures it.

#include <cstdint>
#include <map>
#include <memory>

#include "engines/engine.hpp"
#include "engines/gpu.hpp"

namespace carveout::probe {

class GpuBench final : public Bench {
 public:
  // `number`: unlike any other bench's of this GPU. The memory is full of its own random words.
  GpuBench(std::shared_ptr<Gpu> gpu, cuda::CUdeviceptr start, Bytes size, std::uint64_t number);

  Result<double> repeat(Row row, Bytes size) override;

 private:
  enum class By { kKernel, kDriver };

  Result<double> measure(Row row, Bytes size);
  Result<double> read(Bytes size, std::uint64_t passes);
  Result<double> gather(Bytes size);
  Result<double> write(Bytes size);
  Result<double> copy_into(Bytes size, By by);
  Result<double> copy_out_of(Bytes size, By by);
  Result<double> load(Bytes size);

  // The memory holds its own random words again.
  Result<void> randomize(Bytes size);
  // It is one cycle of addresses.
  Result<void> link(Bytes size);
  // The sum of its own random words.
  std::uint64_t expected_sum(Bytes size);
  [[nodiscard]] Result<void> check_sum(std::uint64_t expected, Bytes size,
                                       const std::string& how) const;
  // That all words from there on are random_word(seed, stride * number).
  [[nodiscard]] Result<void> check_words(cuda::CUdeviceptr from, Bytes size, std::uint64_t seed,
                                         std::uint64_t stride, const std::string& how) const;
  Result<double> copy(cuda::CUdeviceptr to, cuda::CUdeviceptr from, Bytes size, By by) const;
  // What was copied last time is not what is copied now.
  [[nodiscard]] Bytes next_shift();

  const std::shared_ptr<Gpu> gpu_;
  const cuda::CUdeviceptr start_;
  const Bytes size_;
  const std::uint64_t seed_;
  RandomContent content_;
  std::uint64_t lines_ = 0;     // that are one cycle: 0 for none
  std::uint64_t position_ = 0;  // in the cycle, where the last chase ended
  std::uint64_t writes_ = 0;
  bool shifted_ = false;
  std::map<Bytes, std::uint64_t> sums_;
};

}  // namespace carveout::probe
