// The fake driver's own operator new, as the real one has its own: a test makes the program's fail.
// Linked so that the driver's calls come here, and nobody else's (-Bsymbolic-functions).

#include <cstdlib>
#include <new>

void* operator new(std::size_t size) {
  void* const place = std::malloc(size == 0 ? 1 : size);
  if (place == nullptr) std::abort();
  return place;
}
void operator delete(void* place) noexcept {
  std::free(place);
}
void operator delete(void* place, std::size_t) noexcept {
  std::free(place);
}
void* operator new[](std::size_t size) {
  return operator new(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return operator new(size);
}
void operator delete[](void* place) noexcept {
  std::free(place);
}
void operator delete[](void* place, std::size_t) noexcept {
  std::free(place);
}
