// x86-64 with AVX2. Compiled for that: nothing here may run without.

#include <immintrin.h>
#define CARVEOUT_STORE_PAST_CACHES(to, vector) \
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)(vector))
#define CARVEOUT_STORED_AT_ONCE 1
#define CARVEOUT_STORES_ARE_DONE() _mm_sfence()
#define CARVEOUT_VECTOR_BYTES 32
#include "engines/cpu_kernels.inl"

namespace carveout::probe {
extern const CpuKernels kCpuKernels256;
const CpuKernels kCpuKernels256{"256 bits", read, write, write_past_caches, copy, gather};
}  // namespace carveout::probe
