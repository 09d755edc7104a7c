#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.hpp"

namespace carveout::daemon {

// Who connected, as the kernel recorded it at connect().
struct Peer {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;  // 0 when the peer is in a PID namespace that we do not see
};

// What /proc says of a peer. Empty strings where it says nothing.
struct Identity {
  std::string command;  // the kernel's 15 bytes of it
  std::string cgroup;
  std::string unit;  // the systemd unit of that cgroup
};

Result<Peer> peer_of(int socket);

// Reads /proc for the peer of `socket`. If the process has ended meanwhile, its PID may by now be
// another's, and nothing is said of it (known from Linux 6.5 on, by SO_PEERPIDFD).
Identity identify(int socket, pid_t pid);

}  // namespace carveout::daemon
