// The CPU engine's streaming loops against the best of loops that others wrote: the C library's,
// the compiler's, and mbw (Debian's), where it is installed. Interleaved in one run, on one
// processor, over the same memory. Every ratio is within blocks.
// Usage: bench_probe_loops [MIB]

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/probe_plain_loops.hpp"
#include "engines/anonymous.hpp"
#include "engines/cpu_kernels.hpp"
#include "engines/crew.hpp"
#include "interleave.hpp"

namespace carveout::probe {
namespace {

constexpr std::size_t kBlocks = 12;
constexpr std::size_t kRepetitions = 9;
constexpr double kLimit = 0.9;

struct Memory {
  char* from;
  char* to;
  std::size_t size;
};

// A loop, whose sum is looked at so that it is not left out.
using Loop = std::function<std::uint64_t(const Memory&)>;

ArmToRun timed(const std::string& name, const Memory& memory, Loop loop) {
  return {name,
          [memory, loop = std::move(loop)]() -> Result<double> {
            const auto begun = std::chrono::steady_clock::now();
            const std::uint64_t sum = loop(memory);
            asm volatile("" : : "r"(sum) : "memory");
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
            return static_cast<double>(memory.size) / took.count() / 1e9;
          },
          kRepetitions};
}

// mbw's own figure of one copy by memcpy(), in GB/s; its arrays are ordinary memory of its own.
Result<double> mbw_copy(std::size_t mib) {
  const std::string command = "mbw -q -n 1 -t 0 " + std::to_string(mib) + " 2>/dev/null";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(::popen(command.c_str(), "r"),
                                                               &::pclose);
  std::array<char, 512> line{};
  while (output && std::fgets(line.data(), line.size(), output.get()) != nullptr) {
    const char* const found = std::strstr(line.data(), "Copy: ");
    if (found != nullptr) return std::strtod(found + 6, nullptr) * 1048576 / 1e9;
  }
  return Error{Code::kNotFound, 0, "mbw", "is not installed"};
}

// Ours against each of the others: the worst of the ratios is what counts.
bool report(const char* what, const std::vector<ArmToRun>& arms) {
  const auto runs = run_interleaved(arms, kBlocks);
  const Arm ours = summarize_arm(runs.front().batches);
  std::printf("%-6s %-28s %7.2f GB/s (%.2f-%.2f)\n", what, runs.front().name.c_str(), ours.median,
              ours.least, ours.most);
  bool good = true;
  for (auto run = runs.begin() + 1; run != runs.end(); ++run) {
    if (run->ended) {
      std::printf("%-6s %-28s waived: %s\n", what, run->name.c_str(),
                  run->ended->describe().c_str());
      continue;
    }
    const Arm other = summarize_arm(run->batches);
    const Comparison ratio = compare(run->batches, runs.front().batches);
    std::printf("%-6s %-28s %7.2f GB/s (%.2f-%.2f)  ours is %.2f of it (%.2f-%.2f)\n", what,
                run->name.c_str(), other.median, other.least, other.most, 1 + ratio.difference,
                1 + ratio.least, 1 + ratio.most);
    good = good && 1 + ratio.difference >= kLimit;
  }
  return good;
}

int run(std::size_t mib) {
  auto crew = Crew::gather(1);
  auto from = Anonymous::map(carveout::mib(mib));
  auto to = Anonymous::map(carveout::mib(mib));
  if (!crew || !from || !to) throw std::runtime_error("no processor or no memory");
  const Memory memory{static_cast<char*>(from->address()), static_cast<char*>(to->address()),
                      mib << 20};
  std::memset(memory.from, 0x5a, memory.size);
  const CpuKernels& ours = widest_cpu_kernels();
  std::printf("%zu MiB, one processor, vectors of %s, %zu blocks of %zu repetitions\n", mib,
              ours.width, kBlocks, kRepetitions);

  const bool reads = report(
      "read",
      {timed("carveout-probe", memory, [&](const Memory& m) { return ours.read(m.from, m.size); }),
       timed("plain sum (-O3 -march=native)", memory,
             [](const Memory& m) { return test::plain_sum(m.from, m.size); }),
       timed("memchr() of what is not there", memory,
             [](const Memory& m) { return std::memchr(m.from, 0, m.size) == nullptr ? 1U : 0U; })});
  const auto nothing = [](auto loop) {
    return [loop](const Memory& m) {
      loop(m);
      return std::uint64_t{0};
    };
  };
  const bool writes = report(
      "write", {timed("carveout-probe", memory, nothing([&](const Memory& m) {
                        ours.write(m.to, m.size, 0x1234567812345678U);
                      })),
                timed("plain stores (-O3 -march=native)", memory, nothing([](const Memory& m) {
                        test::plain_fill(m.to, m.size, 0x1234567812345678U);
                      }))});
  const bool past =
      report("write", {timed("carveout-probe, past caches", memory, nothing([&](const Memory& m) {
                               ours.write_past_caches(m.to, m.size, 0x1234567812345678U);
                             })),
                       timed("memset()", memory,
                             nothing([](const Memory& m) { std::memset(m.to, 0x5a, m.size); }))});
  const bool copies = report(
      "copy", {timed("carveout-probe", memory,
                     nothing([&](const Memory& m) { ours.copy(m.to, m.from, m.size); })),
               timed("plain copy (-O3 -march=native)", memory,
                     nothing([](const Memory& m) { test::plain_copy(m.to, m.from, m.size); })),
               ArmToRun{"mbw (memcpy)", [mib] { return mbw_copy(mib); }, 3}});
  std::printf("read %s, write %s, write past the caches %s, copy %s: at least %.1f of the best\n",
              reads ? "good" : "LESS", writes ? "good" : "LESS", past ? "good" : "LESS",
              copies ? "good" : "LESS", kLimit);
  return reads && writes ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace carveout::probe

int main(int argc, char** argv) {
  try {
    return carveout::probe::run(argc > 1 ? std::stoul(argv[1]) : 512);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "bench_probe_loops: %s\n", problem.what());
    return EXIT_FAILURE;
  }
}
