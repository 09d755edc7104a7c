#pragma once

// The GPU's own hands on memory: it writes, and what it reads is compared word by word. And the
// processor's, for memory that it sees, too.

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "cuda/driver.hpp"
#include "gpu/calls.hpp"

namespace carveout::test {

inline constexpr int kWaived = 77;

// What memory holds: another word in each 64 KiB of it, or zeros everywhere.
class Pattern {
 public:
  static constexpr Bytes kChunk = kib(64);

  static constexpr Pattern zero() { return Pattern(0); }
  constexpr explicit Pattern(std::uint32_t seed) : seed_(seed) {}

  [[nodiscard]] constexpr std::uint32_t word(std::uint64_t chunk) const {
    // Odd factors: no two chunks have the same.
    return seed_ == 0 ? 0 : seed_ * 0x9E3779B1U + static_cast<std::uint32_t>(chunk) * 0x85EBCA6BU;
  }

 private:
  std::uint32_t seed_;
};

// Device 0 by its primary context. Sizes are whole slices.
class Gpu {
 public:
  static Result<Gpu> open();

  // Returns when it is done.
  Result<void> write(cuda::CUdeviceptr to, Bytes size, Pattern pattern) const;
  // The first word that is not the pattern's, for people; nothing where all are.
  Result<std::optional<std::string>> compare(cuda::CUdeviceptr from, Bytes size,
                                             Pattern pattern) const;

  [[nodiscard]] std::string name() const;
  // Nothing where the driver does not know it.
  [[nodiscard]] std::optional<int> attribute(int which) const;
  [[nodiscard]] const cuda::Context& context() const { return context_; }

 private:
  Gpu(cuda::Context context, decltype(cuda::kMemsetD32)::Type* set,
      decltype(cuda::kMemcpyDtoH)::Type* copy, decltype(cuda::kCtxSynchronize)::Type* synchronize)
      : context_(std::move(context)), set_(set), copy_(copy), synchronize_(synchronize) {}

  cuda::Context context_;
  decltype(cuda::kMemsetD32)::Type* set_;
  decltype(cuda::kMemcpyDtoH)::Type* copy_;
  decltype(cuda::kCtxSynchronize)::Type* synchronize_;
};

void write_by_processor(void* to, Bytes size, Pattern pattern);
std::optional<std::string> compare_by_processor(const void* from, Bytes size, Pattern pattern);

}  // namespace carveout::test
