#pragma once

// The data that is measured with: pseudo-random words, which whoever knows the seed can tell again.
// Never zeros: memory that is compressed, or never really there, is fast.

#include <cstddef>
#include <cstdint>

#include "cuda/kernels.hpp"

namespace carveout::probe {

// By the kernels' own mixing. Other seeds have no words in common, which theirs have.
[[nodiscard]] constexpr std::uint64_t random_word(std::uint64_t seed, std::uint64_t index) {
  return cuda::mix(seed * 0xD1342543DE82EF95ULL + (index + 1) * 0x9E3779B97F4A7C15ULL);
}

}  // namespace carveout::probe
