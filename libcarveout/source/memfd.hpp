#pragma once

#include <memory>
#include <string>

#include "source/source.hpp"

namespace carveout {

struct MemfdSettings {
  // Where the host says how many 2 MiB huge pages it has, and how much memory.
  std::string huge_pages = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
  std::string meminfo = "/proc/meminfo";
};

// Ordinary memory in sealed memfds: needs no device and no privilege. 2 MiB huge pages where the
// host has set some aside, ordinary pages otherwise or when those run out (said once by
// take_warning()). The memory can be neither shrunk nor grown by whoever holds it.
std::unique_ptr<Source> make_memfd_source(const MemfdSettings& settings = {});

}  // namespace carveout
