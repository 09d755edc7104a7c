#include "unit/failing_heap.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
// So many succeed still; negative: all do.
std::atomic<long> left{-1};
std::atomic<bool> has_failed{false};

void* allocate(std::size_t size, std::size_t alignment = alignof(std::max_align_t)) {
  if (size > carveout::test::kMostAllocated || (left >= 0 && left-- == 0)) {
    left = std::min(left.load(), 0L);
    has_failed = true;
    throw std::bad_alloc();
  }
  const std::size_t whole =
      (std::max(size, std::size_t{1}) + alignment - 1) / alignment * alignment;
  void* const place = std::aligned_alloc(alignment, whole);
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
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
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
[[gnu::noinline]] void operator delete(void* place, std::align_val_t) noexcept {
  std::free(place);
}
[[gnu::noinline]] void operator delete(void* place, std::size_t, std::align_val_t) noexcept {
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
