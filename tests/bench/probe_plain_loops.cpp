#include "bench/probe_plain_loops.hpp"

namespace carveout::test {

std::uint64_t plain_sum(const void* from, std::size_t size) {
  const auto* const words = static_cast<const std::uint64_t*>(from);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < size / sizeof sum; ++i)
    sum += words[i];
  return sum;
}

void plain_fill(void* to, std::size_t size, std::uint64_t word) {
  auto* const words = static_cast<std::uint64_t*>(to);
  for (std::size_t i = 0; i < size / sizeof word; ++i)
    words[i] = word;
}

void plain_copy(void* to, const void* from, std::size_t size) {
  auto* const target = static_cast<std::uint64_t*>(to);
  const auto* const source = static_cast<const std::uint64_t*>(from);
  for (std::size_t i = 0; i < size / sizeof(std::uint64_t); ++i)
    target[i] = source[i];
}

}  // namespace carveout::test
