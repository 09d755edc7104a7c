#include "startup.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "listener.hpp"
#include "source/cuda.hpp"
#include "source/dma_heap.hpp"
#include "source/drm.hpp"
#include "source/memfd.hpp"
#include "wire/key.hpp"

namespace carveout::daemon {
namespace {

// What is open besides connections: files in the worker's hands, sockets, the loop's own.
constexpr rlim_t kOwnDescriptors = 32;
// More pieces than that are a reservation that is good for nothing.
constexpr rlim_t kMostPieces = 128;

// Where `file` (of `whose`, set by `option`) stands: whoever may write there could replace it.
Result<void> check_directory(std::string_view whose, const std::string& file,
                             std::string_view option) {
  const std::string directory = directory_of(file);
  const std::string context = cat(whose, " directory ", printable(directory, 200));
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) {
    return system_error(errno, context, "make it, with mode 0700");
  }
  if (status.st_uid != 0 && status.st_uid != ::geteuid()) {
    return Error{
        Code::kInvalid, 0, context,
        cat("belongs to uid ", status.st_uid,
            ", who could replace what is in it: chown it, or choose another with ", option)};
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Error{Code::kInvalid, 0, context,
                 cat("can be written by others than its owner: chmod 0700 it, or choose another "
                     "with ",
                     option)};
  }
  return {};
}

// As many descriptors as we are allowed.
rlim_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}

std::string lock_path(const std::string& control) {
  return cat(directory_of(control), "/lock");
}

bool is_running(const std::string& control) {
  const UniqueFd lock(::open(lock_path(control).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return lock && ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

Result<void> check_settings(const Options& options) {
  if (auto key = wire::read_key_file(options.key_file, wire::KeyAudience::kLender); !key) {
    return key.error();
  }
  if (auto fit = check_directory("control socket's", options.control, "--control"); !fit) {
    return fit;
  }
  if (!options.ledger.empty()) {
    auto fit = check_directory("ledger's", options.ledger, "--ledger");
    if (!fit) return fit;
  }
  if (auto fit = check_socket_path(options.control); !fit) return fit;
  for (const std::string& socket : options.sockets) {
    if (auto fit = check_socket_path(socket); !fit) return fit;
    if (socket == options.control) {
      return Error{Code::kInvalid, 0, cat("--socket ", socket), "is the control socket as well"};
    }
  }
  return {};
}

Result<std::string> check(const Options& options) {
  if (auto fit = check_settings(options); !fit) return fit.error();
  const std::string what = cat(format_bytes(options.size), " by ", options.backend);
  if (is_running(options.control)) {
    return cat(what, " (whether it can be had was not tried: a carveoutd runs that may have it)");
  }
  auto source = make_source(options);
  if (!source) return source.error();
  if (holds(options)) {
    Hold hold(*std::move(source), options.size, pieces_held());
    const auto claimed = claim_reservation(hold, Bytes(0), Bytes(0), options);
    if (!claimed) return claimed.error();
    if (*claimed != options.size) return cat(what, ", of which there are ", format_bytes(*claimed));
    return what;
  }
  if (auto tried = try_source(**source); !tried) return tried.error();
  return cat(what, " (of which a slice was tried; --hold yes tries it all)");
}

Result<void> try_source(Source& source) {
  auto buffer = source.allocate(kSliceBytes);
  if (!buffer) return std::move(buffer).error();
  const auto lent = source.share(*buffer);
  return lent ? Result<void>() : lent.error();
}

std::size_t pieces_held() {
  return static_cast<std::size_t>(std::min(kMostPieces, raise_descriptor_limit() / 4));
}

Result<Bytes> claim_reservation(Hold& hold, Bytes lent, Bytes lost, const Options& options) {
  hold.count_lent(lent);
  hold.fill();
  hold.join();
  const Bytes missing = hold.missing();
  if (missing == Bytes(0) || lent != Bytes(0) || missing <= lost) return options.size;
  const Bytes found = hold.held();
  if (options.allow_partial && found != Bytes(0)) {
    hold.want(found);
    return found;
  }
  const std::string remedy =
      found == Bytes(0) ? std::string("nothing of it is free: does something else have it?")
                        : std::string(
                              "ask for that, or take what there is with --allow-partial (a process "
                              "may still keep "
                              "what was lent to it: carveoutctl holders)");
  return Error{Code::kExhausted, 0, cat("--size ", format_bytes(options.size)),
               cat("the kernel gives ", format_bytes(found), " of it: ", remedy,
                   hold.refusal() ? cat(" (", hold.refusal()->describe(), ")") : "")};
}

Result<UniqueFd> lock_instance(const std::string& control) {
  const std::string path = lock_path(control);
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

Result<std::unique_ptr<Source>> make_source(const Options& options) {
  if (options.backend == "dma-heap") return open_dma_heap_source({.heap = options.heap});
  if (options.backend == "drm") {
    return open_drm_source(
        {.card = options.card,
         .lend_as = options.lend_as == "nvidia" ? LendAs::kNvidia : LendAs::kDmaBuf,
         .allow_display = options.allow_display});
  }
  if (options.backend == "cuda") return open_cuda_source({});
  return make_memfd_source();
}

ConnectionLimits limits_of(const Options& options) {
  const rlim_t descriptors = raise_descriptor_limit();
  const rlim_t own = kOwnDescriptors + (holds(options) ? pieces_held() : 0);
  const rlim_t ours = descriptors > own + 2 ? descriptors - own : 2;
  const rlim_t unread = std::min<rlim_t>(Slices::holding(options.size).count(), ours / 2);
  const rlim_t most = ours - unread;
  ConnectionLimits limits{.total = static_cast<std::size_t>(most),
                          .per_user = options.max_connections_per_uid,
                          .idle_timeout = std::chrono::seconds(options.idle_timeout_s)};
  if (options.max_connections) limits.total = std::min(limits.total, *options.max_connections);
  return limits;
}

}  // namespace carveout::daemon
