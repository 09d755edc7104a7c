#pragma once

// What this host is, and how it is at this moment, as far as the kernel tells.

#include <cstdint>
#include <string>
#include <vector>

#include "results.hpp"

namespace carveout::probe {

// host, kernel, processor, page_bytes; the rest is the engine's and the lender's.
[[nodiscard]] Machine host_machine();

// The data caches of a processor, level 1 first, in bytes; none where the kernel tells none.
// `root`: /sys/devices/system/cpu.
[[nodiscard]] std::vector<std::uint64_t> data_caches(int processor, const std::string& root);

// The time, the load average, the frequency governor of a processor.
[[nodiscard]] Moment host_moment(int processor);

// What a huge page is, where pages are of 4 KiB.
inline constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;

// The size of most pages that the memory at an address is mapped by; 0 where the kernel does not
// tell. They must have been touched.
[[nodiscard]] std::uint64_t page_bytes_at(const void* address);
// The same of what /proc/PID/smaps says. Pure.
[[nodiscard]] std::uint64_t page_bytes_in(const std::string& smaps, std::uint64_t address);

inline constexpr const char* kProcessors = "/sys/devices/system/cpu";

}  // namespace carveout::probe
