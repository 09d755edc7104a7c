#pragma once

// What the ledger's records add up to. Pure: no I/O, no clock.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "ledger_record.hpp"

namespace carveout::daemon {

// Of a request, or of a lease.
[[nodiscard]] bool ends_a_lease(LedgerEvent event);

// The audit takes each record that has no objection and stops at the first that has; the daemon, at
// its start, takes them all and makes the best of it.
class LedgerHistory {
 public:
  enum class State {
    kRequested,  // nothing is lent
    kGranted,    // perhaps the borrower has it
    kLent,       // the borrower has it
  };
  // A request or lease that has not ended.
  struct Open {
    State state = State::kRequested;
    bool pending = false;  // from an earlier start, and not yet adopted
    LedgerRecord record;   // the last that told of the borrower
  };
  using Leases = std::map<std::uint64_t, Open>;  // by lease id

  // What speaks against `next` as the next record. Nothing changes.
  [[nodiscard]] std::optional<std::string> objection(const LedgerRecord& next) const;
  void take(const LedgerRecord& next);

  [[nodiscard]] const Leases& open() const { return open_; }
  [[nodiscard]] bool any_pending() const;
  [[nodiscard]] bool empty() const { return last_.seq == 0; }
  // There is nothing behind the head of the file yet.
  [[nodiscard]] bool at_head() const { return carrying_; }
  // The last record taken: its seq, epoch and times are where the next goes on from.
  [[nodiscard]] const LedgerRecord& last() const { return last_; }
  [[nodiscard]] Bytes reservation() const { return reservation_; }
  [[nodiscard]] std::uint64_t last_lease() const { return last_lease_; }
  [[nodiscard]] std::uint64_t last_connection() const { return last_connection_; }

 private:
  using Objection = std::optional<std::string>;
  [[nodiscard]] Objection order(const LedgerRecord& next) const;
  [[nodiscard]] Objection against_start(const LedgerRecord& next) const;
  [[nodiscard]] Objection against_carried(const LedgerRecord& next) const;
  [[nodiscard]] Objection against_request(const LedgerRecord& next) const;
  [[nodiscard]] Objection against_grant(const LedgerRecord& next) const;
  [[nodiscard]] Objection against_change(const LedgerRecord& next) const;
  void take_start(const LedgerRecord& next);
  void put(std::uint64_t lease, Open open);
  void end(std::uint64_t lease);

  Leases open_;
  Bytes lent_;               // the sizes of those that are granted or lent
  Leases to_carry_;          // of the file before, not yet restated
  bool carrying_ = false;    // at the head of a file
  bool first_file_ = false;  // ... and the file before is not known
  LedgerRecord last_;
  Bytes reservation_;
  std::uint64_t last_lease_ = 0;
  std::uint64_t last_connection_ = 0;
};

}  // namespace carveout::daemon
