#include "lending.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "base/text.hpp"
#include "failpoint.hpp"

namespace carveout::daemon {
namespace {

// How long a refusal by the kernel is taken to hold when nothing is released meanwhile.
constexpr std::chrono::seconds kCapHolds{1};

Fields fields_of(const Lease& lease) {
  return {.lease = lease.id, .uid = lease.peer.uid, .pid = lease.peer.pid, .bytes = lease.size};
}

std::string describe(const Lease& lease) {
  return cat("lease ", lease.id, ": ", format_bytes(lease.size), " to ",
             lease.identity.command.empty() ? "a process" : lease.identity.command, " (pid ",
             lease.peer.pid, ", uid ", lease.peer.uid, ") on connection ", lease.connection);
}

LedgerRecord record_of(LedgerEvent event, const Lease& lease) {
  LedgerRecord record;
  record.event = event;
  record.connection = lease.connection;
  record.lease = lease.id;
  record.uid = lease.peer.uid;
  record.gid = lease.peer.gid;
  record.pid = static_cast<std::uint32_t>(lease.peer.pid);
  record.asked = lease.asked;
  record.size = lease.size;
  record.inode = lease.inode;
  record.since_unix_us = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(lease.since.time_since_epoch())
          .count());
  record.command = lease.identity.command;
  record.unit = lease.identity.unit;
  record.cgroup = lease.identity.cgroup;
  return record;
}

Lease lease_of(const LedgerRecord& record, const Peer& peer, Charge charge) {
  return {.id = record.lease,
          .connection = record.connection,
          .peer = peer,
          .identity = {.command = record.command, .cgroup = record.cgroup, .unit = record.unit},
          .asked = record.asked,
          .size = record.size,
          .inode = record.inode,
          .since = std::chrono::system_clock::time_point(
              std::chrono::microseconds(record.since_unix_us)),
          .charge = std::move(charge)};
}

}  // namespace

// One request's way through the worker. Until it is done the slices are charged to it, and if it
// is dropped on the way (the daemon ends), it gives them and the memory back.
class Lending::Grant final : public Worker::Task {
 public:
  // `recorded`: the request is in the ledger already, or there is none.
  Grant(Lending& lending, Borrower& borrower, int socket, Lease lease, bool recorded)
      : lending_(lending),
        borrower_(borrower),
        socket_(socket),
        lease_(std::move(lease)),
        recorded_(recorded) {}

  void work() override {
    result_ = prepare();
    warning_ = lending_.source_.take_warning();
    if (!lending_.refill_) return;
    Hold& hold = lending_.refill_->hold();
    if (allocated_ && !result_) {
      hold.give_back(lease_.size);
      hold.fill();
    }
    figures_ = hold.figures();
  }
  void done() override { lending_.finish(*this); }

 private:
  friend class Lending;

  Result<UniqueFd> prepare() {
    if (!recorded_) {
      if (auto kept = keep(); !kept) return kept.error();
    }
    step_ = Step::kMemory;
    Source& source = lending_.source_;
    auto buffer = at_step("allocate", lease_.size, [&] { return source.allocate(lease_.size); });
    if (!buffer) return std::move(buffer).error();
    allocated_ = true;
    if (!source.describe().kernel_zeroes) {
      auto scrubbed = at_step("scrub", lease_.size, [&] { return source.scrub(*buffer); });
      if (!scrubbed) return scrubbed.error();
    }
    auto lent = at_step("share", lease_.size, [&] { return source.share(*buffer); });
    if (!lent) return lent;
    // NVIDIA's files are all the control device's.
    if (source.describe().kind != DescriptorKind::kNvidiaFile) {
      struct stat status {};
      if (::fstat(lent->get(), &status) != 0) return system_error(errno, "lent memory", "fstat");
      lease_.inode = status.st_ino;
    }
    lease_.identity = identify(socket_, lease_.peer.pid);
    return lent;
  }

  // The first request of a connection: from now on the connection survives us, then so does the
  // request.
  Result<void> keep() {
    auto stored = at_step("store", lease_.size, [&] {
      auto told = lending_.supervisor_.store(lease_.connection, socket_);
      stored_ = told.has_value();
      return told;
    });
    if (!stored) return stored;
    step_ = Step::kLedger;
    return lending_.ledger_->request(record_of(LedgerEvent::kRequested, lease_), lease_.id);
  }

  enum class Step { kStore, kLedger, kMemory };

  Lending& lending_;
  Borrower& borrower_;
  int socket_;
  Lease lease_;
  bool recorded_;
  Step step_ = Step::kStore;  // that it has come to
  bool stored_ = false;
  bool allocated_ = false;
  HoldFigures figures_ = {};
  Result<UniqueFd> result_ = UniqueFd();
  std::optional<std::string> warning_;
};

// Closes memory on the worker, then frees its slices on the loop.
class Lending::GiveBack final : public Worker::Task {
 public:
  GiveBack(Lending& lending, UniqueFd memory, Charge charge, bool lifts_cap)
      : lending_(lending),
        memory_(std::move(memory)),
        charge_(std::move(charge)),
        lifts_cap_(lifts_cap) {}
  void work() override { memory_.reset(); }
  void done() override {
    const Bytes size = charge_.slices().bytes();
    if (!lifts_cap_) charge_.cancel();
    charge_.give_back();
    lending_.refill(size);
  }

 private:
  Lending& lending_;
  UniqueFd memory_;
  Charge charge_;
  bool lifts_cap_;
};

// Takes a connection out of the supervisor's store.
class Lending::Forget final : public Worker::Task {
 public:
  Forget(Supervisor& supervisor, std::uint64_t connection)
      : supervisor_(supervisor), connection_(connection) {}
  void work() override { supervisor_.remove(connection_); }
  void done() override {}

 private:
  Supervisor& supervisor_;
  std::uint64_t connection_;
};

Lending::Lending(EventLoop& loop, Worker& worker, Source& source, Reservation& reservation,
                 Journal& journal, Ledger* ledger, Supervisor& supervisor)
    : loop_(loop),
      worker_(worker),
      source_(source),
      reservation_(reservation),
      journal_(journal),
      ledger_(ledger),
      supervisor_(supervisor) {}

Figures Lending::figures_for(uid_t user, std::uint64_t connection) const {
  Figures figures = reservation_.figures_for(user);
  const bool cannot_be_kept =
      must_be_kept(connection) &&
      (!can_be_kept() || std::chrono::steady_clock::now() < store_fails_until_);
  const bool cannot_be_recorded = watching_ledger_ && ledger_->failing();
  if (cannot_be_kept || cannot_be_recorded) figures.largest = Bytes(0);
  return figures;
}

Figures Lending::figures() const {
  Figures figures = reservation_.figures();
  if (watching_ledger_ && ledger_->failing()) figures.largest = Bytes(0);
  return figures;
}

bool Lending::must_be_kept(std::uint64_t connection) const {
  return ledger_ != nullptr && supervisor_.has_store() && !keeps(connection);
}

bool Lending::begin(Borrower& borrower, std::uint64_t connection, int socket, const Peer& peer,
                    Bytes ask) {
  // The connection has to be kept before there is a request on it to record; that waits for the
  // manager, so it is the worker's.
  const bool first = must_be_kept(connection);
  if (first && !can_be_kept()) {
    refused(connection, peer, ask, "the service manager's store is full (--store-max)");
    journal_.log_of_peer(Level::kWarning, Event::kTrouble,
                         cat("not granted: the service manager keeps ", kept_.size(),
                             " connections with leases, as many as it may: raise --store-max, and "
                             "with it FileDescriptorStoreMax= of the unit"),
                         {.uid = peer.uid, .pid = peer.pid, .bytes = ask});
    return false;
  }
  auto charge = reservation_.charge(Slices::holding(ask), peer.uid);
  if (!charge) {
    refused(connection, peer, ask, "not enough is free");
    // A borrower that has just died may have let go of what is missing.
    if (reservation_.missing() != Slices(0)) refill(Bytes(0));
    return false;
  }
  Lease lease{.id = ledger_ == nullptr ? ++last_lease_ : 0,  // the ledger counts its own
              .connection = connection,
              .peer = peer,
              .identity = {},
              .asked = ask,
              .size = Slices::holding(ask).bytes(),
              .inode = 0,
              .since = {},
              .charge = *std::move(charge)};
  if (ledger_ != nullptr && !first) {
    const auto recorded = ledger_->request(record_of(LedgerEvent::kRequested, lease), lease.id);
    if (!recorded) {
      lease.charge.cancel();
      record_refusal(lease, recorded.error());
      cap(Slices(0));
      complain(lease, recorded.error());
      return false;
    }
  }
  if (first) ++keeping_;
  worker_.submit(std::make_unique<Grant>(*this, borrower, socket, std::move(lease), !first));
  return true;
}

void Lending::refused(std::uint64_t connection, const Peer& peer, Bytes ask,
                      std::string_view reason) {
  if (ledger_ == nullptr) return;
  LedgerRecord record;
  record.event = LedgerEvent::kRefused;
  record.connection = connection;
  record.uid = peer.uid;
  record.gid = peer.gid;
  record.pid = static_cast<std::uint32_t>(peer.pid);
  record.asked = ask;
  record.reason = reason;
  // Nothing hangs on it: what cannot be recorded is in the journal and the counters all the same.
  (void)ledger_->append(record);
}

void Lending::finish(Grant& grant) {
  if (grant.warning_) journal_.log(Level::kWarning, Event::kTrouble, *grant.warning_);
  Lease& lease = grant.lease_;
  if (!grant.recorded_) --keeping_;
  if (refill_) refill_->apply(grant.figures_);
  if (grant.stored_) kept_.insert(lease.connection);
  if (!grant.result_) {
    const Error& problem = grant.result_.error();
    const Slices asked = lease.charge.slices();
    lease.charge.cancel();
    // Less may still be had when memory is what lacked; nothing when it was something else; and
    // what only concerns this connection is no reason to promise others less.
    if (grant.step_ == Grant::Step::kMemory && problem.code == Code::kExhausted) {
      cap(asked - Slices(1));
    } else if (grant.step_ != Grant::Step::kStore) {
      cap(Slices(0));
    } else {
      store_fails_until_ = std::chrono::steady_clock::now() + kCapHolds;
    }
    record_refusal(lease, problem);
    complain(lease, problem);
    grant.borrower_.on_failed();
    return;
  }
  lease.since = std::chrono::system_clock::now();
  const std::uint64_t id = lease.id;
  const Lease& kept = leases_.emplace(id, std::move(lease)).first->second;
  grant.borrower_.on_granted(kept, *std::move(grant.result_));
}

Result<void> Lending::record_grant(std::uint64_t lease) {
  const auto found = leases_.find(lease);
  if (ledger_ == nullptr || found == leases_.end()) return {};
  return ledger_->append(record_of(LedgerEvent::kGranted, found->second));
}

void Lending::held_up(std::uint64_t lease) {
  const auto found = leases_.find(lease);
  if (ledger_ == nullptr || found == leases_.end()) return;
  ledger_->append_owed(record_of(LedgerEvent::kRequested, found->second));
}

void Lending::answered(std::uint64_t lease, UniqueFd memory) {
  ++granted_;
  const auto found = leases_.find(lease);
  if (found != leases_.end()) {
    if (ledger_ != nullptr) {
      LedgerRecord record;
      record.event = LedgerEvent::kAnswered;
      record.connection = found->second.connection;
      record.lease = lease;
      record.size = found->second.size;
      ledger_->append_owed(std::move(record));
    }
    journal_.log_of_peer(Level::kInfo, Event::kGranted, cat("granted ", describe(found->second)),
                         fields_of(found->second));
  }
  worker_.dispose(std::move(memory));
}

void Lending::undo(std::uint64_t lease, UniqueFd memory) {
  auto node = leases_.extract(lease);
  if (node.empty()) return;
  if (ledger_ != nullptr && !outlives_us(node.mapped())) {
    ledger_->end(lease, "its connection ended before it could be answered");
  }
  worker_.submit(
      std::make_unique<GiveBack>(*this, std::move(memory), std::move(node.mapped().charge), true));
}

void Lending::undeliverable(std::uint64_t lease, UniqueFd memory, std::string_view reason) {
  auto node = leases_.extract(lease);
  if (node.empty()) return;
  cap(Slices(0));
  if (ledger_ != nullptr) ledger_->refuse(lease, reason);
  journal_.log_of_peer(Level::kWarning, Event::kTrouble, cat("not granted: ", reason),
                       fields_of(node.mapped()));
  worker_.submit(
      std::make_unique<GiveBack>(*this, std::move(memory), std::move(node.mapped().charge), false));
}

void Lending::release(std::uint64_t lease) {
  const auto node = leases_.extract(lease);
  if (node.empty()) return;
  if (outlives_us(node.mapped())) return;
  ++released_;
  if (refill_) {
    reservation_.suspect(node.mapped().charge.slices(),
                         static_cast<UserId>(node.mapped().peer.uid));
    refill(node.mapped().size);
  }
  if (ledger_ != nullptr) ledger_->end(lease, leaving_ ? "the daemon stops" : "");
  journal_.log_of_peer(Level::kInfo, Event::kReleased, cat("released ", describe(node.mapped())),
                       fields_of(node.mapped()));
}

void Lending::connection_ended(std::uint64_t connection) {
  if (leaving_ || kept_.erase(connection) == 0) return;
  watch_ledger();
  forget(connection);
}

void Lending::forget(std::uint64_t connection) {
  worker_.submit(std::make_unique<Forget>(supervisor_, connection));
}

void Lending::adopt(const LedgerRecord& lease, const Peer& peer) {
  Lease adopted = lease_of(
      lease, peer, reservation_.adopt(Slices::holding(lease.size), static_cast<UserId>(peer.uid)));
  if (ledger_ != nullptr) {
    LedgerRecord record = lease;
    record.event = LedgerEvent::kAdopted;
    record.carried = false;
    ledger_->append_owed(std::move(record));
  }
  ++adopted_;
  journal_.log_of_peer(Level::kInfo, Event::kAdopted, cat("adopted ", describe(adopted)),
                       fields_of(adopted));
  leases_.emplace(lease.lease, std::move(adopted));
}

bool Lending::resume(Borrower& borrower, const LedgerRecord& request, int socket,
                     const Peer& peer) {
  auto charge = reservation_.charge(Slices::holding(request.size), peer.uid);
  if (!charge) {
    if (ledger_ != nullptr) {
      ledger_->refuse(request.lease, "not enough is free after the restart");
    }
    return false;
  }
  Lease lease = lease_of(request, peer, *std::move(charge));
  lease.since = {};
  worker_.submit(std::make_unique<Grant>(*this, borrower, socket, std::move(lease), true));
  return true;
}

void Lending::dropped(std::uint64_t connection, std::string_view reason) {
  forget(connection);
  if (ledger_ == nullptr) return;
  LedgerRecord record;
  record.event = LedgerEvent::kLost;
  record.connection = connection;
  record.reason = reason;
  ledger_->append_owed(std::move(record));
}

void Lending::lost(const LedgerRecord& lease, std::string_view reason) {
  ++lost_;
  if (ledger_ != nullptr) ledger_->lose(lease.lease, reason);
  journal_.log_of_peer(
      Level::kWarning, Event::kLost,
      cat("lost lease ", lease.lease, " (", format_bytes(lease.size), ", pid ", lease.pid, ", uid ",
          lease.uid, ") on connection ", lease.connection, ": ", reason),
      {.lease = lease.lease,
       .uid = lease.uid,
       .pid = static_cast<pid_t>(lease.pid),
       .bytes = lease.size});
}

bool Lending::outlives_us(const Lease& lease) const {
  return leaving_ && keeps(lease.connection);
}

void Lending::use_hold(Hold& hold) {
  refill_.emplace(loop_, worker_, reservation_, hold);
  refill_->apply(hold.figures());
}

void Lending::refill(Bytes come_back) {
  if (refill_ && !leaving_) refill_->take(come_back);
}

void Lending::watch_ledger() {
  if (watching_ledger_ || ledger_ == nullptr || !ledger_->failing()) return;
  auto timer = loop_.after(kCapHolds, [this] {
    watching_ledger_ = false;
    if (!ledger_->retry()) watch_ledger();
  });
  if (!timer) return;
  ledger_timer_ = *std::move(timer);
  watching_ledger_ = true;
}

void Lending::record_refusal(const Lease& lease, const Error& problem) {
  if (ledger_ == nullptr) return;
  const std::string reason = problem.describe();
  if (!ledger_->refuse(lease.id, reason)) {
    refused(lease.connection, lease.peer, lease.asked, reason);
  }
}

void Lending::complain(const Lease& lease, const Error& problem) {
  watch_ledger();
  journal_.log_of_peer(Level::kWarning, Event::kTrouble, cat("not granted: ", problem.describe()),
                       {.uid = lease.peer.uid, .pid = lease.peer.pid, .bytes = lease.size});
}

void Lending::cap(Slices most) {
  reservation_.cap_largest(most);
  auto timer = loop_.after(kCapHolds, [this] { reservation_.lift_cap(); });
  if (timer) {
    cap_timer_ = *std::move(timer);
  } else {
    reservation_.lift_cap();
  }
}

}  // namespace carveout::daemon
