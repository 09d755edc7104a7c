#pragma once

// Of memory that somebody else may take away: a lender of another make can cut an unsealed memfd
// short while it is read, and memory can be faulty. That is a SIGBUS, which ends a process.

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"

namespace carveout::probe {

// While there is one, a SIGBUS within its memory puts memory of the process's own in its place, all
// of it, so that whoever is there goes on, among zeros. It does not own the memory, and must go
// before it does. A SIGBUS anywhere else does what it always did.
class LossGuard {
 public:
  LossGuard() = default;
  // Nothing is guarded where `at` is null, or once there are kMostGuards.
  LossGuard(void* at, Bytes size);
  LossGuard(LossGuard&& other) noexcept;
  LossGuard& operator=(LossGuard&&) = delete;
  LossGuard(const LossGuard&) = delete;
  LossGuard& operator=(const LossGuard&) = delete;
  ~LossGuard();

  // Whether any of it was lost: all figures since then are of something else.
  [[nodiscard]] bool is_lost() const;

  static constexpr std::size_t kMostGuards = 64;

 private:
  std::size_t slot_ = kMostGuards;
};

}  // namespace carveout::probe
