#pragma once

// Lines that refer each to the next, in one pseudo-random cycle through all of them: a load's
// address is what the load before it has found.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engines/random_words.hpp"

namespace carveout::probe {

// next[i] is the line that line i refers to (Sattolo's algorithm: a single cycle).
[[nodiscard]] inline std::vector<std::uint32_t> load_chain(std::size_t lines, std::uint64_t seed) {
  std::vector<std::uint32_t> next(lines);
  for (std::size_t i = 0; i < lines; ++i)
    next[i] = static_cast<std::uint32_t>(i);
  for (std::size_t i = lines; i-- > 1;)
    std::swap(next[i], next[random_word(seed, i) % i]);
  return next;
}

}  // namespace carveout::probe
