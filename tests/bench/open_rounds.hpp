#pragma once

// Memory made usable, once around: had, mapped, each page written, given back. Every step is timed
// by itself. Throws where one fails.

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "support/daemon_process.hpp"

namespace carveout::test {

// Until kTouched it becomes usable; after that it is given back.
enum class Stage { kHad, kMapped, kTouched, kUnmapped, kGone };
inline constexpr std::size_t kStages = 5;

// In milliseconds: as the clock has it, and of the processors, the daemon's and ours.
struct Cost {
  double wall = 0, daemon = 0, ours = 0;
};

struct Round {
  std::array<Cost, kStages> stages;
  [[nodiscard]] const Cost& at(Stage stage) const {
    return stages[static_cast<std::size_t>(stage)];
  }
  [[nodiscard]] Cost usable() const;
};

class OpenRounds {
 public:
  // `size` of memory from the daemon, which nobody else borrows from.
  OpenRounds(const DaemonProcess& daemon, std::uint64_t size);

  // The size of the pages that the lent memory was made of at the start, and of those that it is
  // made of now.
  [[nodiscard]] std::size_t page() const { return page_; }
  [[nodiscard]] std::size_t page_now() const;

  // carveout_open() and carveout_close(), as a program calls them: the first is all of kHad, the
  // second all of kUnmapped.
  [[nodiscard]] Round opened() const;
  // What those two do, one after the other: connecting, the request and the answer; the mapping.
  [[nodiscard]] Round in_steps() const;
  // Without a lender: a memfd of the same pages, committed.
  [[nodiscard]] Round memfd() const;

 private:
  // So that each round finds the same: what was lent is free, and the kernel has it.
  void wait_until_free() const;

  const DaemonProcess& daemon_;
  Peer onlooker_;
  std::size_t descriptors_;  // the daemon's, while nothing is lent
  std::uint64_t size_;
  std::size_t page_;
};

}  // namespace carveout::test
