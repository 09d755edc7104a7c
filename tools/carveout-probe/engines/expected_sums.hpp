#pragma once

// What the random words of a seed add up to, so that what was read can be checked.

#include <cstdint>
#include <map>
#include <utility>

#include "base/bytes.hpp"
#include "engines/random_words.hpp"

namespace carveout::probe {

class ExpectedSums {
 public:
  // Of the first `size` bytes, modulo 2^64. Computed once, seconds for a GiB.
  std::uint64_t of(std::uint64_t seed, Bytes size) {
    auto& sums = by_seed_[seed];
    if (const auto known = sums.find(size.count()); known != sums.end()) return known->second;
    // From the next smaller one that is known.
    const auto after = sums.lower_bound(size.count());
    const bool has_smaller = after != sums.begin();
    std::uint64_t index = has_smaller ? std::prev(after)->first / sizeof(std::uint64_t) : 0;
    std::uint64_t sum = has_smaller ? std::prev(after)->second : 0;
    for (; index < size.count() / sizeof sum; ++index)
      sum += random_word(seed, index);
    sums.emplace(size.count(), sum);
    return sum;
  }

 private:
  std::map<std::uint64_t, std::map<std::uint64_t, std::uint64_t>> by_seed_;
};

}  // namespace carveout::probe
