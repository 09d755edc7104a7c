#pragma once

// What a run has found, as plain data: what tables, curves, pages and files are made from, and what
// is read back from a file. Verdicts are not in it: they follow from it (findings.hpp).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "statistics.hpp"

namespace carveout::probe {

// What is measured of a memory. The names of kRows are those of tables and files.
enum class Row {
  kReread,           // the same bytes read again and again
  kRead,             // read in one pass
  kWrite,            // written in one pass
  kWritePastCaches,  // the same with non-temporal stores: the processor only
  kDriverCopyInto,   // by cuMemcpyDtoD, from ordinary memory: the GPU only, as the next
  kDriverCopyOutOf,  // by cuMemcpyDtoD, to ordinary memory
  kCopyInto,         // by loads and stores, from ordinary memory
  kCopyOutOf,        // by loads and stores, to ordinary memory
  kGather,           // read in spans of 64 KiB at pseudo-random places, as a paged KV cache is
  kLoad,             // the time of a load whose address is what the load before it has found
  kClaim,            // the time from asking for memory to having it mapped
  kGiveBack,         // the time of unmapping it and giving it back
};

enum class Unit { kGbPerSecond, kNanoseconds, kMilliseconds };

struct RowFacts {
  Row row;
  const char* name;   // "copy_into": in files
  const char* title;  // for people
  Unit unit;
  // Which bytes a rate counts, for people; "" where it is a time.
  const char* counted;
};
[[nodiscard]] const RowFacts& facts(Row row);
[[nodiscard]] std::optional<Row> row_named(std::string_view name);
[[nodiscard]] const char* name_of(Unit unit);          // "GB/s", "ns", "ms"
[[nodiscard]] const char* field_suffix_of(Unit unit);  // "gb_per_s", "ns", "ms"
[[nodiscard]] constexpr bool more_is_better(Unit unit) {
  return unit == Unit::kGbPerSecond;
}

enum class EngineKind { kCpu, kGpu };
[[nodiscard]] constexpr const char* name_of(EngineKind engine) {
  return engine == EngineKind::kGpu ? "gpu" : "cpu";
}

// What held while a batch was taken.
struct Moment {
  double unix_s = 0;
  double load_average = 0;  // of one minute
  std::string governor;     // of the processor's frequency; "" where the kernel tells none
  // Of the GPU, where NVML tells.
  std::optional<unsigned> sm_mhz, memory_mhz, celsius, other_processes;
};

// One row, at one size, of one arm.
struct Series {
  std::size_t arm = 0;  // which of the report's arms
  Row row = Row::kRead;
  Bytes size;
  std::vector<Batch> batches;   // the i-th is of block i; fewer than the blocks where the arm ended
  std::vector<Moment> moments;  // one a batch
};

// One of the memories that are compared.
struct ArmRecord {
  std::string name;              // "ordinary", "daemon/vmm": unlike any other's in the report
  std::string source;            // as --source has it, or "ordinary"
  std::string map;               // as --map has it; "" of ordinary memory
  std::string memory;            // for people: what it is, and what it was lent as
  std::uint64_t page_bytes = 0;  // 0: not known
  std::string unavailable;       // why it could not be had at all; "" where it could
  std::string ended;             // why it ended before the last block; "" where it did not
  [[nodiscard]] bool is_ordinary() const { return source == "ordinary"; }
};

// What does not change during a run. Text is for people; "" and 0: not known.
struct Machine {
  std::string host;              // its own name
  std::string kernel;            // "Linux 6.18.44 x86_64"
  std::string processor;         // "Intel(R) Xeon(R) Processor, 2 CPUs"
  std::string gpu;               // its name; "" with the CPU engine, as the next two
  std::string driver;            // "580.82.07"
  std::string cuda;              // "13.0": the newest that the driver speaks
  std::string lender;            // "carveoutd 0.1.0, backend drm (...)", or why that is not known
  std::uint64_t page_bytes = 0;  // of the host
  // Of what is between this engine and the memory, smallest first: a GPU's L2 alone, or the
  // processor's data caches, level 1 first.
  std::vector<std::uint64_t> cache_bytes;
};

// How `lender` begins where it is not known.
inline constexpr std::string_view kLenderNotKnown = "not known: ";

// Which of them the verdict on residency is about: a GPU's L2, a processor's own level 2. (Its last
// cache is often others', too, and in a virtual machine its size says little.) 0: not known.
[[nodiscard]] Bytes judged_cache(EngineKind engine, const std::vector<std::uint64_t>& cache_bytes);

struct Report {
  std::string version;  // of the probe
  std::string command;  // "bandwidth", "residency", "latency"
  EngineKind engine = EngineKind::kCpu;
  std::string engine_detail;  // for people: "processor, 1 thread, 512 bits", "NVIDIA GB10, 48 SMs"
  double started_unix_s = 0, ended_unix_s = 0;
  Bytes size;                 // of each arm
  std::uint64_t threads = 1;  // of the CPU engine
  std::uint64_t blocks = 0;
  // Of the working set whose rereading the verdict on residency is about; 0 without one.
  Bytes reread_size;
  Machine machine;
  std::vector<ArmRecord> arms;  // ordinary memory first
  std::vector<Series> series;   // by rows, then sizes, then arms
};

// The series of that arm, or null.
[[nodiscard]] const Series* find(const Report& report, std::size_t arm, Row row, Bytes size);

}  // namespace carveout::probe
