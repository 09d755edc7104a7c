// The kernels' source gone through by the processor, thread by thread, in grids of all kinds: each
// byte is read as often as it has to be, and nothing beside it. A GPU's own part (device.cuh) is
// replaced by what counts.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "base/bytes.hpp"
#include "base/text.hpp"

namespace {

using u64 = unsigned long long;

struct alignas(16) Vector {
  u64 low, high;
};

struct Index {
  unsigned x = 0;
};
Index blockIdx, threadIdx, gridDim;

// Which vectors and words a launch has loaded, and how often; by each thread, the last one.
std::map<const void*, unsigned> loads;
const void* last = nullptr;
bool repeated = false;  // a thread has loaded the same twice, one right after the other

void note(const void* from) {
  ++loads[from];
  repeated = repeated || last == from;
  last = from;
}
Vector load(const Vector* from) {
  note(from);
  return *from;
}
u64 load(const u64* from) {
  return *from;
}
u64 load_at(u64 address) {
  const auto* const from = reinterpret_cast<const u64*>(address);
  note(from);
  return *from;
}
void add(u64 part, u64* sum) {
  *sum += part;
}
void lower(u64 number, u64* least) {
  *least = std::min(*least, number);
}
u64 nanoseconds_now() {
  static u64 now = 0;
  return now += 7;
}

}  // namespace

#define CARVEOUT_CUDA_KERNELS_DEVICE
#define __global__
#define __device__
#define __launch_bounds__(threads, blocks)
#include "cuda/kernels/probe.cu"

namespace carveout::test {
namespace {

constexpr u64 kSeed = 4711;
constexpr std::array<unsigned, 5> kGrids{1, 2, 3, 7, 16};

void launch(unsigned blocks, unsigned threads, const std::function<void()>& kernel) {
  gridDim.x = blocks;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) {
      last = nullptr;
      kernel();
    }
  }
}

// With as much before and behind, which must stay as it is.
class Memory {
 public:
  explicit Memory(Bytes size) : vectors_(size.count() / sizeof(Vector)), all_(3 * vectors_) {
    std::fill(all_.begin(), all_.end(), Vector{~u64{0}, ~u64{0}});
    for (u64 i = 0; i < words(); ++i)
      begin()[i] = random_word(kSeed, i);
    loads.clear();
    repeated = false;
  }
  [[nodiscard]] u64 vectors() const { return vectors_; }
  [[nodiscard]] u64 words() const { return 2 * vectors_; }
  [[nodiscard]] Vector* start() { return all_.data() + vectors_; }
  [[nodiscard]] u64* begin() { return &start()->low; }
  [[nodiscard]] u64 sum() { return std::accumulate(begin(), begin() + words(), u64{0}); }
  [[nodiscard]] bool is_fenced() const {
    const auto fence = [](const Vector& one) { return one.low == ~u64{0} && one.high == one.low; };
    const auto from = all_.begin(), to = from + static_cast<std::ptrdiff_t>(vectors_);
    return std::all_of(from, to, fence) &&
           std::all_of(to + static_cast<std::ptrdiff_t>(vectors_), all_.end(), fence);
  }
  // That each vector was loaded so often, and nothing else.
  void expect_loaded(unsigned times) {
    EXPECT_EQ(loads.size(), vectors_);
    for (const auto& [at, count] : loads) {
      EXPECT_GE(at, start());
      EXPECT_LT(at, start() + vectors_);
      ASSERT_EQ(count, times);
    }
  }

 private:
  std::size_t vectors_;
  std::vector<Vector> all_;
};

TEST(CudaKernelsSource, ReadAllAsOftenAsThereArePasses) {
  for (const unsigned blocks : kGrids) {
    for (const Bytes size : {kib(4), kib(8), kib(12), kib(60), kib(128)}) {
      for (const unsigned passes : {1U, 2U, 5U}) {
        SCOPED_TRACE(cat(blocks, " blocks, ", format_bytes(size), ", ", passes, " passes"));
        Memory memory(size);
        u64 sum = 1;
        launch(blocks, kBlock,
               [&] { carveout_read(memory.start(), memory.vectors(), passes, &sum); });
        memory.expect_loaded(passes);
        EXPECT_EQ(sum, 1 + passes * memory.sum());
        // What Kernels::read() sees to.
        const bool whole = u64{blocks} * kBlock % memory.vectors() == 0;
        EXPECT_TRUE(whole || !repeated);
      }
    }
  }
}

TEST(CudaKernelsSource, GatherEachSpanOnce) {
  for (const unsigned blocks : kGrids) {
    Memory memory(Bytes(5 * kGatherSpan));
    std::vector<u64> offsets(5);
    for (u64 i = 0; i < offsets.size(); ++i)
      offsets[i] = shuffled(i, offsets.size(), kSeed) * kGatherSpan;
    u64 sum = 0;
    const auto* const from = reinterpret_cast<const char*>(memory.start());
    launch(blocks, kBlock, [&] { carveout_gather(from, offsets.data(), offsets.size(), &sum); });
    memory.expect_loaded(1);
    EXPECT_EQ(sum, memory.sum());
  }
}

TEST(CudaKernelsSource, WriteFillAndCopyAllAndNothingElse) {
  for (const unsigned blocks : kGrids) {
    for (const Bytes size : {kib(4), kib(60), kib(128)}) {
      Memory from(size), to(size);
      launch(blocks, kBlock, [&] { carveout_write(to.start(), to.vectors(), 77); });
      EXPECT_TRUE(std::all_of(to.begin(), to.begin() + to.words(), [](u64 w) { return w == 77; }));
      launch(blocks, kBlock, [&] { carveout_copy(to.start(), from.start(), to.vectors()); });
      EXPECT_TRUE(std::equal(from.begin(), from.begin() + from.words(), to.begin()));
      from.expect_loaded(1);
      launch(blocks, kBlock, [&] { carveout_fill(to.start(), to.vectors(), kSeed + 9); });
      for (u64 i = 0; i < to.words(); ++i)
        ASSERT_EQ(to.begin()[i], random_word(kSeed + 9, i));
      EXPECT_TRUE(from.is_fenced() && to.is_fenced());
    }
  }
}

TEST(CudaKernelsSource, CompareAllAndTellTheFirst) {
  for (const unsigned blocks : kGrids) {
    Memory memory(kib(60));
    const auto first = [&](u64 seed, u64 stride) {
      u64 number = ~u64{0};
      loads.clear();
      launch(blocks, kBlock,
             [&] { carveout_compare(memory.start(), memory.vectors(), seed, stride, &number); });
      memory.expect_loaded(1);
      return number;
    };
    EXPECT_EQ(first(kSeed, 1), ~u64{0});
    EXPECT_EQ(first(kSeed, 0), 1U);
    for (const u64 wrong : {memory.words() - 1, u64{4000}, u64{2001}, u64{0}}) {
      memory.begin()[wrong] ^= 1;
      EXPECT_EQ(first(kSeed, 1), wrong);
    }
  }
}

TEST(CudaKernelsSource, LinkOneCycleAndChaseIt) {
  for (const unsigned blocks : kGrids) {
    Memory memory(kib(256));
    const u64 lines = memory.words() * sizeof(u64) / kChaseLine;
    const auto start = reinterpret_cast<u64>(memory.start());
    launch(blocks, kBlock, [&] { carveout_link(start, lines, kSeed); });
    EXPECT_TRUE(memory.is_fenced());
    u64 end = 0;
    launch(1, 1, [&] { carveout_chase(start, lines, &end); });
    EXPECT_EQ(end, start);
    EXPECT_EQ(loads.size(), lines);
    launch(1, 1, [&] { carveout_chase(start + kChaseLine * shuffled(3, lines, kSeed), 2, &end); });
    EXPECT_EQ(end, start + kChaseLine * shuffled(5, lines, kSeed));
  }
}

TEST(CudaKernelsSource, WaitSoLong) {
  const u64 before = nanoseconds_now();
  launch(1, 1, [] { carveout_wait(1000); });
  EXPECT_GE(nanoseconds_now() - before, 1000U);
}

}  // namespace
}  // namespace carveout::test
