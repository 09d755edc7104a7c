#include "interleave.hpp"

#include <utility>

namespace carveout::probe {
namespace {

Result<Batch> run_batch(const ArmToRun& arm) {
  std::vector<double> repetitions;
  if (arm.begin) arm.begin();
  repetitions.reserve(arm.repetitions + 1);
  while (repetitions.size() <= arm.repetitions) {
    auto rate = arm.repeat();
    if (!rate) return std::move(rate).error();
    repetitions.push_back(*rate);
  }
  return summarize(repetitions);
}

}  // namespace

std::vector<ArmRun> run_interleaved(const std::vector<ArmToRun>& arms, std::size_t blocks,
                                    const Progress& progress) {
  std::vector<ArmRun> runs;
  runs.reserve(arms.size());
  for (const ArmToRun& arm : arms)
    runs.push_back({arm.name, {}, std::nullopt});
  std::size_t done = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    for (const std::size_t which : order_in_block(block, arms.size())) {
      ArmRun& run = runs[which];
      if (!run.ended) {
        auto batch = run_batch(arms[which]);
        if (batch) {
          run.batches.push_back(*batch);
        } else {
          run.ended = std::move(batch).error();
        }
      }
      if (progress) progress(++done, blocks * arms.size());
    }
  }
  return runs;
}

}  // namespace carveout::probe
