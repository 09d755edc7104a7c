#pragma once

// Made reports: what an engine might have found, without one.

#include <cstddef>
#include <string>
#include <vector>

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

}  // namespace carveout::probe
