#include "lending.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "base/text.hpp"

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

}  // namespace

// One request's way through the worker. Until it is done the slices are charged to it, and if it
// is dropped on the way (the daemon ends), it gives them and the memory back.
class Lending::Grant final : public Worker::Task {
 public:
  Grant(Lending& lending, Borrower& borrower, int socket, Lease lease)
      : lending_(lending), borrower_(borrower), socket_(socket), lease_(std::move(lease)) {}

  void work() override {
    result_ = prepare();
    warning_ = lending_.source_.take_warning();
  }
  void done() override { lending_.finish(*this); }

 private:
  friend class Lending;

  Result<UniqueFd> prepare() {
    auto buffer = lending_.source_.allocate(lease_.size);
    if (!buffer) return std::move(buffer).error();
    if (!lending_.source_.describe().kernel_zeroes) {
      if (auto scrubbed = lending_.source_.scrub(*buffer); !scrubbed) return scrubbed.error();
    }
    auto lent = lending_.source_.share(*buffer);
    if (!lent) return lent;
    struct stat status {};
    if (::fstat(lent->get(), &status) != 0) return system_error(errno, "lent memory", "fstat");
    lease_.inode = status.st_ino;
    lease_.identity = identify(socket_, lease_.peer.pid);
    return lent;
  }

  Lending& lending_;
  Borrower& borrower_;
  int socket_;
  Lease lease_;
  Result<UniqueFd> result_ = UniqueFd();
  std::optional<std::string> warning_;
};

// Closes memory on the worker, then frees its slices on the loop.
class Lending::GiveBack final : public Worker::Task {
 public:
  GiveBack(UniqueFd memory, Charge charge, bool lifts_cap)
      : memory_(std::move(memory)), charge_(std::move(charge)), lifts_cap_(lifts_cap) {}
  void work() override { memory_.reset(); }
  void done() override {
    if (!lifts_cap_) charge_.cancel();
    charge_.give_back();
  }

 private:
  UniqueFd memory_;
  Charge charge_;
  bool lifts_cap_;
};

bool Lending::begin(Borrower& borrower, std::uint64_t connection, int socket, const Peer& peer,
                    Slices ask) {
  auto charge = reservation_.charge(ask, peer.uid);
  if (!charge) return false;
  Lease lease{.id = ++last_lease_,
              .connection = connection,
              .peer = peer,
              .identity = {},
              .size = ask.bytes(),
              .inode = 0,
              .since = {},
              .charge = *std::move(charge)};
  worker_.submit(std::make_unique<Grant>(*this, borrower, socket, std::move(lease)));
  return true;
}

void Lending::finish(Grant& grant) {
  if (grant.warning_) journal_.log(Level::kWarning, Event::kTrouble, *grant.warning_);
  Lease& lease = grant.lease_;
  if (!grant.result_) {
    const Error& problem = grant.result_.error();
    const Slices asked = lease.charge.slices();
    lease.charge.cancel();
    // Less may still be had when memory is what lacked; nothing when it was something else.
    cap(problem.code == Code::kExhausted ? asked - Slices(1) : Slices(0));
    journal_.log_of_peer(Level::kWarning, Event::kTrouble, cat("not granted: ", problem.describe()),
                         {.uid = lease.peer.uid, .pid = lease.peer.pid, .bytes = lease.size});
    grant.borrower_.on_failed();
    return;
  }
  lease.since = std::chrono::system_clock::now();
  const std::uint64_t id = lease.id;
  const Lease& kept = leases_.emplace(id, std::move(lease)).first->second;
  grant.borrower_.on_granted(kept, *std::move(grant.result_));
}

void Lending::answered(std::uint64_t lease, UniqueFd memory) {
  ++granted_;
  worker_.dispose(std::move(memory));
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return;
  journal_.log_of_peer(Level::kInfo, Event::kGranted, cat("granted ", describe(found->second)),
                       fields_of(found->second));
}

void Lending::undo(std::uint64_t lease, UniqueFd memory) {
  auto node = leases_.extract(lease);
  if (node.empty()) return;
  worker_.submit(
      std::make_unique<GiveBack>(std::move(memory), std::move(node.mapped().charge), true));
}

void Lending::undeliverable(std::uint64_t lease, UniqueFd memory, std::string_view reason) {
  auto node = leases_.extract(lease);
  if (node.empty()) return;
  cap(Slices(0));
  journal_.log_of_peer(Level::kWarning, Event::kTrouble, cat("not granted: ", reason),
                       fields_of(node.mapped()));
  worker_.submit(
      std::make_unique<GiveBack>(std::move(memory), std::move(node.mapped().charge), false));
}

void Lending::release(std::uint64_t lease) {
  const auto node = leases_.extract(lease);
  if (node.empty()) return;
  ++released_;
  journal_.log_of_peer(Level::kInfo, Event::kReleased, cat("released ", describe(node.mapped())),
                       fields_of(node.mapped()));
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
