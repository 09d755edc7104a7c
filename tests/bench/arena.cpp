// What taking a block and placing a plan cost, through the C ABI, against the least that could do
// it: a bare lock-free list, a bare bump pointer. The arms of a comparison alternate in one run.
// Usage: bench_arena [BLOCKS]

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/measure.hpp"
#include "carveout/carveout.h"

namespace carveout::test {
namespace {

constexpr std::uint32_t kCount = 100'000;  // blocks
constexpr int kPairs = 20'000;             // of taking and giving back, a thread and repetition
constexpr std::size_t kPlanes = 64;        // 32 layers' keys and values
constexpr int kPlans = 1'000;              // a repetition
constexpr int kRepetitions = 15;           // a batch, without the cold one
constexpr std::uint64_t kBase = std::uint64_t{7} << 30U;  // where an arena is
constexpr double kFullness[] = {0.01, 0.5, 0.99};
constexpr double kBlocksLimit = 2.5;
constexpr double kPlanesLimit = 5;
constexpr double kTogether = 0.5;  // at least, of a repetition

// A stack of indices whose head has a count in it against ABA. It knows neither a double free nor
// how many are in use. Who loses tries again at once: with several threads that costs more than to
// wait for each other.
class FreeList {
 public:
  explicit FreeList(std::uint32_t count) : next_(count) {
    for (std::uint32_t i = 0; i < count; ++i)
      next_[i] = i + 1 == count ? kEmpty : i + 1;
  }
  static constexpr std::uint32_t kEmpty = UINT32_MAX;
  std::uint32_t pop() {
    std::uint64_t head = head_.load(std::memory_order_acquire);
    for (;;) {
      const auto index = static_cast<std::uint32_t>(head);
      if (index == kEmpty) return kEmpty;
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
  // On a line of its own: who only looks for next_ does not wait for whoever writes this.
  alignas(64) std::atomic<std::uint64_t> head_{0};
};

// As must(), without a call where it is good.
inline void must_be(bool good) {
  if (!good) [[unlikely]]
    must(false, "what is measured");
}

using Work = std::function<void()>;  // of each thread, a repetition
struct Arm {
  std::string name;
  Work work;
};
struct Took {  // a batch, in nanoseconds a repetition
  double cold = 0, median = 0;
  double together = 1;  // of a repetition: how much of it all threads were at it
};

// The cores that this process may use.
std::vector<std::size_t> cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  must(::sched_getaffinity(0, sizeof allowed, &allowed) == 0, "the cores");
  std::vector<std::size_t> found;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) found.push_back(core);
  }
  return found;
}

double load_average() {
  double load = 0;
  must(::getloadavg(&load, 1) == 1, "the load average");
  return load;
}

// What a repetition takes the slowest thread. Threads wait for each other without sleeping, so that
// all begin at once.
Took measure(int threads, const Work& work) {
  struct Span {
    Clock::time_point begin, end;
  };
  constexpr std::size_t kTurns = kRepetitions + 1;
  std::vector<std::vector<Span>> each(static_cast<std::size_t>(threads), std::vector<Span>(kTurns));
  std::atomic<int> here{0};
  std::vector<std::thread> all;
  const std::vector<std::size_t> found = cores();
  for (std::size_t me = 0; me < each.size(); ++me) {
    all.emplace_back([&, me] {
      cpu_set_t only;
      CPU_ZERO(&only);
      CPU_SET(found[me], &only);
      must(::sched_setaffinity(0, sizeof only, &only) == 0, "a core for a thread");
      for (std::size_t turn = 0; turn < kTurns; ++turn) {
        ++here;
        while (here < static_cast<int>(turn + 1) * threads) {
        }
        each[me][turn].begin = Clock::now();
        work();
        each[me][turn].end = Clock::now();
      }
    });
  }
  for (std::thread& thread : all)
    thread.join();
  using Nanoseconds = std::chrono::duration<double, std::nano>;
  std::vector<double> slowest;
  std::vector<double> together;
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    Span all_in = each[0][turn];
    Span any_in = all_in;
    double longest = 0;
    for (const auto& one : each) {
      const Span& span = one[turn];
      all_in = {std::max(all_in.begin, span.begin), std::min(all_in.end, span.end)};
      any_in = {std::min(any_in.begin, span.begin), std::max(any_in.end, span.end)};
      longest = std::max(longest, Nanoseconds(span.end - span.begin).count());
    }
    slowest.push_back(longest);
    together.push_back(std::max(
        0.0, Nanoseconds(all_in.end - all_in.begin) / Nanoseconds(any_in.end - any_in.begin)));
  }
  return {slowest[0], spread_of({slowest.begin() + 1, slowest.end()}).median,
          spread_of({together.begin() + 1, together.end()}).median};
}

void print_ratio(const std::string& what, const std::vector<Took>& one,
                 const std::vector<Took>& other, double limit) {
  std::vector<double> ratios;
  std::vector<double> together;
  for (std::size_t block = 0; block < one.size(); ++block) {
    ratios.push_back(one[block].median / other[block].median);
    together.push_back(std::min(one[block].together, other[block].together));
  }
  const Spread ratio = spread_of(ratios);
  std::printf("    %-44s %5.2f  (%.2f to %.2f)", what.c_str(), ratio.median, ratio.least,
              ratio.most);
  if (limit > 0) {
    // A range with the limit in it says nothing, nor do threads that were there by turns: somebody
    // else was at work.
    const char* verdict = "inconclusive; try a quiet machine";
    if (spread_of(together).median >= kTogether) {
      if (ratio.most <= limit) verdict = "within";
      if (ratio.least > limit) verdict = "BEYOND";
    }
    std::printf("   limit %.1f: %s", limit, verdict);
  }
  std::printf("\n");
}

// Each block has every arm once, in mirrored order by turns; ratios are taken within blocks. The
// first arm is the bare one, the others ours, the emptiest first.
void compare(const char* title, int threads, int blocks, double per, double limit,
             const std::vector<Arm>& arms) {
  std::vector<std::vector<Took>> batches(arms.size());
  for (int block = -1; block < blocks; ++block) {  // the first warms up
    for (std::size_t i = 0; i < arms.size(); ++i) {
      const std::size_t arm = block % 2 == 0 ? i : arms.size() - 1 - i;
      const Took batch = measure(threads, arms[arm].work);
      if (block >= 0) batches[arm].push_back(batch);
    }
  }
  std::printf("  %s\n    %-44s %8s   %-16s %8s   %s\n", title, "nanoseconds", "median", "(range)",
              "cold", "together");
  for (std::size_t arm = 0; arm < arms.size(); ++arm) {
    std::vector<double> medians;
    std::vector<double> cold;
    std::vector<double> together;
    for (const Took& batch : batches[arm]) {
      medians.push_back(batch.median / per);
      cold.push_back(batch.cold / per);
      together.push_back(batch.together * 100);
    }
    const Spread spread = spread_of(medians);
    char range[40];
    (void)std::snprintf(range, sizeof range, "(%.1f to %.1f)", spread.least, spread.most);
    std::printf("    %-44s %8.1f   %-16s %8.1f   %6.0f %%\n", arms[arm].name.c_str(), spread.median,
                range, spread_of(cold).median, spread_of(together).median);
  }
  std::printf("    %-44s\n", "ratio within blocks: median (range)");
  for (std::size_t arm = 1; arm < arms.size(); ++arm)
    print_ratio(arms[arm].name + " : bare", batches[arm], batches[0], limit);
  print_ratio(arms.back().name + " : " + arms[1].name, batches.back(), batches[1], 0);
}

std::string named(double full) {
  return "ours, " + std::to_string(static_cast<int>(full * 100 + 0.5)) + " % in use";
}

struct DestroyBlocks {
  void operator()(carveout_blocks_t* blocks) const { carveout_blocks_destroy(blocks); }
};
struct DestroyPlanes {
  void operator()(carveout_planes_t* planes) const { carveout_planes_destroy(planes); }
};

void compare_blocks(int threads, int blocks) {
  FreeList list(kCount);
  std::vector<Arm> arms{{"bare lock-free list", [&list] {
                           for (int i = 0; i < kPairs; ++i) {
                             const std::uint32_t index = list.pop();
                             must_be(index != FreeList::kEmpty);
                             list.push(index);
                           }
                         }}};
  std::vector<std::unique_ptr<carveout_blocks_t, DestroyBlocks>> arenas;
  for (const double full : kFullness) {
    carveout_blocks_t* arena = nullptr;
    must(carveout_blocks_create(kBase, std::uint64_t{kCount} * 4096, 4096, 4096, &arena, nullptr) ==
             CARVEOUT_OK,
         "the arena");
    arenas.emplace_back(arena);
    std::uint32_t index = 0;
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(kCount * full); ++i)
      must(carveout_blocks_take(arena, &index, nullptr) == CARVEOUT_OK, "a block");
    arms.push_back({named(full), [arena] {
                      std::uint32_t taken = 0;
                      std::uint64_t address = 0;
                      for (int i = 0; i < kPairs; ++i) {
                        must_be(carveout_blocks_take(arena, &taken, &address) == CARVEOUT_OK &&
                                carveout_blocks_give_back(arena, taken) == CARVEOUT_OK);
                      }
                    }});
  }
  const std::string title = "a block taken and given back, by " + std::to_string(threads) +
                            (threads > 1 ? " threads at once" : " thread");
  compare(title.c_str(), threads, blocks, kPairs, kBlocksLimit, arms);
}

// A pointer that goes up, at an alignment.
struct Bump {
  std::uint64_t at, end;
  std::uint64_t place(std::uint64_t bytes, std::uint64_t alignment) {
    const std::uint64_t begin = (at + alignment - 1) & ~(alignment - 1);
    if (bytes > end - begin) return 0;
    at = begin + bytes;
    return begin;
  }
};

using Plan = std::vector<carveout_plane_t>;

// What a plan is told must be there, as a program would look at it: or the loop is gone.
void look_at(const Plan& plan) {
  asm volatile("" : : "g"(plan.data()) : "memory");  // NOLINT(hicpp-no-assembler)
}

void place_and_give_back(carveout_planes_t* arena, Plan& plan) {
  std::uint64_t id = 0;
  for (int i = 0; i < kPlans; ++i) {
    must_be(carveout_planes_place(arena, plan.data(), plan.size(), &id, nullptr) == CARVEOUT_OK);
    look_at(plan);
    must_be(carveout_planes_give_back(arena, id, nullptr) == CARVEOUT_OK);
  }
}

void bump_and_go_back(Bump& bump, Plan& plan) {
  for (int i = 0; i < kPlans; ++i) {
    const std::uint64_t before = bump.at;
    bool all = true;
    for (carveout_plane_t& plane : plan) {
      plane.address = bump.place(plane.bytes, plane.alignment);
      all = all && plane.address != 0;
    }
    must_be(all);
    look_at(plan);
    bump.at = before;
  }
}

void compare_planes(int blocks) {
  constexpr std::uint64_t kRegion = std::uint64_t{1792} << 20U;
  constexpr std::uint64_t kSmall = 65'536;  // of the plans that are in use: up to 28,000
  Plan plan(kPlanes, {200'000, 256, 0});
  Bump bump{kBase, kBase + kRegion};
  std::vector<Arm> arms{{"bare bump pointer", [&] { bump_and_go_back(bump, plan); }}};
  std::vector<std::unique_ptr<carveout_planes_t, DestroyPlanes>> arenas;
  for (const double full : kFullness) {
    carveout_planes_t* arena = nullptr;
    must(carveout_planes_create(kBase, kRegion, &arena, nullptr) == CARVEOUT_OK, "the arena");
    arenas.emplace_back(arena);
    const auto in_use = static_cast<std::uint64_t>(static_cast<double>(kRegion) * full);
    std::uint64_t id = 0;
    for (std::uint64_t used = 0; used < in_use; used += kSmall) {
      carveout_plane_t one{kSmall, 4096, 0};
      must(carveout_planes_place(arena, &one, 1, &id, nullptr) == CARVEOUT_OK, "a plan");
    }
    arms.push_back({named(full), [arena, &plan] { place_and_give_back(arena, plan); }});
  }
  const std::string title =
      "a plane of a plan of " + std::to_string(kPlanes) + ", placed and given back";
  compare(title.c_str(), 1, blocks, static_cast<double>(kPlans) * kPlanes, kPlanesLimit, arms);
}

}  // namespace
}  // namespace carveout::test

int main(int count, char** arguments) try {
  using namespace carveout::test;
  const int blocks = std::max(1, count > 1 ? std::atoi(arguments[1]) : 12);
  const double before = load_average();
  const std::size_t most = cores().size();
  for (const int threads : {1, 2}) {
    if (static_cast<std::size_t>(threads) <= most) compare_blocks(threads, blocks);
  }
  if (most < 2) std::printf("  by 2 threads at once: not measured, there is one core\n");
  compare_planes(blocks);
  std::printf("  load average: %.2f before, %.2f after\n", before, load_average());
  return 0;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "%s\n", problem.what());
  return 1;
}
