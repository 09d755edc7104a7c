#include "daemon.hpp"

#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <utility>

#include "adoption.hpp"
#include "base/text.hpp"
#include "report.hpp"
#include "source/available_memory.hpp"
#include "startup.hpp"
#include "version.hpp"

namespace carveout::daemon {
namespace {

// What goes on to be lent.
Bytes lent_by(const Adoption& plan) {
  Bytes lent;
  for (const auto& connection : plan.connections) {
    for (const LedgerRecord& lease : connection.leases)
      lent = lent + lease.size;
  }
  return lent;
}

// What does not, though somebody may have it still.
Bytes lost_by(const Adoption& plan) {
  Bytes lost;
  for (const LedgerRecord& lease : plan.lost)
    lost = lost + lease.size;
  return lost;
}

std::optional<Slices> whole_slices(std::optional<Bytes> size) {
  if (!size) return std::nullopt;
  return Slices(size->count() / kSliceBytes.count());
}

// Whether it is what the store can have been given by us.
bool is_lending_connection(int descriptor) {
  return sd_is_socket(descriptor, AF_UNIX, SOCK_SEQPACKET, 0) > 0;
}

std::vector<std::string> names_of(const std::vector<HandedOver::Kept>& kept) {
  std::vector<std::string> names;
  names.reserve(kept.size());
  for (const auto& [name, descriptor] : kept)
    names.push_back(is_lending_connection(descriptor.get()) ? name : std::string());
  return names;
}

Adoption plan_for(const Ledger* ledger, const std::vector<HandedOver::Kept>& kept) {
  return plan_adoption(ledger != nullptr ? ledger->history() : LedgerHistory(), names_of(kept),
                       ledger != nullptr && ledger->same_boot());
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::create(const Options& options) {
  auto handed_over = take_handed_over();
  if (!handed_over) return handed_over.error();
  if (auto fit = check_settings(options); !fit) return fit.error();
  auto key = wire::read_key_file(options.key_file, wire::KeyAudience::kLender);
  if (!key) return key.error();
  auto lock = lock_instance(options.control);
  if (!lock) return lock.error();
  auto source = make_source(options);
  if (!source) return source.error();
  std::unique_ptr<Ledger> ledger;
  if (!options.ledger.empty()) {
    auto read = Ledger::read(options.ledger);
    if (!read) return read.error();
    ledger = *std::move(read);
  }
  const Adoption plan = plan_for(ledger.get(), handed_over->kept);
  Options settled = options;
  Hold* hold = nullptr;
  if (holds(options)) {
    const Bytes lent = lent_by(plan);
    const Bytes lost = ledger && ledger->same_boot() ? lost_by(plan) : Bytes(0);
    // What less there was is known: leases that go on do so in the same reservation.
    if (options.allow_partial && lent + lost != Bytes(0)) {
      settled.size = std::min(options.size, ledger->history().reservation());
    }
    auto holding = std::make_unique<Hold>(*std::move(source), settled.size, pieces_held());
    hold = holding.get();
    source = std::unique_ptr<Source>(std::move(holding));
    const auto claimed = claim_reservation(*hold, lent, lost, settled);
    if (!claimed) return claimed.error();
    settled.size = *claimed;
  } else if (handed_over->kept.empty()) {
    // With leases to go on with, a host that has no memory to spare is no reason not to.
    if (auto tried = try_source(**source); !tried) return tried.error();
  }
  if (ledger) {
    if (auto begun = ledger->begin(settled.size); !begun) return begun.error();
  }
  auto loop = EventLoop::create();
  if (!loop) return loop.error();
  auto poll_set = PollSet::create();
  if (!poll_set) return poll_set.error();
  auto worker = Worker::start();
  if (!worker) return worker.error();
  std::unique_ptr<Daemon> daemon(new Daemon(settled,
                                            {.lock = *std::move(lock),
                                             .source = *std::move(source),
                                             .ledger = std::move(ledger),
                                             .loop = *std::move(loop),
                                             .poll_set = *std::move(poll_set),
                                             .worker = *std::move(worker),
                                             .asked = options.size},
                                            *key));
  if (auto opened = daemon->open(*std::move(handed_over), plan, hold); !opened)
    return opened.error();
  return daemon;
}

Daemon::Daemon(const Options& options, Parts parts, const wire::Key& key)
    : options_(options),
      asked_(parts.asked),
      loop_(std::move(parts.loop)),
      poll_set_(std::move(parts.poll_set)),
      keys_(key),
      lock_(std::move(parts.lock)),
      ledger_(std::move(parts.ledger)),
      supervisor_(ledger_ ? options.store_max : 0),
      source_(std::move(parts.source)),
      reservation_(options.base, Slices::holding(options.size),
                   whole_slices(options.max_bytes_per_uid)),
      worker_(std::move(parts.worker)),
      lending_(*loop_, *worker_, *source_, reservation_, journal_, ledger_.get(), supervisor_),
      sessions_(*loop_, poll_set_, lending_, keys_, journal_, counters_, limits_of(options)),
      control_(*loop_, poll_set_, [this](std::string_view op) { return answer(op); }),
      listener_context_{.loop = *loop_,
                        .poll_set = poll_set_,
                        .counters = counters_,
                        .reserve = open_reserve(),
                        .make_room = [this] { return sessions_.make_room(); }} {}

Daemon::~Daemon() {
  // First the worker: a grant in its hands refers to its session.
  worker_->stop();
  lending_.leave();
  sessions_.end_all();
  if (!ledger_) return;
  // What the manager keeps goes on; everything else has ended now.
  if (!supervisor_.has_store()) ledger_->end_all("the daemon stopped");
  LedgerRecord stopped;
  stopped.event = LedgerEvent::kStopped;
  ledger_->append_owed(std::move(stopped));
}

Result<void> Daemon::open(HandedOver handed_over, const Adoption& plan, Hold* hold) {
  // Before the worker has anything: the source is its own from then on.
  if (auto warning = source_->take_warning()) {
    journal_.log(Level::kWarning, Event::kTrouble, *warning);
  }
  if (hold != nullptr) {
    // Whoever had them may have the memory still.
    if (ledger_ && ledger_->same_boot()) {
      for (const LedgerRecord& lease : plan.lost)
        reservation_.suspect(Slices::holding(lease.size), lease.uid);
    }
    lending_.use_hold(*hold);
  }
  adopt(std::move(handed_over.kept), plan);
  if (auto opened = open_listeners(std::move(handed_over.listeners)); !opened) return opened;
  if (auto watched = watch_loop_sources(); !watched) return watched;
  lending_.watch_ledger();
  give_notice();
  return {};
}

// What an operator should know, though it lends all the same.
void Daemon::give_notice() {
  if (ledger_) {
    for (const std::string& note : ledger_->notes())
      journal_.log(Level::kWarning, Event::kTrouble, note);
  }
  if (!listeners_.front()->refuses_descriptors()) {
    journal_.log(Level::kNotice, Event::kTrouble,
                 "this kernel (before 6.16) cannot keep peers from sending us descriptors: they "
                 "are dropped unread, which a peer can make slow");
  }
  if (!listeners_.front()->in_group() && ::geteuid() == 0) {
    journal_.log(Level::kNotice, Event::kTrouble,
                 "this host has no group \"carveout\": only root can borrow. groupadd --system "
                 "carveout and restart, and its members can");
  }
  const auto available = read_mem_available();
  if (available && options_.size > *available && !holds(options_) &&
      source_->describe().ordinary_memory) {
    journal_.log(Level::kWarning, Event::kTrouble,
                 cat("--size is ", format_bytes(options_.size), ", but the host has only ",
                     available->count() >> 20, " MiB available: what is beyond will be refused"));
  }
  if (sessions_.limit() < Slices::holding(options_.size).count()) {
    journal_.log(Level::kNotice, Event::kTrouble,
                 cat("no more than ", sessions_.limit(),
                     " connections at once, by --max-connections or for want of descriptors "
                     "(ulimit -Hn): not every slice can be lent on a connection of its own"));
  }
}

// Everything that an earlier start has left goes on, or is recorded as lost.
void Daemon::adopt(std::vector<HandedOver::Kept> kept, const Adoption& plan) {
  const std::vector<std::string> names = names_of(kept);
  last_id_ = plan.last_connection;
  const auto others = static_cast<std::size_t>(
      std::count_if(plan.dropped.begin(), plan.dropped.end(),
                    [](const auto& dropped) { return !dropped.connection; }));
  supervisor_.count_kept(kept.size() - others, others);
  for (const auto& dropped : plan.dropped) {
    const std::string reason = ledger_ ? dropped.reason : "without a ledger nothing goes on";
    journal_.log(
        Level::kWarning, Event::kLost,
        cat("closing what the service manager kept as \"", printable(kept[dropped.place].name, 64),
            "\": ",
            names[dropped.place].empty() ? "it is no connection of a lending socket" : reason));
    if (!dropped.connection) continue;
    ::shutdown(kept[dropped.place].descriptor.get(), SHUT_RDWR);
    lending_.dropped(*dropped.connection, reason);
  }
  for (const LedgerRecord& lease : plan.lost)
    lending_.lost(lease, supervisor_.has_store()
                             ? "the service manager has not kept its connection: it was full "
                               "(FileDescriptorStoreMax= below --store-max), or was stopped"
                             : "its connection ended with the daemon");
  for (const auto& connection : plan.connections) {
    UniqueFd& socket = kept[connection.place].descriptor;
    const LedgerRecord& known =
        connection.leases.empty() ? *connection.request : connection.leases.front();
    const auto peer = peer_of(socket.get());
    if (!peer || peer->uid != known.uid) {
      // Of another ledger than what was kept.
      for (const LedgerRecord& lease : connection.leases) {
        lending_.lost(lease, "what was kept as its connection is another user's");
        lending_.refill(lease.size);
      }
      if (connection.request) {
        lending_.lost(*connection.request, "what was kept as its connection is another user's");
      }
      lending_.dropped(connection.id, "it is another user's than the ledger says");
      continue;
    }
    lending_.keep(connection.id);
    sessions_.adopt(connection.id, std::move(socket), *peer, connection.leases);
  }
  // Only now is known what is free.
  std::map<std::uint64_t, std::pair<std::uint64_t, const LedgerRecord*>> requests;  // by lease
  for (const auto& connection : plan.connections) {
    if (connection.request) {
      requests[connection.request->lease] = {connection.id, &*connection.request};
    }
  }
  for (const auto& [lease, request] : requests)
    sessions_.resume(request.first, *request.second);
  if (!kept.empty() || !plan.lost.empty()) {
    journal_.log(Level::kNotice, Event::kAdopted,
                 cat("after the restart ", lending_.adopted(), " leases on ",
                     plan.connections.size(), " connections go on, ", requests.size(),
                     " requests are served, ", plan.lost.size(), " leases are lost"));
  }
}

Result<void> Daemon::open_listeners(std::vector<UniqueFd> passed) {
  const auto accepted = [this](UniqueFd socket, const Peer& peer) {
    sessions_.accept(++last_id_, std::move(socket), peer);
  };
  for (UniqueFd& socket : passed) {
    auto listener = Listener::take_over(listener_context_, ++last_id_, std::move(socket), accepted);
    if (!listener) return listener.error();
    listeners_.push_back(*std::move(listener));
  }
  std::vector<std::string> paths = options_.sockets;
  if (paths.empty() && listeners_.empty()) paths.emplace_back(kDefaultSocket);
  for (const std::string& path : paths) {
    const bool is_passed =
        std::any_of(listeners_.begin(), listeners_.end(),
                    [&path](const auto& listener) { return listener->path() == path; });
    if (is_passed) continue;
    auto listener = Listener::open(
        listener_context_, ++last_id_,
        {.path = path, .type = SOCK_SEQPACKET, .mode = 0660, .group = "carveout"}, accepted);
    if (!listener) return listener.error();
    listeners_.push_back(*std::move(listener));
  }
  lending_sockets_ = listeners_.size();
  // The last: who sees its file may connect to the others.
  auto control =
      Listener::open(listener_context_, ++last_id_,
                     {.path = options_.control, .type = SOCK_STREAM, .mode = 0600, .group = ""},
                     [this](UniqueFd socket, const Peer& peer) {
                       control_.accept(++last_id_, std::move(socket), peer);
                     });
  if (!control) return control.error();
  listeners_.push_back(*std::move(control));
  return {};
}

Result<void> Daemon::watch_loop_sources() {
  const auto stop = [this] { loop_->stop(); };
  Result<EventLoop::Source> sources[] = {
      loop_->on_signal(SIGTERM, stop),
      loop_->on_signal(SIGINT, stop),
      loop_->on_signal(SIGHUP, [this] { reload(); }),
      loop_->on_readable(worker_->done_descriptor(), [this] { worker_->run_done(); }),
  };
  for (auto& source : sources) {
    if (!source) return source.error();
    loop_sources_.push_back(*std::move(source));
  }
  return loop_->feed_watchdog();
}

Result<void> Daemon::run() {
  std::string where;
  for (const std::string& socket : lending_sockets())
    where += cat(where.empty() ? "" : ", ", socket);
  journal_.log(Level::kNotice, Event::kStarted,
               cat("carveoutd ", kVersion, " lends ", format_bytes(options_.size),
                   options_.size == asked_
                       ? ""
                       : cat(" of the ", format_bytes(asked_), " of --size, all there was"),
                   " (", source_->describe().detail, ") on ", where));
  // Unheard, it would be taken for a start that hangs.
  if (const int told = sd_notify(0, "READY=1"); told < 0) {
    return system_error(-told, "the service manager", "cannot be told that the daemon is ready");
  }
  auto ended = loop_->run(poll_set_);
  sd_notify(0, "STOPPING=1");
  journal_.log(
      Level::kNotice, Event::kStopped,
      cat("stopping: ", lending_.leases().size(), " leases ",
          supervisor_.has_store() ? "stay with the service manager for a restart (a stop ends them)"
                                  : "end with their connections"));
  return ended;
}

void Daemon::reload() {
  const auto key = wire::read_key_file(options_.key_file, wire::KeyAudience::kLender);
  if (!key) {
    journal_.log(Level::kError, Event::kTrouble,
                 cat("the key stays as it was: ", key.error().describe()));
    return;
  }
  keys_.replace(*key);
  journal_.log(
      Level::kNotice, Event::kReloaded,
      cat("read the key anew from ", options_.key_file, "; connections that are in stay in"));
}

std::vector<std::string> Daemon::lending_sockets() const {
  std::vector<std::string> paths;
  paths.reserve(lending_sockets_);
  for (std::size_t i = 0; i < lending_sockets_; ++i)
    paths.push_back(listeners_[i]->path());
  return paths;
}

std::string Daemon::answer(std::string_view op) {
  if (op == "status") return status();
  if (op == "leases") return leases_json(lending_.leases());
  if (op == "drain") return drain(true);
  if (op == "undrain") return drain(false);
  return {};
}

std::string Daemon::status() const {
  const Status status{.started = started_,
                      .source = source_->describe(),
                      .figures = lending_.figures(),
                      .draining = reservation_.draining(),
                      .capped = reservation_.capped(),
                      .holds = holds(options_),
                      .missing = reservation_.missing().bytes(),
                      .leases = lending_.leases().size(),
                      .borrowers = sessions_.borrowers(),
                      .connections = sessions_.size(),
                      .sockets = lending_sockets(),
                      .refuses_descriptors = listeners_.front()->refuses_descriptors(),
                      .counters = counters_,
                      .granted = lending_.granted(),
                      .released = lending_.released(),
                      .adopted = lending_.adopted(),
                      .lost = lending_.lost(),
                      .ledger = ledger_ ? ledger_->path() : std::string(),
                      .ledger_records = ledger_ ? ledger_->records() : 0,
                      .ledger_failing = ledger_ && ledger_->failing(),
                      .ledger_owed = ledger_ ? ledger_->owed() : 0,
                      .store_used = supervisor_.stored(),
                      .store_most = supervisor_.most(),
                      .log_lines_dropped = journal_.dropped(),
                      .log_lines_left_out = journal_.left_out()};
  return status_json(status);
}

std::string Daemon::drain(bool draining) {
  if (reservation_.draining() != draining) {
    reservation_.set_draining(draining);
    journal_.log(Level::kNotice, Event::kDraining,
                 draining ? "draining: nothing more is lent" : "lending again");
  }
  return draining_json(draining, lending_.leases().size());
}

}  // namespace carveout::daemon
