// Ordinary memory against ordinary memory, as carveout-probe compares memories: how often it calls
// a difference where there is none.
// Usage: bench_probe_same [RUNS] [MIB]

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include "engines/cpu_engine.hpp"
#include "findings.hpp"
#include "run.hpp"

namespace carveout::probe {
namespace {

// 200 comparisons of made data give one at most (tests/unit/probe_statistics_test.cpp).
int run(std::size_t runs, std::size_t mib) {
  auto engine = open_cpu_engine(1);
  if (!engine) throw std::runtime_error(engine.error().describe());
  RunSettings settings;
  settings.arms.sources = {"ordinary"};
  settings.arms.size = carveout::mib(mib);
  const auto steps = bandwidth_steps((*engine)->rows(), settings.arms.size);
  std::size_t compared = 0, called = 0;
  for (std::size_t i = 1; i <= runs; ++i) {
    const Report report =
        run_steps("bandwidth", **engine, settings, steps, {}, [] { return false; });
    std::string differences;
    for (const AgainstOrdinary& one : against_ordinary(report)) {
      ++compared;
      if (one.comparison.verdict == Verdict::kInconclusive) continue;
      ++called;
      differences += std::string(" ") + facts(one.row).name;
    }
    std::printf("run %zu of %zu: called different:%s\n", i, runs,
                differences.empty() ? " nothing" : differences.c_str());
    std::fflush(stdout);
  }
  std::printf("%zu runs of %zu MiB against itself: %zu of %zu comparisons called different\n", runs,
              mib, called, compared);
  return compared == 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

}  // namespace
}  // namespace carveout::probe

int main(int argc, char** argv) {
  try {
    return carveout::probe::run(argc > 1 ? std::stoul(argv[1]) : 20,
                                argc > 2 ? std::stoul(argv[2]) : 64);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "bench_probe_same: %s\n", problem.what());
    return EXIT_FAILURE;
  }
}
