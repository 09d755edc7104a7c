#pragma once

// Arms taken by turns: block by block, in an order that mirrors itself, never one after the other.
// It knows nothing of what is measured.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "statistics.hpp"

namespace carveout::probe {

// One of the memories that are compared.
struct ArmToRun {
  std::string name;
  // One repetition, as a rate (or a time: whatever is compared). The first of a batch is cold.
  // After an error the arm is not asked again.
  std::function<Result<double>()> repeat;
  std::size_t repetitions = 20;  // of a batch, beside the cold one
  // Called before each batch, if there is one.
  std::function<void()> begin = {};
};

struct ArmRun {
  std::string name;
  std::vector<Batch> batches;  // one a block
  std::optional<Error> ended;  // why there are no more; then whole batches only
};

// Told after each batch: how many of how many are done.
using Progress = std::function<void(std::size_t done, std::size_t all)>;

// All arms over all blocks. One that ends leaves the others as they were.
[[nodiscard]] std::vector<ArmRun> run_interleaved(const std::vector<ArmToRun>& arms,
                                                  std::size_t blocks,
                                                  const Progress& progress = {});

}  // namespace carveout::probe
