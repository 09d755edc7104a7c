#pragma once

// Made reports: what an engine might have found, without one.

#include <cstddef>
#include <string>
#include <vector>

#include "files/result_file.hpp"
#include "results.hpp"

namespace carveout::probe {

// Text from a device or a lender that means something to a terminal, to HTML, or to both.
inline constexpr const char* kHostileName = "NVIDIA <b>GB10</b> & \"Sons'\033[31m</title>";
inline constexpr const char* kHostileReason =
    "the lender: said \"<script>alert(1)</script>\" & closed";

// Of one row: `blocks` batches about `rate`, 1 % up and down by turns.
[[nodiscard]] Series series_of(std::size_t arm, Row row, Bytes size, double rate,
                               std::size_t blocks = 8);

// Of a GPU with an L2 of 24 MiB, in eight blocks: ordinary memory falls from 812 GB/s within it to
// 245 GB/s; "daemon/vmm" is read at 209 to 244 GB/s at each size; "daemon/register" was kept as
// ordinary memory is and ended after three blocks; "drm/external" could not be had.
[[nodiscard]] Report residency_report();

// Of a processor, in eight blocks: "memfd/host" is slower in reading, faster in being written, and
// not to be told apart in copies.
[[nodiscard]] Report bandwidth_report();

// Times of claiming and of giving back of one arm.
[[nodiscard]] Report latency_report();

// No two figures of one of these are the same, where it has them at all.

// Of the processor: two arms, and one that could not be had.
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

}  // namespace carveout::probe
