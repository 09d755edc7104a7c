#pragma once

// The daemon as a source of memory: a client of the lending protocol that refuses whatever is not
// exactly what was asked for. It raises no signal (no SIGPIPE), logs nothing, and every descriptor
// that it opens or receives is close-on-exec and closed again on every path that fails.

#include <chrono>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "source/source.hpp"
#include "wire/channel.hpp"
#include "wire/codec.hpp"
#include "wire/key.hpp"

namespace carveout::client {

using Deadline = wire::Clock::time_point;

struct LenderSettings {
  std::string socket;  // the lending socket's path, 1 to 107 bytes
  wire::Key key;
};

// What a claim was granted.
struct Loan {
  // Owned. May be closed once it is imported or mapped: the mapping has its own reference.
  UniqueFd memory;
  Bytes size;  // at least the ask, rounded up to whole slices; the memory is not shorter
  Bytes base;  // of the lender's reservation, for people
  DescriptorKind kind = DescriptorKind::kMemfd;
};

// A connection to a lender. Every claim on it lives exactly as long as the connection is open
// anywhere: destroying this is what gives them all back, and is to be done after unmapping them.
//
// Thread rule: one call at a time; gone() and polling watch() at any time.
// Fork: a child has the connection too, and with it the claims do not end before the child closes
// it: by abandon_in_child(), by exec, or by its end. A child must not claim on it: the two would
// read each other's replies.
class Lender {
 public:
  // Blocks until `deadline` at the longest (a lender whose queue is full). Errors: kSystem with the
  // errno of connect(), kTimedOut, kInvalid (a path that fits no address). None shows the path.
  static Result<Lender> connect(const std::string& socket, Deadline deadline);

  // What the lender has, and how much of it is free now. Blocks until `deadline` at the longest.
  // Errors, and the state after one: those of claim().
  Result<wire::Info> info(const wire::Key& key, Deadline deadline);

  // Claims `size` bytes, rounded up to whole slices; what comes back is never less. Blocks until
  // `deadline` at the longest, however the time is spent. Errors:
  //   kRefused   the lender said no; the message has its own words, bounded, escaped and without
  //              the key, also when it closed the connection at once, and what it was asked for
  //   kTimedOut  it was silent until the deadline
  //   kClosed    it closed the connection without an answer, or an earlier claim here had failed
  //   kProtocol  it answered what the protocol does not have, or less than was asked for
  //   kInvalid   the ask is 0 or beyond 2^63 - 1 bytes; the connection is as it was
  //   kSystem    the kernel did
  // After any error but kInvalid the connection takes no further claim. It stays open all the same,
  // for whoever has to unmap earlier claims before they end: destroy it then. (A lender that
  // refuses has closed it on its side, which is the end of those claims.)
  Result<Loan> claim(const wire::Key& key, Bytes size, Deadline deadline);

  // A descriptor that says when the lender is gone: it is the connection. Poll it for POLLRDHUP
  // (POLLHUP and POLLERR come unasked): any of these three, and it stays so, means that the lender
  // has closed the connection or died, and that the claims are over, though what is mapped stays
  // mapped. POLLIN alone means nothing: the protocol has no datagram that comes unasked. A lender
  // that is restarted and keeps its leases shows nothing here. Borrowed: do not read, write or
  // close it. Negative after abandon_in_child() or a move.
  [[nodiscard]] int watch() const { return connection_.get(); }

  // What watch() says now, without waiting; true as well where there is no connection.
  [[nodiscard]] bool gone() const;

  // In a child after fork(): closes the child's copy of the connection, so that the parent alone
  // decides when the claims end. Says nothing to the lender. Only calls close(), so it may be
  // called between fork() and exec() of a process with threads. In the parent it would be the
  // release.
  void abandon_in_child() noexcept { connection_.reset(); }

 private:
  // One request and its reply. It is spent_ until that was found good.
  Result<wire::Datagram> ask(std::string_view request, Deadline deadline);

  explicit Lender(UniqueFd connection) : connection_(std::move(connection)) {}

  UniqueFd connection_;
  bool spent_ = false;  // a claim has failed: a late reply would be taken for another claim's
};

// One claim and its connection. Destroying it closes the memory's descriptor, then the connection,
// which is the release; unmap before. Thread rule and fork: as Lender.
class Lease {
 public:
  Lease(Lender lender, Loan loan) : lender_(std::move(lender)), loan_(std::move(loan)) {}
  Lease(Lease&&) noexcept = default;
  Lease& operator=(Lease&& other) noexcept {
    if (this != &other) {
      loan_.memory.reset();
      lender_ = std::move(other.lender_);
      loan_ = std::move(other.loan_);
    }
    return *this;
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() = default;

  [[nodiscard]] Loan& loan() { return loan_; }
  [[nodiscard]] const Loan& loan() const { return loan_; }

  // As Lender has them; abandon_in_child() closes the memory's descriptor, too. (What the child has
  // mapped stays mapped there until it unmaps it, execs or ends.)
  [[nodiscard]] int watch() const { return lender_.watch(); }
  [[nodiscard]] bool lender_gone() const { return lender_.gone(); }
  void abandon_in_child() noexcept {
    loan_.memory.reset();
    lender_.abandon_in_child();
  }

 private:
  Lender lender_;  // destroyed last
  Loan loan_;
};

// A refusal, by the protocol's own words, of the key, or of a size that the lender never has.
[[nodiscard]] bool is_about_key(const Error& refusal);
[[nodiscard]] bool is_about_size(const Error& refusal);

// Connects and claims, all of it by `deadline`. Errors: those of connect() and claim(); nothing is
// borrowed and nothing open after one.
Result<Lease> borrow(const LenderSettings& settings, Bytes ask, Deadline deadline);

}  // namespace carveout::client
