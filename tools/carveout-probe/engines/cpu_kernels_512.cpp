// x86-64 with AVX-512. Compiled for that: nothing here may run without.

#include <immintrin.h>
#define CARVEOUT_STORE_PAST_CACHES(to, vector) \
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)(vector))
#define CARVEOUT_STORED_AT_ONCE 1
#define CARVEOUT_STORES_ARE_DONE() _mm_sfence()
#define CARVEOUT_VECTOR_BYTES 64
#include "engines/cpu_kernels.inl"

namespace carveout::probe {
extern const CpuKernels kCpuKernels512;
const CpuKernels kCpuKernels512{"512 bits", read, write, write_past_caches, copy, gather};
}  // namespace carveout::probe
