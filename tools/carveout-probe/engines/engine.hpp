#pragma once

// What an engine can do with memory. See cpu_engine.hpp, gpu_engine.hpp.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "results.hpp"

namespace carveout::probe {

// Where memory is: as carveout_info_t has it.
struct Place {
  void* host = nullptr;      // null where the processor does not see it
  std::uint64_t device = 0;  // 0 where the GPU does not see it
  Bytes size;
};

// One memory as an engine measures it. It does not own the memory, which must outlive it.
class Bench {
 public:
  Bench() = default;
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  Bench(Bench&&) = delete;
  Bench& operator=(Bench&&) = delete;
  virtual ~Bench() = default;

  // One repetition over the first `size` bytes (a multiple of 4 KiB, at most the memory's), in the
  // unit of the row. What was read is checked, what was written is read back: neither is in the
  // time. Before a read the memory holds random data again, whatever was written before. Errors:
  // kInvalid where the data was not what it had to be; kSystem as the kernel or the driver says.
  virtual Result<double> repeat(Row row, Bytes size) = 0;
};

class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  Engine(Engine&&) = delete;
  Engine& operator=(Engine&&) = delete;
  virtual ~Engine() = default;

  [[nodiscard]] virtual EngineKind kind() const = 0;
  [[nodiscard]] virtual std::string describe() const = 0;  // Report::engine_detail
  // Those of `bandwidth`, in the table's order; kReread first.
  [[nodiscard]] virtual std::vector<Row> rows() const = 0;
  // Fills in what the engine knows: gpu, driver, cuda, cache_bytes.
  virtual void describe(Machine& machine) const = 0;
  // The cache that residency is about: the GPU's L2, the processor's own level 2. 0: not known.
  [[nodiscard]] virtual Bytes cache() const = 0;
  // Fills in what the engine knows of this moment.
  virtual void note(Moment& moment) const = 0;

  // Ordinary memory of this engine's, zeroed or not: what everything is compared with. It is given
  // back when what owns it is destroyed. `like_pages_of`: of pages of that size, if that can be
  // had (0: as it comes).
  struct Ordinary {
    std::shared_ptr<void> owner;
    Place place;
    std::string memory;  // ArmRecord::memory
    std::uint64_t page_bytes = 0;
  };
  virtual Result<Ordinary> ordinary(Bytes size, std::uint64_t like_pages_of) = 0;
  // Whether the host has room for what its driver takes as ordinary memory, where that is the
  // host's own (a GPU that has none): asked before it is.
  [[nodiscard]] virtual Result<void> check_room(Bytes size) const {
    (void)size;
    return {};
  }
  // kInvalid where the engine does not see the memory.
  virtual Result<std::unique_ptr<Bench>> bench(const Place& place) = 0;
};

}  // namespace carveout::probe
