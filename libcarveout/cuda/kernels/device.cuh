// What only a GPU does, for probe.cu. A test that goes through those kernels on the processor has
// its own instead, and defines this name.
#ifndef CARVEOUT_CUDA_KERNELS_DEVICE
#define CARVEOUT_CUDA_KERNELS_DEVICE

#include "words.hpp"

using u64 = unsigned long long;

constexpr unsigned kWarp = 32;
constexpr unsigned kWarps = carveout::cuda::kBlock / kWarp;

struct alignas(16) Vector {
  u64 low, high;
};

// Loads that go past the L1 cache, and that the compiler leaves where they are.
__device__ inline Vector load(const Vector* from) {
  Vector vector;
  asm volatile("ld.global.cg.v2.u64 {%0, %1}, [%2];"
               : "=l"(vector.low), "=l"(vector.high)
               : "l"(__cvta_generic_to_global(from)));
  return vector;
}

__device__ inline u64 load_at(u64 address) {
  u64 word;
  asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(word) : "l"(address));
  return word;
}
__device__ inline u64 load(const u64* from) {
  return load_at(__cvta_generic_to_global(from));
}

// Of all threads of a block, to *sum: once, as additions to one word wait for each other. Whole
// blocks only, once a kernel.
__device__ inline void add(u64 part, u64* sum) {
  __shared__ u64 of_warps[kWarps];
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2)
    part += __shfl_down_sync(0xFFFFFFFFU, part, distance);
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = part;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned warp = 1; warp < kWarps; ++warp)
    part += of_warps[warp];
  atomicAdd(sum, part);
}

__device__ inline void lower(u64 number, u64* least) {
  atomicMin(least, number);
}

__device__ inline u64 nanoseconds_now() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

#endif
