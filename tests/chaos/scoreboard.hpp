#pragma once

// What the borrowers have seen, in memory that they share with the referee: it outlives each of
// them.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/unique_fd.hpp"

namespace carveout::chaos {

inline constexpr std::size_t kMostBorrowers = 256;

struct Score {
  std::atomic<std::uint64_t> generation;  // how many borrowers this place has had
  // What may happen.
  std::atomic<std::uint64_t> granted, granted_bytes, rechecked_pages;
  std::atomic<std::uint64_t> refused;    // not enough was free
  std::atomic<std::uint64_t> ended;      // the daemon died before it knew of the request
  std::atomic<std::uint64_t> timed_out;  // no reply within the protocol's time limit
  std::atomic<std::uint64_t> kept;       // leases whose memory was kept past closing
  // What must not.
  std::atomic<std::uint64_t> nonzero_bytes, foreign_stamps, ended_while_holding, second_replies,
      wrong_replies;
  std::atomic<std::uint64_t> stranger;  // the borrower of the last foreign stamp, and 1
};

struct Scoreboard {
  std::atomic<bool> stop;
  std::array<Score, kMostBorrowers> scores;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// All zero, in a descriptor that children inherit.
UniqueFd make_scoreboard();
// Throws if that fails; stays mapped.
Scoreboard& map_scoreboard(int descriptor);

}  // namespace carveout::chaos
