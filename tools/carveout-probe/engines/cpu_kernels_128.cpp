// What every processor of the architecture has.

#if defined(__x86_64__)
#include <emmintrin.h>
#define CARVEOUT_STORE_PAST_CACHES(to, vector) \
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)(vector))
#define CARVEOUT_STORED_AT_ONCE 1
#define CARVEOUT_STORES_ARE_DONE() _mm_sfence()
#elif defined(__aarch64__)
// Only pairs are stored so.
#define CARVEOUT_STORE_PAST_CACHES(to, vector) \
  asm volatile("stnp %q0, %q0, [%1]" : : "w"(vector), "r"(to) : "memory")
#define CARVEOUT_STORED_AT_ONCE 2
#define CARVEOUT_STORES_ARE_DONE() asm volatile("dmb ishst" : : : "memory")
#else
#define CARVEOUT_STORE_PAST_CACHES(to, vector) *reinterpret_cast<Vector*>(to) = (vector)
#define CARVEOUT_STORED_AT_ONCE 1
#define CARVEOUT_STORES_ARE_DONE() static_cast<void>(0)
#endif
#define CARVEOUT_VECTOR_BYTES 16
#include "engines/cpu_kernels.inl"

namespace carveout::probe {
extern const CpuKernels kCpuKernels128;
const CpuKernels kCpuKernels128{"128 bits", read, write, write_past_caches, copy, gather};
}  // namespace carveout::probe
