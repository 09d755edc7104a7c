#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "base/unique_fd.hpp"
#include "event_loop.hpp"
#include "hold.hpp"
#include "journal.hpp"
#include "ledger.hpp"
#include "peer.hpp"
#include "refill.hpp"
#include "reservation.hpp"
#include "source/source.hpp"
#include "supervisor.hpp"
#include "worker.hpp"

namespace carveout::daemon {

// Memory that is lent to a connection, for as long as the connection lives.
struct Lease {
  std::uint64_t id = 0;
  std::uint64_t connection = 0;
  Peer peer;
  Identity identity;
  Bytes asked;
  Bytes size;
  ino_t inode = 0;
  std::chrono::system_clock::time_point since;
  Charge charge;
};

// Joins the accounts, the worker and the source: from a request's charge to the lease's end.
// Everything here runs on the loop, and nothing here waits.
class Lending {
 public:
  // Who asked. Must live, with its socket open, until one of the two is called.
  class Borrower {
   public:
    Borrower() = default;
    Borrower(const Borrower&) = delete;
    Borrower& operator=(const Borrower&) = delete;
    Borrower(Borrower&&) = delete;
    Borrower& operator=(Borrower&&) = delete;
    virtual ~Borrower() = default;
    // `memory` is all zero and of exactly the size asked for. The lease stands already; it ends by
    // release() or undo().
    virtual void on_granted(const Lease& lease, UniqueFd memory) = 0;
    // Nothing is charged and nothing is allocated any more.
    virtual void on_failed() = 0;
  };

  // All must outlive this. Without a ledger nothing is recorded, nor kept by the supervisor.
  Lending(EventLoop& loop, Worker& worker, Source& source, Reservation& reservation,
          Journal& journal, Ledger* ledger, Supervisor& supervisor);
  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;
  Lending(Lending&&) = delete;
  Lending& operator=(Lending&&) = delete;
  ~Lending() = default;

  // What an operator is told.
  [[nodiscard]] Figures figures() const;
  // What this connection of this user is told.
  [[nodiscard]] Figures figures_for(uid_t user, std::uint64_t connection) const;

  // False when the accounts or the ledger do not allow it: nothing is charged then. Otherwise
  // `borrower` hears.
  bool begin(Borrower& borrower, std::uint64_t connection, int socket, const Peer& peer, Bytes ask);
  // A request that was not worth begin().
  void refused(std::uint64_t connection, const Peer& peer, Bytes ask, std::string_view reason);

  // To be called before the reply is sent, each time that it is tried. After an error it must not
  // be.
  Result<void> record_grant(std::uint64_t lease);
  // The kernel takes the reply later: until then, nothing is lent.
  void held_up(std::uint64_t lease);

  // The borrower has the memory: our own descriptor is closed, the lease goes on.
  void answered(std::uint64_t lease, UniqueFd memory);

  // The borrower cannot be given the memory. The slices are free again once it is back with the
  // kernel.
  void undo(std::uint64_t lease, UniqueFd memory);

  // The memory cannot be handed over: undone, and nothing is promised for as long as a refusal by
  // the kernel holds.
  void undeliverable(std::uint64_t lease, UniqueFd memory, std::string_view reason);

  // The connection is closed: the slices are free now. (What the borrower itself still holds keeps
  // its pages; a later grant is a new allocation.)
  void release(std::uint64_t lease);

  // Whether the service manager has a copy of the connection, so that closing ours does not end it.
  [[nodiscard]] bool keeps(std::uint64_t connection) const { return kept_.contains(connection); }
  // Its leases are released, and the manager lets go of it.
  void connection_ended(std::uint64_t connection);

  // --- after a restart ---

  // A connection that the manager has kept, a lease on it that goes on, and a request on it that an
  // earlier start had read (false as begin()).
  void keep(std::uint64_t connection) { kept_.insert(connection); }
  void adopt(const LedgerRecord& lease, const Peer& peer);
  bool resume(Borrower& borrower, const LedgerRecord& request, int socket, const Peer& peer);
  // What cannot go on: a lease, and a kept connection without any.
  void dropped(std::uint64_t connection, std::string_view reason);
  void lost(const LedgerRecord& lease, std::string_view reason);

  // Tries again every second while the ledger cannot be written.
  void watch_ledger();

  // The daemon ends: leases on kept connections outlive it, whatever is called from now on.
  void leave() { leaving_ = true; }
  [[nodiscard]] bool leaving() const { return leaving_; }

  // The source is `hold`: what has come back is told to it, and what it lacks is tried again every
  // second.
  void use_hold(Hold& hold);
  // Tells it that so much of what it counts as lent is not.
  void refill(Bytes come_back);

  [[nodiscard]] const std::map<std::uint64_t, Lease>& leases() const { return leases_; }
  [[nodiscard]] std::uint64_t granted() const { return granted_; }
  [[nodiscard]] std::uint64_t released() const { return released_; }
  [[nodiscard]] std::uint64_t adopted() const { return adopted_; }
  [[nodiscard]] std::uint64_t lost() const { return lost_; }

 private:
  class Grant;
  class GiveBack;
  class Forget;
  void finish(Grant& grant);
  void cap(Slices most);
  void record_refusal(const Lease& lease, const Error& problem);
  void forget(std::uint64_t connection);
  void complain(const Lease& lease, const Error& problem);
  [[nodiscard]] bool outlives_us(const Lease& lease) const;
  // Whether the supervisor has to keep it before it can have a lease, and whether it has room.
  // (What it is still to let go of goes before, on the worker.)
  [[nodiscard]] bool must_be_kept(std::uint64_t connection) const;
  [[nodiscard]] bool can_be_kept() const { return kept_.size() + keeping_ < supervisor_.most(); }

  EventLoop& loop_;
  Worker& worker_;
  Source& source_;
  Reservation& reservation_;
  Journal& journal_;
  Ledger* ledger_;
  Supervisor& supervisor_;
  std::unordered_set<std::uint64_t> kept_;  // connections in the supervisor's store
  std::size_t keeping_ = 0;                 // ... and on their way into it
  bool leaving_ = false;
  std::map<std::uint64_t, Lease> leases_;
  std::uint64_t last_lease_ = 0;  // without a ledger
  std::uint64_t granted_ = 0;
  std::uint64_t released_ = 0;
  std::uint64_t adopted_ = 0;
  std::uint64_t lost_ = 0;
  std::optional<Refill> refill_;  // of a hold
  EventLoop::Source cap_timer_;
  EventLoop::Source ledger_timer_;
  bool watching_ledger_ = false;
  std::chrono::steady_clock::time_point store_fails_until_{};
};

}  // namespace carveout::daemon
