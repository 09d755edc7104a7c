#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string_view>

#include "base/unique_fd.hpp"
#include "event_loop.hpp"
#include "journal.hpp"
#include "peer.hpp"
#include "reservation.hpp"
#include "source/source.hpp"
#include "worker.hpp"

namespace carveout::daemon {

// Memory that is lent to a connection, for as long as the connection lives.
struct Lease {
  std::uint64_t id = 0;
  std::uint64_t connection = 0;
  Peer peer;
  Identity identity;
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

  // All must outlive this.
  Lending(EventLoop& loop, Worker& worker, Source& source, Reservation& reservation,
          Journal& journal)
      : loop_(loop),
        worker_(worker),
        source_(source),
        reservation_(reservation),
        journal_(journal) {}
  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;
  Lending(Lending&&) = delete;
  Lending& operator=(Lending&&) = delete;
  ~Lending() = default;

  [[nodiscard]] Figures figures_for(uid_t user) const { return reservation_.figures_for(user); }

  // False when the accounts do not allow it: nothing has happened then. Otherwise `borrower` hears.
  bool begin(Borrower& borrower, std::uint64_t connection, int socket, const Peer& peer,
             Slices ask);

  // The borrower has the memory: our own descriptor is closed, the lease goes on.
  void answered(std::uint64_t lease, UniqueFd memory);

  // The borrower cannot be given the memory. The slices are free again once it is back with the
  // kernel.
  void undo(std::uint64_t lease, UniqueFd memory);

  // The kernel would not carry the memory: undone, and nothing is promised for as long as the
  // kernel's refusals hold.
  void undeliverable(std::uint64_t lease, UniqueFd memory, std::string_view reason);

  // The connection is closed: the slices are free now. (What the borrower itself still holds keeps
  // its pages; a later grant is a new allocation.)
  void release(std::uint64_t lease);

  [[nodiscard]] const std::map<std::uint64_t, Lease>& leases() const { return leases_; }
  [[nodiscard]] std::uint64_t granted() const { return granted_; }
  [[nodiscard]] std::uint64_t released() const { return released_; }

 private:
  class Grant;
  class GiveBack;
  void finish(Grant& grant);
  void cap(Slices most);

  EventLoop& loop_;
  Worker& worker_;
  Source& source_;
  Reservation& reservation_;
  Journal& journal_;
  std::map<std::uint64_t, Lease> leases_;
  std::uint64_t last_lease_ = 0;
  std::uint64_t granted_ = 0;
  std::uint64_t released_ = 0;
  EventLoop::Source cap_timer_;
};

}  // namespace carveout::daemon
