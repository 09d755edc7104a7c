#pragma once

// Memory as a contiguous allocator has it (CMA, a firmware's carve-out): so many slices in a row,
// and an allocation needs as many side by side. It is free again when its last descriptor is
// closed, whoever has it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "source/source.hpp"

namespace carveout::test {

// Touched on the worker while it has a task, and on the test's thread before and after. Outlives
// its sources; several can be had one after another, as by daemons that restart.
class ContiguousPool {
 public:
  struct Ask {
    std::uint64_t slices = 0;
    bool given = false;
    friend bool operator==(const Ask&, const Ask&) = default;
    friend void PrintTo(const Ask& ask, std::ostream* out) {
      *out << ask.slices << (ask.given ? " given" : " refused");
    }
  };

  explicit ContiguousPool(std::uint64_t slices) : slices_(slices, Use::kFree) {}

  [[nodiscard]] std::unique_ptr<Source> source();

  // A stranger takes slices that are free, and gives back what it took.
  void take(std::uint64_t first, std::uint64_t count);
  void leave(std::uint64_t first, std::uint64_t count);

  [[nodiscard]] bool is_free(std::uint64_t slice);
  [[nodiscard]] std::uint64_t free();
  [[nodiscard]] std::uint64_t longest_free();
  [[nodiscard]] std::uint64_t lent();   // by the sources, for as long as a descriptor is open
  [[nodiscard]] std::uint64_t taken();  // by strangers
  // Where the memory lies of which `descriptor` is one.
  [[nodiscard]] std::optional<std::uint64_t> place_of(int descriptor) const;
  // The asks since the last call.
  [[nodiscard]] std::vector<Ask> take_asks();

  std::uint64_t calls = 0;   // of allocate()
  std::uint64_t zeroed = 0;  // slices, by a kernel that zeroes each allocation
  std::uint64_t peak = 0;    // the most that was lent at once
  std::optional<Error> allocate_error, share_error;
  std::optional<std::string> warning;
  std::function<void()> on_allocate;  // before each

 private:
  friend class ContiguousSource;

  enum class Use : std::uint8_t { kFree, kOurs, kStrangers };
  struct Extent {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    UniqueFd watch;  // of a pipe whose other end is the memory's descriptors
  };

  Result<Buffer> allocate(Bytes size);
  void take_back();
  void change(std::uint64_t first, std::uint64_t count, Use from, Use to);
  [[nodiscard]] std::uint64_t count_of(Use use);
  [[nodiscard]] std::optional<std::uint64_t> first_fit(std::uint64_t count) const;

  std::vector<Use> slices_;
  std::vector<Extent> extents_;
  std::vector<Ask> asks_;
};

}  // namespace carveout::test
