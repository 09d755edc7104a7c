#pragma once

#include <cstdint>

namespace carveout::daemon {

// What has happened on the lending sockets since the start.
struct Counters {
  std::uint64_t accepted = 0;
  std::uint64_t shed = 0;             // closed at accept for want of room or of a descriptor
  std::uint64_t over_user_limit = 0;  // closed at accept because its user had its share
  std::uint64_t idle_closed = 0;      // closed without a lease, to make room
  std::uint64_t timed_out = 0;        // closed because they never sent a good key
  std::uint64_t infos = 0;
  std::uint64_t refused_key = 0;
  std::uint64_t refused_op = 0;
  std::uint64_t refused_size = 0;
  std::uint64_t refused_not_enough = 0;
  std::uint64_t stalled = 0;  // closed because they did not read their reply
};

}  // namespace carveout::daemon
