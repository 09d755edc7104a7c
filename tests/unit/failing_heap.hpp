#pragma once

// A program with failing_heap.cpp in it can have its allocations fail.

#include <cstddef>

namespace carveout::test {

// More at once always fails.
inline constexpr std::size_t kMostAllocated = std::size_t{1} << 30U;

// From now on so many allocations succeed, and none after them; negative: all do.
void allow_allocations(long enough);
// Whether one has failed since.
bool has_failed_to_allocate();

// Runs it with so many allocations; whether they were enough.
template <typename Body>
bool had_enough(long enough, const Body& body) {
  allow_allocations(enough);
  body();
  const bool had = !has_failed_to_allocate();
  allow_allocations(-1);
  return had;
}

}  // namespace carveout::test
