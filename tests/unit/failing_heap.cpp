#include "unit/failing_heap.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {
// So many succeed still; negative: all do.
std::atomic<long> left{-1};
std::atomic<bool> has_failed{false};

void* allocate(std::size_t size) {
  if (size > carveout::test::kMostAllocated || (left >= 0 && left-- == 0)) {
    left = std::min(left.load(), 0L);
    has_failed = true;
    throw std::bad_alloc();
  }
  void* const place = std::malloc(size == 0 ? 1 : size);
  if (place == nullptr) throw std::bad_alloc();
  return place;
}
}  // namespace

void* operator new(std::size_t size) {
  return allocate(size);
}
void* operator new[](std::size_t size) {
  return allocate(size);
}
// Not inline: the compiler would see free() of what new has given.
[[gnu::noinline]] void operator delete(void* place) noexcept {
  std::free(place);
}
[[gnu::noinline]] void operator delete[](void* place) noexcept {
  std::free(place);
}
[[gnu::noinline]] void operator delete(void* place, std::size_t) noexcept {
  std::free(place);
}
[[gnu::noinline]] void operator delete[](void* place, std::size_t) noexcept {
  std::free(place);
}

namespace carveout::test {

void allow_allocations(long enough) {
  has_failed = false;
  left = enough;
}

bool has_failed_to_allocate() {
  return has_failed;
}

}  // namespace carveout::test
