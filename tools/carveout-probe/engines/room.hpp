#pragma once

// Whether there is room for ordinary memory, asked before any of it is touched: a kernel does not
// refuse it, but kills a process, and not always the one that asked.

#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace carveout::probe {

// Where the kernel tells it.
struct RoomFiles {
  std::string meminfo = "/proc/meminfo";
  std::string own_group = "/proc/self/cgroup";
  std::string groups = "/sys/fs/cgroup";  // version 2
};

// Of the host, less what the library's own sources leave to it, and of the control groups that the
// process is in. What is not told bounds nothing. The error (kExhausted) says what there is.
Result<void> check_room(Bytes size, const RoomFiles& files = {});

}  // namespace carveout::probe
