#pragma once

// A whole run: which rows at which sizes, arms by turns, into a report.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "arms.hpp"
#include "engines/engine.hpp"
#include "interleave.hpp"
#include "results.hpp"

namespace carveout::probe {

struct RunSettings {
  ArmSettings arms;
  std::uint64_t threads = 1;
  std::uint64_t blocks = kLeastBlocks;
  std::uint64_t repetitions = 0;  // of a batch; 0: as many as take a tenth of a second, 5 to 20
};

// A row at a size, of every arm.
struct Step {
  Row row = Row::kRead;
  Bytes size;
  bool operator==(const Step&) const = default;
};

// Of each memory, unless it is said: 512 MiB, and of a GPU 32 times its L2, if that is more, up to
// 1792 MiB. Then hardly any of a stream is still in the L2 when it begins again.
[[nodiscard]] Bytes default_size(EngineKind engine, Bytes cache);

// What bandwidth measures: one working set that fits an L2, and the rest over all of `size`.
[[nodiscard]] std::vector<Step> bandwidth_steps(const std::vector<Row>& rows, Bytes size);

// The working set that a cache surely holds: the largest power of two that is at most a third of
// it; 8 MiB where the cache is not known.
[[nodiscard]] Bytes well_inside(Bytes cache);

// What residency measures: the stream over all of `size`, and rereading from `least` to
// 16 times the largest cache, or `size`, two sizes an octave. `inside` is among them.
[[nodiscard]] std::vector<Step> residency_steps(EngineKind engine, Bytes largest_cache,
                                                Bytes inside, Bytes size);

// Measures `steps` of all arms that there are; nothing where none but ordinary memory is to be had.
// Arms end by themselves, with their reasons in the report, and all of them once `interrupted` says
// so.
using Interrupted = bool (*)();
[[nodiscard]] Report run_steps(const char* command, Engine& engine, const RunSettings& settings,
                               const std::vector<Step>& steps, const Progress& progress,
                               Interrupted interrupted);

// Measures taking and giving back, by the same rules: no arm is held meanwhile.
[[nodiscard]] Report run_latency(Engine& engine, const RunSettings& settings,
                                 const Progress& progress, Interrupted interrupted);

// What is there to be measured, each arm taken for a moment. No series.
[[nodiscard]] Report run_info(Engine& engine, const RunSettings& settings);

}  // namespace carveout::probe
