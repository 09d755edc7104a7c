#pragma once

// Reports of every kind, made up: no two figures of one are the same, where it has them at all.

#include "files/result_file.hpp"
#include "results.hpp"

namespace carveout::probe::test {

// Of the processor: two arms, one of which could not be had.
[[nodiscard]] Report made_bandwidth();
// Of a GPU, with all that NVML tells: four arms, of which one ended early and one could not be had.
[[nodiscard]] Report made_residency();
// Times: two units of them.
[[nodiscard]] Report made_latency();
// With as little as there can be.
[[nodiscard]] Report made_empty();

// One of each kind of finding for made_residency(), with texts of its own.
[[nodiscard]] Findings made_findings();

// A failure for each member that is not the same.
void expect_same(const Report& report, const Report& expected);

}  // namespace carveout::probe::test
