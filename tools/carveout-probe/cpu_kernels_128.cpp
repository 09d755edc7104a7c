// What every processor of the architecture has.

#if defined(__x86_64__)
#include <emmintrin.h>
#define CARVEOUT_STORE_PAST_CACHES(to, vector) \
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)(vector))
#define CARVEOUT_STORES_ARE_DONE() _mm_sfence()
#elif defined(__aarch64__)
// Stored in pairs; one of the two is written twice.
#define CARVEOUT_STORE_PAST_CACHES(to, vector) \
  asm volatile("stnp %d0, %d1, [%2]" : : "w"((vector)[0]), "w"((vector)[1]), "r"(to) : "memory")
#define CARVEOUT_STORES_ARE_DONE() asm volatile("dmb ishst" : : : "memory")
#else
#define CARVEOUT_STORE_PAST_CACHES(to, vector) *reinterpret_cast<Vector*>(to) = (vector)
#define CARVEOUT_STORES_ARE_DONE() static_cast<void>(0)
#endif
#define CARVEOUT_VECTOR_BYTES 16
#include "cpu_kernels.inl"

namespace carveout::probe {
extern const CpuKernels kCpuKernels128;
const CpuKernels kCpuKernels128{"128 bits", read, write, write_past_caches, copy, gather};
}  // namespace carveout::probe
