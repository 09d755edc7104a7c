#include "daemon.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "report.hpp"
#include "source/available_memory.hpp"
#include "source/memfd.hpp"
#include "version.hpp"

namespace carveout::daemon {
namespace {

// What is open besides connections: files in the worker's hands, sockets, the loop's own.
constexpr rlim_t kOwnDescriptors = 32;

// The control socket's directory also holds the lock; whoever may write there could replace both.
Result<void> check_control_directory(const std::string& control) {
  const std::string directory = directory_of(control);
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) {
    return system_error(errno, cat("control socket's directory ", directory),
                        "make it, with mode 0700");
  }
  if (status.st_uid != 0 && status.st_uid != ::geteuid()) {
    return Error{Code::kInvalid, 0, cat("control socket's directory ", directory),
                 cat("belongs to uid ", status.st_uid,
                     ", who could replace the socket: chown it, or "
                     "choose another with --control")};
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Error{Code::kInvalid, 0, cat("control socket's directory ", directory),
                 "can be written by others than its owner: chmod 0700 it, or choose another with "
                 "--control"};
  }
  return {};
}

Result<UniqueFd> lock_instance(const std::string& control) {
  const std::string path = cat(directory_of(control), "/lock");
  UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600));
  if (!lock) return system_error(errno, cat("lock ", path), "cannot be opened");
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return system_error(errno, cat("lock ", path), "cannot be taken");
    const auto holder = read_up_to(lock.get(), 32, path);
    const std::string pid = holder ? holder->substr(0, holder->find('\n')) : "";
    return Error{Code::kInvalid, 0, cat("lock ", path),
                 cat("another carveoutd", pid.empty() ? "" : cat(" (pid ", printable(pid, 20), ")"),
                     " runs with this control socket's directory: stop that one, or choose "
                     "another directory with --control")};
  }
  const std::string pid = cat(::getpid(), "\n");
  if (::ftruncate(lock.get(), 0) != 0 || ::write(lock.get(), pid.data(), pid.size()) < 0) {
    return system_error(errno, cat("lock ", path), "cannot be written");
  }
  return lock;
}

// As many descriptors as we are allowed.
rlim_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}

// A connection has its socket, and perhaps a grant that its peer does not read. There are no more
// grants than slices, so that with a descriptor kept for each of them (or for each connection, if
// that is less) there are always enough for others' grants.
ConnectionLimits limits_of(const Options& options) {
  const rlim_t descriptors = raise_descriptor_limit();
  const rlim_t ours = descriptors > kOwnDescriptors + 2 ? descriptors - kOwnDescriptors : 2;
  const rlim_t unread = std::min<rlim_t>(Slices::holding(options.size).count(), ours / 2);
  const rlim_t most = ours - unread;
  ConnectionLimits limits{.total = static_cast<std::size_t>(most),
                          .per_user = options.max_connections_per_uid,
                          .idle_timeout = std::chrono::seconds(options.idle_timeout_s)};
  if (options.max_connections) limits.total = std::min(limits.total, *options.max_connections);
  return limits;
}

std::optional<Slices> whole_slices(std::optional<Bytes> size) {
  if (!size) return std::nullopt;
  return Slices(size->count() / kSliceBytes.count());
}

std::unique_ptr<Source> make_source(const Options& /*options*/) {
  return make_memfd_source();  // the only backend that --backend takes so far
}

// Gives and takes back one slice: what a grant would need, once.
Result<void> try_source(Source& source) {
  auto buffer = source.allocate(kSliceBytes);
  if (!buffer) return std::move(buffer).error();
  const auto lent = source.share(*buffer);
  return lent ? Result<void>() : lent.error();
}

}  // namespace

Result<void> check(const Options& options) {
  if (auto key = wire::read_key_file(options.key_file, wire::KeyAudience::kLender); !key) {
    return key.error();
  }
  if (auto fit = check_control_directory(options.control); !fit) return fit;
  if (auto fit = check_socket_path(options.control); !fit) return fit;
  for (const std::string& socket : options.sockets) {
    if (auto fit = check_socket_path(socket); !fit) return fit;
    if (socket == options.control) {
      return Error{Code::kInvalid, 0, cat("--socket ", socket), "is the control socket as well"};
    }
  }
  return try_source(*make_source(options));
}

Result<std::unique_ptr<Daemon>> Daemon::create(const Options& options) {
  if (auto fit = check(options); !fit) return fit.error();
  auto key = wire::read_key_file(options.key_file, wire::KeyAudience::kLender);
  if (!key) return key.error();
  auto loop = EventLoop::create();
  if (!loop) return loop.error();
  auto poll_set = PollSet::create();
  if (!poll_set) return poll_set.error();
  auto worker = Worker::start();
  if (!worker) return worker.error();
  std::unique_ptr<Daemon> daemon(new Daemon(options, *std::move(loop), *std::move(poll_set), *key,
                                            make_source(options), *std::move(worker)));
  if (auto opened = daemon->open(); !opened) return opened.error();
  return daemon;
}

Daemon::Daemon(const Options& options, std::unique_ptr<EventLoop> loop, PollSet poll_set,
               const wire::Key& key, std::unique_ptr<Source> source, std::unique_ptr<Worker> worker)
    : options_(options),
      loop_(std::move(loop)),
      poll_set_(std::move(poll_set)),
      keys_(key),
      source_(std::move(source)),
      reservation_(options.base, Slices::holding(options.size),
                   whole_slices(options.max_bytes_per_uid)),
      worker_(std::move(worker)),
      lending_(*loop_, *worker_, *source_, reservation_, journal_),
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
}

Result<void> Daemon::open() {
  auto lock = lock_instance(options_.control);
  if (!lock) return lock.error();
  lock_ = *std::move(lock);
  if (auto opened = open_listeners(); !opened) return opened;
  if (auto watched = watch_loop_sources(); !watched) return watched;

  if (auto warning = source_->take_warning()) {
    journal_.log(Level::kWarning, Event::kTrouble, *warning);
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
  if (available && options_.size > *available) {
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
  return {};
}

Result<void> Daemon::open_listeners() {
  for (const std::string& path : options_.sockets) {
    auto listener =
        Listener::open(listener_context_, ++last_id_,
                       {.path = path, .type = SOCK_SEQPACKET, .mode = 0660, .group = "carveout"},
                       [this](UniqueFd socket, const Peer& peer) {
                         sessions_.accept(++last_id_, std::move(socket), peer);
                       });
    if (!listener) return listener.error();
    listeners_.push_back(*std::move(listener));
  }
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
  for (const std::string& socket : options_.sockets)
    where += cat(where.empty() ? "" : ", ", socket);
  journal_.log(Level::kNotice, Event::kStarted,
               cat("carveoutd ", kVersion, " lends ", format_bytes(options_.size), " (",
                   source_->describe().detail, ") on ", where));
  sd_notify(0, "READY=1");
  auto ended = loop_->run(poll_set_);
  sd_notify(0, "STOPPING=1");
  journal_.log(Level::kNotice, Event::kStopped,
               cat("stopping: ", lending_.leases().size(), " leases end with their connections"));
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
                      .figures = reservation_.figures(),
                      .draining = reservation_.draining(),
                      .capped = reservation_.capped(),
                      .leases = lending_.leases().size(),
                      .borrowers = sessions_.borrowers(),
                      .connections = sessions_.size(),
                      .sockets = options_.sockets,
                      .refuses_descriptors = listeners_.front()->refuses_descriptors(),
                      .counters = counters_,
                      .granted = lending_.granted(),
                      .released = lending_.released(),
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
