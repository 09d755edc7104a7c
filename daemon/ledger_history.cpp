#include "ledger_history.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/text.hpp"

namespace carveout::daemon {
namespace {

using State = LedgerHistory::State;
using Objection = std::optional<std::string>;

std::optional<State> state_after(LedgerEvent event) {
  switch (event) {
    case LedgerEvent::kRequested:
      return State::kRequested;
    case LedgerEvent::kGranted:
      return State::kGranted;
    case LedgerEvent::kAnswered:
    case LedgerEvent::kAdopted:
      return State::kLent;
    default:
      return std::nullopt;
  }
}

bool same_lease(const LedgerRecord& a, const LedgerRecord& b) {
  return a.connection == b.connection && a.uid == b.uid && a.gid == b.gid && a.pid == b.pid &&
         a.asked == b.asked && a.size == b.size;
}

Objection whole_slices(const LedgerRecord& next) {
  if (next.size == Slices::holding(next.asked).bytes() && next.size != Bytes(0)) return {};
  return cat("its ", next.size.count(), " bytes are not the ", next.asked.count(),
             " asked for in whole slices");
}

std::string of_lease(const LedgerRecord& next) {
  return cat(name_of(next.event), " of lease ", next.lease);
}

}  // namespace

bool ends_a_lease(LedgerEvent event) {
  return event == LedgerEvent::kRefused || event == LedgerEvent::kReleased ||
         event == LedgerEvent::kLost;
}

Objection LedgerHistory::objection(const LedgerRecord& next) const {
  if (auto found = order(next)) return found;
  if (next.event == LedgerEvent::kStarted) return against_start(next);
  if (next.carried) return against_carried(next);
  if (!to_carry_.empty()) {
    return cat("lease ", to_carry_.begin()->first, " was not carried over from the file before");
  }
  switch (next.event) {
    case LedgerEvent::kRepaired:
    case LedgerEvent::kStopped:
      return {};
    case LedgerEvent::kRequested:
      return against_request(next);
    case LedgerEvent::kGranted:
      return against_grant(next);
    default:
      return against_change(next);
  }
}

// Nothing is missing, doubled or exchanged, and time goes on.
Objection LedgerHistory::order(const LedgerRecord& next) const {
  if (empty()) {
    if (next.event != LedgerEvent::kStarted) return "the first record is not a start";
    if (next.follows.empty() && next.seq != 1) return "records before it are missing";
    return {};
  }
  if (next.seq != last_.seq + 1) return cat("its number is ", next.seq, " behind ", last_.seq);
  const bool restart = next.event == LedgerEvent::kStarted && next.follows.empty();
  if (restart) {
    if (next.start != last_.start + 1) {
      return cat("its start is the ", next.start, "th behind the ", last_.start, "th");
    }
  } else {
    if (next.start != last_.start || next.boot != last_.boot) return "it is of another start";
    if (last_.event == LedgerEvent::kStopped && next.event != LedgerEvent::kStarted) {
      return "the daemon had stopped";
    }
  }
  if (next.boot == last_.boot && next.mono_us < last_.mono_us) return "its time is before the last";
  return {};
}

Objection LedgerHistory::against_start(const LedgerRecord& next) const {
  if (!to_carry_.empty() || (carrying_ && !next.follows.empty())) {
    return "the head of the file before is not whole";
  }
  if (!next.follows.empty() && !empty() && next.reservation != reservation_) {
    return "the reservation has changed from one file to the next";
  }
  return {};
}

Objection LedgerHistory::against_carried(const LedgerRecord& next) const {
  const auto state = state_after(next.event);
  // An answer does not tell of the borrower.
  if (!carrying_ || !state || next.event == LedgerEvent::kAnswered) {
    return "nothing can be carried over here";
  }
  if (auto found = whole_slices(next)) return found;
  if (next.lease == 0 || next.size > Bytes(std::numeric_limits<std::uint64_t>::max()) - lent_) {
    return "no lease can have been like this";
  }
  if (open_.contains(next.lease)) return cat("lease ", next.lease, " is carried over twice");
  if (first_file_) return {};
  const auto before = to_carry_.find(next.lease);
  if (before == to_carry_.end()) {
    return cat("lease ", next.lease, " was not open in the file before");
  }
  if (before->second.state != *state || !same_lease(before->second.record, next)) {
    return cat("lease ", next.lease, " is not carried over as it was");
  }
  return {};
}

Objection LedgerHistory::against_request(const LedgerRecord& next) const {
  if (auto found = whole_slices(next)) return found;
  const auto known = open_.find(next.lease);
  if (known == open_.end()) {
    if (next.lease > last_lease_) return {};
    return cat("lease ", next.lease, " was used before");
  }
  // Granted, but the reply could not be sent yet.
  const Open& lease = known->second;
  if (lease.state == State::kGranted && !lease.pending && same_lease(lease.record, next)) return {};
  return cat(of_lease(next), ", which is open");
}

Objection LedgerHistory::against_grant(const LedgerRecord& next) const {
  const auto known = open_.find(next.lease);
  if (known == open_.end() || known->second.state != State::kRequested) {
    return cat(of_lease(next), ", for which there is no request");
  }
  if (!same_lease(known->second.record, next)) return cat(of_lease(next), " is not its request's");
  if (lent_ > reservation_ || next.size > reservation_ - lent_) {
    return cat("with it ", (lent_ + next.size).count(), " bytes are lent of ",
               reservation_.count());
  }
  return {};
}

// What else can happen to a lease.
Objection LedgerHistory::against_change(const LedgerRecord& next) const {
  const auto known = open_.find(next.lease);
  if (known == open_.end()) {
    const bool without = next.event == LedgerEvent::kRefused || next.event == LedgerEvent::kLost;
    if (next.lease == 0 && without) return {};  // it never was a lease
    return cat(of_lease(next), ", which is not open");
  }
  const Open& lease = known->second;
  if (lease.record.connection != next.connection) {
    return cat(of_lease(next), " is of connection ", next.connection, ", not ",
               lease.record.connection);
  }
  switch (next.event) {
    case LedgerEvent::kAnswered:
      if (lease.state == State::kGranted && !lease.pending) return {};
      return cat(of_lease(next), ", which was not granted");
    case LedgerEvent::kRefused:
      if (lease.state == State::kRequested || (lease.state == State::kGranted && !lease.pending)) {
        return {};
      }
      return cat(of_lease(next), ", which is lent");
    case LedgerEvent::kReleased:
      if (lease.state == State::kRequested) return cat(of_lease(next), ", which was not granted");
      if (lease.pending) return cat(of_lease(next), ", which was not adopted");
      return {};
    case LedgerEvent::kAdopted:
      if (lease.state == State::kRequested) return cat(of_lease(next), ", which was not granted");
      if (!lease.pending) return cat(of_lease(next), ", which this start granted itself");
      if (!same_lease(lease.record, next)) return cat(of_lease(next), " is not as it was granted");
      return {};
    default:  // kLost
      if (lease.pending) return {};
      return cat(of_lease(next), ", which this start has in hand");
  }
}

void LedgerHistory::take(const LedgerRecord& next) {
  if (next.event == LedgerEvent::kStarted) {
    take_start(next);
  } else if (!next.carried) {
    carrying_ = false;
  }
  last_lease_ = std::max(last_lease_, next.lease);
  last_connection_ = std::max(last_connection_, next.connection);
  if (next.lease != 0 && ends_a_lease(next.event)) end(next.lease);
  if (const auto state = state_after(next.event); state && next.lease != 0) {
    if (next.carried) to_carry_.erase(next.lease);
    const auto known = open_.find(next.lease);
    if (next.event != LedgerEvent::kAnswered) {
      put(next.lease, {.state = *state, .pending = false, .record = next});
    } else if (known != open_.end()) {
      // It does not tell of the borrower once more.
      Open answered = known->second;
      answered.state = *state;
      put(next.lease, std::move(answered));
    }
  }
  last_ = next;
}

void LedgerHistory::take_start(const LedgerRecord& next) {
  reservation_ = next.reservation;
  carrying_ = !next.follows.empty();
  first_file_ = carrying_ && empty();
  if (carrying_) {
    to_carry_ = std::exchange(open_, {});
    lent_ = Bytes(0);
    return;
  }
  to_carry_.clear();
  for (auto& [id, lease] : open_)
    lease.pending = true;
}

void LedgerHistory::put(std::uint64_t lease, Open open) {
  end(lease);
  if (open.state != State::kRequested) lent_ = lent_ + open.record.size;
  open_.insert_or_assign(lease, std::move(open));
}

void LedgerHistory::end(std::uint64_t lease) {
  const auto known = open_.find(lease);
  if (known == open_.end()) return;
  if (known->second.state != State::kRequested) lent_ = lent_ - known->second.record.size;
  open_.erase(known);
}

bool LedgerHistory::any_pending() const {
  return std::any_of(open_.begin(), open_.end(),
                     [](const auto& entry) { return entry.second.pending; });
}

}  // namespace carveout::daemon
