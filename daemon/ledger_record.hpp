#pragma once

// One line of the ledger and back (docs/ledger.md). Pure: no I/O, no clock.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace carveout::daemon {

enum class LedgerEvent {
  kStarted,    // of the daemon, or of a new file (`follows` names the one before)
  kRequested,  // a readable `alloc` with a good key; nothing is lent
  kGranted,    // the memory is there, the reply is about to be sent
  kAnswered,   // the kernel took the reply, and with it the memory
  kRefused,    // the request has ended without a lease
  kReleased,   // the lease has ended with its connection
  kAdopted,    // the lease of an earlier start goes on
  kLost,       // what an earlier start left cannot go on
  kRepaired,   // the file's torn end was cut off
  kStopped,    // the daemon ends as it was told to
};

struct LedgerRecord {
  std::uint64_t seq = 0;      // 1 more than the record before, over all files
  std::string boot;           // the kernel's boot id
  std::uint64_t start = 0;    // how often the daemon has started on this ledger
  std::uint64_t unix_us = 0;  // wall clock
  std::uint64_t mono_us = 0;  // CLOCK_MONOTONIC: comparable within a boot
  LedgerEvent event = LedgerEvent::kStarted;

  // kStarted
  Bytes reservation = {};
  std::string follows = {};  // the file that this one goes on from; empty at the daemon's start

  // What restates, at the head of a file, how things stood at the end of the one before.
  bool carried = false;

  // A request or lease. Lease ids and connection ids start from 1 and are never used again; of
  // kStarted: the highest that were used before.
  std::uint64_t connection = 0;
  std::uint64_t lease = 0;  // 0: refused before it was worth one
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t pid = 0;
  Bytes asked = {};
  Bytes size = {};  // of the grant: whole slices
  std::uint64_t inode = 0;
  std::uint64_t since_unix_us = 0;  // when it was first granted
  std::string command = {};
  std::string unit = {};
  std::string cgroup = {};

  std::string reason = {};  // kRefused, kReleased, kLost, kRepaired, kStopped: for people
};

// No line is longer, its end included.
inline constexpr std::size_t kMaxLedgerLine = 8192;

[[nodiscard]] std::string_view name_of(LedgerEvent event);

// One line of JSON with its CRC-32C as the last member, and '\n'.
[[nodiscard]] std::string encode(const LedgerRecord& record);

// `line` without its '\n'. The error says what is wrong with it.
Result<LedgerRecord> decode(std::string_view line);

}  // namespace carveout::daemon
