// What carveout-probe times on a GPU, and what it checks it with. probe.ptx is made from this by
// ./generate, and carried in the tree so that building needs no toolkit.
//
// Loads of what is measured are ld.global.cg, 16 bytes wide: they go past the L1 cache, so that L2
// is what is seen. They are volatile to the compiler, and no two that one thread makes one after
// the other are of the same address, so none can be left out. A vector is 16 bytes. Every kernel
// works in a grid of any number of blocks, of kBlock threads each.

#include "device.cuh"
#include "words.hpp"

using carveout::cuda::kBlock;
using carveout::cuda::kBlocksAtOnce;
using carveout::cuda::kChaseLine;
using carveout::cuda::kGatherSpan;
using carveout::cuda::random_word;
using carveout::cuda::shuffled;

#define KERNEL extern "C" __global__ __launch_bounds__(kBlock, kBlocksAtOnce) void

namespace {

constexpr unsigned kAtOnce = 8;  // loads that a thread has under way
constexpr u64 kVectorsOfSpan = kGatherSpan / sizeof(Vector);
static_assert(kVectorsOfSpan % (kAtOnce * kBlock) == 0);

__device__ u64 thread() {
  return u64{blockIdx.x} * kBlock + threadIdx.x;
}
__device__ u64 threads() {
  return u64{gridDim.x} * kBlock;
}

}  // namespace

// Adds to *sum the sum of all 64-bit words, as often as there are passes. The passes follow each
// other as the memory would if it lay there as often: all threads have work in a working set
// that is smaller than the grid, too.
KERNEL carveout_read(const Vector* from, u64 vectors, u64 passes, u64* sum) {
  const u64 all = vectors * passes;
  const u64 step = threads();
  const u64 step_inside = step % vectors;
  u64 at = thread() % vectors;
  u64 part = 0;
  u64 done = thread();
  for (; done + (kAtOnce - 1) * step < all; done += kAtOnce * step) {
    Vector loaded[kAtOnce];
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      loaded[i] = load(from + at);
      at += step_inside;
      if (at >= vectors) at -= vectors;
    }
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i)
      part += loaded[i].low + loaded[i].high;
  }
  // What is left, fewer loads: at once, too.
  Vector rest[kAtOnce - 1];
#pragma unroll
  for (unsigned i = 0; i < kAtOnce - 1; ++i) {
    rest[i] = done < all ? load(from + at) : Vector{0, 0};
    done += step;
    at += step_inside;
    if (at >= vectors) at -= vectors;
  }
#pragma unroll
  for (unsigned i = 0; i < kAtOnce - 1; ++i)
    part += rest[i].low + rest[i].high;
  add(part, sum);
}

// The same of the spans at those offsets, once; a block takes a span at a time.
KERNEL carveout_gather(const char* from, const u64* offsets, u64 count, u64* sum) {
  u64 part = 0;
  for (u64 which = blockIdx.x; which < count; which += gridDim.x) {
    const u64 offset = load(offsets + which);
    const auto* const span = reinterpret_cast<const Vector*>(from + offset);
#pragma unroll
    for (unsigned at = 0; at < kVectorsOfSpan; at += kAtOnce * kBlock) {
      Vector loaded[kAtOnce];
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i)
        loaded[i] = load(span + threadIdx.x + at + i * kBlock);
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i)
        part += loaded[i].low + loaded[i].high;
    }
  }
  add(part, sum);
}

KERNEL carveout_write(Vector* to, u64 vectors, u64 word) {
#pragma unroll 8
  for (u64 at = thread(); at < vectors; at += threads())
    to[at] = Vector{word, word};
}

KERNEL carveout_copy(Vector* to, const Vector* from, u64 vectors) {
  const u64 step = threads();
  u64 at = thread();
  for (; at + (kAtOnce - 1) * step < vectors; at += kAtOnce * step) {
    Vector loaded[kAtOnce];
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i)
      loaded[i] = load(from + at + i * step);
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i)
      to[at + i * step] = loaded[i];
  }
  Vector rest[kAtOnce - 1];
#pragma unroll
  for (unsigned i = 0; i < kAtOnce - 1; ++i)
    if (at + i * step < vectors) rest[i] = load(from + at + i * step);
#pragma unroll
  for (unsigned i = 0; i < kAtOnce - 1; ++i)
    if (at + i * step < vectors) to[at + i * step] = rest[i];
}

// What is measured is filled with.
KERNEL carveout_fill(Vector* to, u64 vectors, u64 seed) {
  for (u64 at = thread(); at < vectors; at += threads())
    to[at] = Vector{random_word(seed, 2 * at), random_word(seed, 2 * at + 1)};
}

// Lowers *first to the number of the first word that is not random_word(seed, stride * number).
KERNEL carveout_compare(const Vector* from, u64 vectors, u64 seed, u64 stride, u64* first) {
  u64 wrong = ~u64{0};
  for (u64 at = thread(); at < vectors; at += threads()) {
    const Vector loaded = load(from + at);
    const u64 word = 2 * at;
    if (loaded.high != random_word(seed, stride * (word + 1)) && word + 1 < wrong) wrong = word + 1;
    if (loaded.low != random_word(seed, stride * word) && word < wrong) wrong = word;
  }
  if (wrong != ~u64{0}) lower(wrong, first);
}

// Each line's first word becomes the address of another: all of them one cycle, shuffled.
KERNEL carveout_link(u64 to, u64 lines, u64 seed) {
  for (u64 at = thread(); at < lines; at += threads()) {
    const u64 next = at + 1 == lines ? 0 : at + 1;
    auto* const line = reinterpret_cast<u64*>(to + kChaseLine * shuffled(at, lines, seed));
    *line = to + kChaseLine * shuffled(next, lines, seed);
  }
}

// Goes from address to address, and says where it ended. One thread.
KERNEL carveout_chase(u64 from, u64 steps, u64* end) {
  for (u64 step = 0; step < steps; ++step)
    from = load_at(from);
  *end = from;
}

// Keeps the GPU busy that long, so that what is timed is queued before it begins.
KERNEL carveout_wait(u64 nanoseconds) {
  const u64 start = nanoseconds_now();
  while (nanoseconds_now() - start < nanoseconds) {
  }
}
