#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "deadline_queue.hpp"
#include "idle_order.hpp"
#include "session.hpp"

namespace carveout::daemon {

struct ConnectionLimits {
  std::size_t total;                    // never more, by option or for want of descriptors
  std::optional<std::size_t> per_user;  // by option
  std::chrono::seconds idle_timeout;    // for those that never sent a good key; 0: none
};

// All connections on the lending sockets: who gets in, and who has to go.
class Sessions {
 public:
  // All must outlive this.
  Sessions(EventLoop& loop, PollSet& poll_set, Lending& lending, const KeyRing& keys,
           Journal& journal, Counters& counters, const ConnectionLimits& limits);
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;
  Sessions(Sessions&&) = delete;
  Sessions& operator=(Sessions&&) = delete;
  ~Sessions() = default;

  // Takes over a new connection, watched under `id`, or closes it.
  void accept(std::uint64_t id, UniqueFd socket, const Peer& peer);

  // The same for a connection of an earlier start, whatever the limits are: `leases` go on.
  void adopt(std::uint64_t id, UniqueFd socket, const Peer& peer,
             const std::vector<LedgerRecord>& leases);
  // Serves what that start had read on it, once all leases are adopted.
  void resume(std::uint64_t id, const LedgerRecord& request);

  // Ends all of them.
  void end_all();

  // Closes the oldest connection that never sent a good key, or else the one that has been silent
  // longest of those without a lease, if that is a second at least.
  bool make_room();

  [[nodiscard]] std::size_t limit() const { return limits_.total; }
  [[nodiscard]] std::size_t size() const { return sessions_.size(); }
  // Those that hold a lease.
  [[nodiscard]] std::size_t borrowers() const;

 private:
  void end(std::uint64_t id);
  void complain(const Peer& peer, const Error& problem);
  void wait_for_strangers();
  void close_strangers();

  EventLoop& loop_;
  Journal& journal_;
  Counters& counters_;
  const ConnectionLimits limits_;
  IdleOrder idle_;
  DeadlineQueue stalls_;
  std::optional<EventLoop::Source> stranger_timer_;  // for the oldest one's deadline
  SessionContext context_;
  std::unordered_map<uid_t, std::size_t> by_user_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Session>> sessions_;
};

}  // namespace carveout::daemon
