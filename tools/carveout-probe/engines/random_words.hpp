#pragma once

// The data that is measured with: pseudo-random words, which whoever knows the seed can tell again.
// Never zeros: memory that is compressed, or never really there, is fast.

#include <cstddef>
#include <cstdint>

namespace carveout::probe {

// SplitMix64 (Steele, Lea, Flood, 2014) of the place.
[[nodiscard]] constexpr std::uint64_t random_word(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t word = seed * 0xD1342543DE82EF95ULL + (index + 1) * 0x9E3779B97F4A7C15ULL;
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ULL;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBULL;
  return word ^ (word >> 31);
}

}  // namespace carveout::probe
