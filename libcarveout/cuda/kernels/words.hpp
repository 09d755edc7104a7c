#pragma once

// What the kernels put into memory, computed alike by the GPU (probe.cu) and by the processor,
// which says with it what must be read.

#include <cstdint>

#ifdef __CUDACC__
#define CARVEOUT_BOTH __host__ __device__
#else
#define CARVEOUT_BOTH
#endif

namespace carveout::cuda {

// A block of every kernel has so many threads.
inline constexpr unsigned kBlock = 256;
// So many blocks are launched for each multiprocessor, which every GPU has room for together: 1024
// threads. The compiler is told, or it saves registers for more blocks, and waits for what a thread
// has under way after every two or three loads.
inline constexpr unsigned kBlocksAtOnce = 4;
// What is chased through memory goes from line to line of this many bytes.
inline constexpr std::uint64_t kChaseLine = 128;
// What is gathered.
inline constexpr std::uint64_t kGatherSpan = 65536;

// splitmix64's output function: a one-to-one mixing of 64 bits.
CARVEOUT_BOTH constexpr std::uint64_t mix(std::uint64_t word) {
  word = (word ^ (word >> 30U)) * 0xBF58476D1CE4E5B9U;
  word = (word ^ (word >> 27U)) * 0x94D049BB133111EBU;
  return word ^ (word >> 31U);
}

// The index-th 64-bit word of memory filled from a seed. Memory filled from seed + n has the same
// words, n places further to the front.
CARVEOUT_BOTH constexpr std::uint64_t random_word(std::uint64_t seed, std::uint64_t index) {
  return mix((seed + index) * 0x9E3779B97F4A7C15U);
}

// Where `index` comes to stand when [0, count) is shuffled: a Feistel network over the next power
// of four, gone through again where it leads out of the range.
CARVEOUT_BOTH constexpr std::uint64_t shuffled(std::uint64_t index, std::uint64_t count,
                                               std::uint64_t seed) {
  unsigned half = 1;
  while (half < 32 && (count - 1) >> (2 * half) != 0)
    ++half;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = index >> half;
    std::uint64_t right = index & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t next = left ^ (random_word(seed + (round << 32U), right) & mask);
      left = right;
      right = next;
    }
    index = left << half | right;
  } while (index >= count);
  return index;
}

}  // namespace carveout::cuda
