#pragma once

// What the CPU engine times: loops over memory, in vectors as wide as this processor has them.
//
// All sizes are multiples of kLine, all pointers aligned to it. None allocates, and what each has
// read comes back as a sum, so that no loop can be left out and its data be checked.

#include <cstddef>
#include <cstdint>
#include <span>

namespace carveout::probe {

inline constexpr std::size_t kLine = 64;

struct CpuKernels {
  const char* width;  // "128 bits", for people
  // The sum of all 64-bit words, modulo 2^64.
  std::uint64_t (*read)(const void* from, std::size_t size);
  // Every word becomes `word`; through the caches, and past them.
  void (*write)(void* to, std::size_t size, std::uint64_t word);
  void (*write_past_caches)(void* to, std::size_t size, std::uint64_t word);
  void (*copy)(void* to, const void* from, std::size_t size);
  // The sum of the words of some spans: `span` bytes at each offset, which are multiples of kLine.
  std::uint64_t (*gather)(const void* from, const std::uint64_t* offsets, std::size_t count,
                          std::size_t span);
};

// Those that this processor can run, the widest last.
[[nodiscard]] std::span<const CpuKernels* const> cpu_kernels();
[[nodiscard]] inline const CpuKernels& widest_cpu_kernels() {
  return *cpu_kernels().back();
}

// Follows pointers: each line's first word is where to go next. Where it ends up: null
// once it has come to a null pointer.
[[nodiscard]] const void* chase(const void* from, std::size_t steps);

}  // namespace carveout::probe
