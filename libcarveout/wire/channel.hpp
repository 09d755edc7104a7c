#pragma once

// Datagrams over AF_UNIX sockets, with a descriptor alongside where the protocol has one.

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

struct sockaddr_un;

namespace carveout::wire {

using Clock = std::chrono::steady_clock;

// The address of a socket in the file system. Refuses a path that does not fit (107 bytes).
Result<sockaddr_un> socket_address(const std::string& path);

// --- the daemon's side: never blocks ---

enum class Transfer {
  kDone,
  kLater,      // would block
  kEnd,        // the peer has ended: closed, half-closed, or an empty datagram
  kMalformed,  // cut short, or carrying descriptors; what was carried is already closed
  kTooMany,    // the kernel holds as many descriptors in flight as it allows us (ETOOMANYREFS)
  kBroken,     // the connection is gone
};

// Reads one datagram without a control buffer: a peer's descriptors never enter this process.
// (Closing a stranger's file can block for ever; docs/protocol.md, "Descriptors from clients".)
Transfer receive(int socket, std::span<char> buffer, std::size_t& length);

// Sends one datagram, with `descriptor` as SCM_RIGHTS unless it is negative.
Transfer send(int socket, std::string_view datagram, int descriptor);

// Says to the kernel that descriptors sent to this socket are to be refused at the sender
// (SO_PASSRIGHTS, Linux 6.16 on). False where the kernel does not know it.
bool refuse_descriptors(int socket);

// --- the client's side: blocks until `deadline` at the longest ---

struct Datagram {
  std::string bytes;
  std::vector<UniqueFd> descriptors;  // all that arrived, each close-on-exec
};

// Errors: kSystem with the errno of connect (ENOENT, ECONNREFUSED, EACCES, ...), kTimedOut.
Result<UniqueFd> connect_to(const std::string& path, int type, Clock::time_point deadline);

// Errors: kClosed when the peer is gone, kTimedOut, kSystem.
Result<void> send_by(int socket, std::string_view datagram, Clock::time_point deadline);

// Errors: kClosed, kTimedOut, kSystem, and kProtocol for a datagram that was cut short.
Result<Datagram> receive_by(int socket, std::size_t limit, Clock::time_point deadline);

}  // namespace carveout::wire
