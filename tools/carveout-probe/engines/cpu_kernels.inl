// The loops for one width of vectors. Included by a file that is compiled for that width, and that
// has said what it is:
//   CARVEOUT_VECTOR_BYTES   16, 32 or 64
//   CARVEOUT_STORE_PAST_CACHES(to, vector)
//   CARVEOUT_STORED_AT_ONCE   how many copies of the vector that stores, side by side
//   CARVEOUT_STORES_ARE_DONE()

#include <cstring>

#include "engines/cpu_kernels.hpp"

namespace carveout::probe {
namespace {

using Vector [[gnu::vector_size(CARVEOUT_VECTOR_BYTES)]] = std::uint64_t;
constexpr std::size_t kVector = sizeof(Vector);
// So many at once that neither latency nor the loop's own steps are what is measured.
constexpr std::size_t kAtOnce = 8;
constexpr std::size_t kStep = kAtOnce * kVector;
// Sums that a loop goes through stay in memory, and each vector is stored there and found again:
// such loops have to be unrolled, whatever the compiler is told to optimize for.
#define CARVEOUT_UNROLLED _Pragma("GCC unroll 8")
static_assert(kAtOnce <= 8 && kLine / kVector <= 8);
constexpr std::size_t kStored = CARVEOUT_STORED_AT_ONCE * kVector;
static_assert(kLine % kStored == 0);

Vector load(const char* from) {
  return *reinterpret_cast<const Vector*>(from);
}

std::uint64_t total(const Vector& vector) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kVector / sizeof sum; ++i)
    sum += vector[i];
  return sum;
}

Vector sum_up(const char* from, std::size_t size) {
  Vector sums[kAtOnce] = {};
  const char* const end = from + size;
  const char* const whole = from + size / kStep * kStep;
  for (; from != whole; from += kStep) {
    CARVEOUT_UNROLLED
    for (std::size_t i = 0; i < kAtOnce; ++i)
      sums[i] += load(from + i * kVector);
  }
  for (; from != end; from += kVector)
    sums[0] += load(from);
  CARVEOUT_UNROLLED
  for (std::size_t i = 1; i < kAtOnce; ++i)
    sums[0] += sums[i];
  return sums[0];
}

std::uint64_t read(const void* from, std::size_t size) {
  return total(sum_up(static_cast<const char*>(from), size));
}

std::uint64_t gather(const void* from, const std::uint64_t* offsets, std::size_t count,
                     std::size_t span) {
  Vector sum = {};
  for (std::size_t i = 0; i < count; ++i)
    sum += sum_up(static_cast<const char*>(from) + offsets[i], span);
  return total(sum);
}

Vector all_of(std::uint64_t word) {
  return Vector{} + word;
}

void write(void* to, std::size_t size, std::uint64_t word) {
  const Vector vector = all_of(word);
  char* at = static_cast<char*>(to);
  for (char* const end = at + size; at != end; at += kLine) {
    CARVEOUT_UNROLLED
    for (std::size_t i = 0; i < kLine; i += kVector)
      *reinterpret_cast<Vector*>(at + i) = vector;
    // Or it becomes a call of memset(), which chooses for itself what passes the caches.
    asm volatile("" : : "r"(at) : "memory");
  }
}

void write_past_caches(void* to, std::size_t size, std::uint64_t word) {
  const Vector vector = all_of(word);
  char* at = static_cast<char*>(to);
  for (char* const end = at + size; at != end; at += kLine) {
    CARVEOUT_UNROLLED
    for (std::size_t i = 0; i < kLine; i += kStored)
      CARVEOUT_STORE_PAST_CACHES(at + i, vector);
  }
  CARVEOUT_STORES_ARE_DONE();
}

void copy(void* to, const void* from, std::size_t size) {
  char* target = static_cast<char*>(to);
  const char* source = static_cast<const char*>(from);
  for (const char* const end = source + size; source != end; source += kLine, target += kLine) {
    Vector line[kLine / kVector];
    CARVEOUT_UNROLLED
    for (std::size_t i = 0; i < kLine / kVector; ++i)
      line[i] = load(source + i * kVector);
    CARVEOUT_UNROLLED
    for (std::size_t i = 0; i < kLine / kVector; ++i)
      *reinterpret_cast<Vector*>(target + i * kVector) = line[i];
    asm volatile("" : : "r"(target) : "memory");  // as above
  }
}

}  // namespace
}  // namespace carveout::probe
