// What taking a block and placing a plan cost, through the C ABI, against the least that could do
// it: a bare atomic free list, a bare bump pointer. Ratios within mirrored blocks of one run.
// Usage: bench_arena [BLOCKS]

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "bench/measure.hpp"
#include "carveout/carveout.h"

namespace carveout::test {
namespace {

constexpr std::uint32_t kCount = 100'000;  // blocks
constexpr int kPairs = 200'000;            // of takings and givings back, a thread and batch
constexpr std::size_t kPlanes = 64;        // 32 layers' keys and values
constexpr int kPlans = 4'000;              // a batch

// A stack of indices whose head has a count in it against ABA. It knows neither a double free nor
// how many are in use.
class FreeList {
 public:
  explicit FreeList(std::uint32_t count) : next_(count), head_(0) {
    for (std::uint32_t i = 0; i < count; ++i)
      next_[i] = i + 1;
  }
  std::uint32_t pop() {
    std::uint64_t head = head_.load(std::memory_order_acquire);
    for (;;) {
      const auto index = static_cast<std::uint32_t>(head);
      const std::uint64_t next =
          ((head >> 32U) + 1) << 32U | next_[index].load(std::memory_order_relaxed);
      if (head_.compare_exchange_weak(head, next, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        return index;
      }
    }
  }
  void push(std::uint32_t index) {
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    for (;;) {
      next_[index].store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
      const std::uint64_t next = ((head >> 32U) + 1) << 32U | index;
      if (head_.compare_exchange_weak(head, next, std::memory_order_release,
                                      std::memory_order_relaxed)) {
        return;
      }
    }
  }

 private:
  std::vector<std::atomic<std::uint32_t>> next_;
  std::atomic<std::uint64_t> head_;
};

using Work = std::function<void()>;

void stay_here(std::size_t core) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  must(::sched_setaffinity(0, sizeof only, &only) == 0, "a core for a thread");
}

// Nanoseconds a thread: the slowest one's.
double run(int threads, const Work& work) {
  std::barrier start(threads);
  std::vector<double> took(static_cast<std::size_t>(threads));
  std::vector<std::thread> all;
  for (std::size_t me = 0; me < took.size(); ++me) {
    all.emplace_back([&, me] {
      stay_here(me);
      start.arrive_and_wait();
      const auto begin = Clock::now();
      work();
      took[me] = std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
    });
  }
  for (std::thread& thread : all)
    thread.join();
  return *std::max_element(took.begin(), took.end());
}

// Ours against theirs, in ABBA order within each block.
void compare(const char* row, int threads, int blocks, double per, const Work& ours,
             const Work& theirs) {
  std::vector<double> mine;
  std::vector<double> bare;
  std::vector<double> ratios;
  for (int block = -1; block < blocks; ++block) {  // the first warms up
    const double one = run(threads, theirs);
    const double two = run(threads, ours) + run(threads, ours);
    const double both = one + run(threads, theirs);
    if (block < 0) continue;
    mine.push_back(two / 2 / per);
    bare.push_back(both / 2 / per);
    ratios.push_back(two / both);
  }
  const Spread ratio = spread_of(ratios);
  std::printf("  %-44s %6.1f ns  %6.1f ns   %5.2f  (%.2f to %.2f)\n", row, spread_of(mine).median,
              spread_of(bare).median, ratio.median, ratio.least, ratio.most);
}

void measure_blocks(int threads, double full, int blocks) {
  carveout_blocks_t* arena = nullptr;
  must(carveout_blocks_create(0, std::uint64_t{kCount} * 4096, 4096, 4096, &arena, nullptr) ==
           CARVEOUT_OK,
       "the arena");
  FreeList list(kCount);
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(kCount * full); ++i) {
    std::uint32_t index = 0;
    must(carveout_blocks_take(arena, &index, nullptr) == CARVEOUT_OK, "a block");
    (void)list.pop();
  }
  char row[64];
  (void)std::snprintf(row, sizeof row, "take + give back, %d thread%s, %2.0f %% in use", threads,
                      threads > 1 ? "s" : "", full * 100);
  compare(
      row, threads, blocks, kPairs,
      [&] {
        std::uint32_t index = 0;
        std::uint64_t address = 0;
        for (int i = 0; i < kPairs; ++i) {
          must(carveout_blocks_take(arena, &index, &address) == CARVEOUT_OK &&
                   carveout_blocks_give_back(arena, index) == CARVEOUT_OK,
               "a block");
        }
      },
      [&] {
        for (int i = 0; i < kPairs; ++i)
          list.push(list.pop());
      });
  carveout_blocks_destroy(arena);
}

// A pointer that goes up, at an alignment, and back to where the plan began.
struct Bump {
  std::uint64_t at, end;
  std::uint64_t place(std::uint64_t bytes, std::uint64_t alignment) {
    const std::uint64_t begin = (at + alignment - 1) & ~(alignment - 1);
    if (bytes > end - begin) return 0;
    at = begin + bytes;
    return begin;
  }
};

void measure_planes(double full, int blocks) {
  constexpr std::uint64_t kRegion = std::uint64_t{1792} << 20U;
  constexpr std::uint64_t kPlaneBytes = 200'000;
  constexpr std::uint64_t kBase = std::uint64_t{7} << 30U;
  constexpr std::uint64_t kSmall = 4096 * 16;
  carveout_planes_t* arena = nullptr;
  must(carveout_planes_create(kBase, kRegion, &arena, nullptr) == CARVEOUT_OK, "the arena");
  const auto in_use = static_cast<std::uint64_t>(static_cast<double>(kRegion) * full);
  std::uint64_t id = 0;
  for (std::uint64_t used = 0; used < in_use; used += kSmall) {
    carveout_plane_t one{kSmall, 4096, 0};
    must(carveout_planes_place(arena, &one, 1, &id, nullptr) == CARVEOUT_OK, "a plan");
  }
  std::vector<carveout_plane_t> plan(kPlanes, {kPlaneBytes, 256, 0});
  Bump bump{kBase + in_use, kBase + kRegion};
  char row[64];
  (void)std::snprintf(row, sizeof row, "a plane of a plan of %zu, %2.0f %% in use", kPlanes,
                      full * 100);
  compare(
      row, 1, blocks, static_cast<double>(kPlans) * kPlanes,
      [&] {
        for (int i = 0; i < kPlans; ++i) {
          must(
              carveout_planes_place(arena, plan.data(), plan.size(), &id, nullptr) == CARVEOUT_OK &&
                  carveout_planes_give_back(arena, id, nullptr) == CARVEOUT_OK,
              "a plan");
        }
      },
      [&] {
        for (int i = 0; i < kPlans; ++i) {
          const std::uint64_t before = bump.at;
          for (carveout_plane_t& plane : plan) {
            plane.address = bump.place(plane.bytes, plane.alignment);
            must(plane.address != 0, "a plane");
          }
          // As a program would look at it: or the loop is gone.
          asm volatile("" : : "g"(plan.data()) : "memory");  // NOLINT(hicpp-no-assembler)
          bump.at = before;
        }
      });
  carveout_planes_destroy(arena);
}

}  // namespace
}  // namespace carveout::test

int main(int count, char** arguments) try {
  using namespace carveout::test;
  const int blocks = count > 1 ? std::atoi(arguments[1]) : 9;
  std::printf("  %-44s %9s  %9s   %s\n", "", "ours", "bare", "ratio (range)");
  for (const int threads : {1, 2}) {
    for (const double full : {0.01, 0.5, 0.99})
      measure_blocks(threads, full, blocks);
  }
  for (const double full : {0.01, 0.5, 0.99})
    measure_planes(full, blocks);
  return 0;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "%s\n", problem.what());
  return 1;
}
