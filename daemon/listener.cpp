#include "listener.hpp"

#include <fcntl.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "wire/channel.hpp"

namespace carveout::daemon {
namespace {

// More than this many new connections wait while those that are there are served.
constexpr int kAcceptsAtOnce = 16;

constexpr std::chrono::milliseconds kPause{100};

std::string context_of(const std::string& path) {
  return cat("socket ", printable(path, 200));
}

// Whether something answers at `path`: a socket's file outlives the process that made it.
Result<void> check_nobody_listens(const std::string& path) {
  const auto address = wire::socket_address(path);
  if (!address) return address.error();
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    const UniqueFd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe) return system_error(errno, context_of(path), "cannot be tried");
    const int answer =
        ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address);
    const int problem = answer == 0 ? 0 : errno;
    const bool nobody = problem == ENOENT || problem == ECONNREFUSED || problem == EPROTOTYPE;
    if (problem != 0 && problem != EAGAIN && !nobody) {
      return system_error(problem, context_of(path),
                          "whether somebody listens on it cannot be told");
    }
    if (!nobody) {
      return Error{Code::kInvalid, 0, context_of(path),
                   "another process is listening on it: stop that one, or choose another path"};
    }
  }
  return {};
}

// Gives the file to the group. False if there is no such group, or we may not.
bool hand_to_group(const std::string& path, const std::string& group) {
  if (group.empty()) return false;
  const struct group* entry = ::getgrnam(group.c_str());  // NOLINT(concurrency-mt-unsafe): at start
  if (entry == nullptr) return false;
  return ::chown(path.c_str(), static_cast<uid_t>(-1), entry->gr_gid) == 0;
}

}  // namespace

Result<void> check_socket_path(const std::string& path) {
  if (const auto address = wire::socket_address(path); !address) return address.error();
  const std::string directory = directory_of(path);
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    const int problem = errno;
    return system_error(problem, context_of(path),
                        cat("its directory ", directory,
                            problem == ENOENT ? " does not exist: make it, or choose another path"
                                              : " is not ours to write: choose another path"));
  }
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) {
    return system_error(errno, context_of(path), "its directory cannot be examined");
  }
  // Whoever may replace files there could have our chmod() land on another's. In a directory with
  // the sticky bit (/tmp) only the owners of the files may.
  const bool others_write = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (others_write && (status.st_mode & S_ISVTX) == 0) {
    return Error{Code::kInvalid, 0, context_of(path),
                 cat("its directory ", directory,
                     " can be written by others than its owner: chmod 0755 it, or choose another")};
  }
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    return system_error(errno, context_of(path), "cannot be examined");
  }
  if (!S_ISSOCK(status.st_mode)) {
    return Error{Code::kInvalid, 0, context_of(path),
                 "exists and is not a socket: remove it, or choose another path"};
  }
  return {};
}

Result<std::unique_ptr<Listener>> Listener::open(ListenerContext& context, std::uint64_t id,
                                                 ListenerSettings settings, Accepted accepted) {
  const std::string& path = settings.path;
  if (auto fit = check_socket_path(path); !fit) return fit.error();
  if (auto alone = check_nobody_listens(path); !alone) return alone.error();
  const auto address = wire::socket_address(path);
  if (!address) return address.error();
  UniqueFd socket(::socket(AF_UNIX, settings.type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error(errno, context_of(path), "cannot be made");
  ::unlink(path.c_str());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    return system_error(errno, context_of(path), "cannot be bound");
  }
  std::unique_ptr<Listener> listener(
      new Listener(context, id, std::move(settings), std::move(accepted), std::move(socket)));
  // Nobody can connect before listen(): until then the file's owner and mode may be wrong.
  listener->in_group_ = hand_to_group(listener->path(), listener->settings_.group);
  struct stat status {};
  if (::chmod(listener->path().c_str(), listener->settings_.mode) != 0 ||
      ::lstat(listener->path().c_str(), &status) != 0) {
    return system_error(errno, context_of(listener->path()), "its mode cannot be set");
  }
  listener->device_ = status.st_dev;
  listener->inode_ = status.st_ino;
  listener->refuses_descriptors_ = wire::refuse_descriptors(listener->socket_.get());
  if (::listen(listener->socket_.get(), SOMAXCONN) != 0) {
    return system_error(errno, context_of(listener->path()), "cannot be listened on");
  }
  if (auto watched = listener->watch(); !watched) return watched.error();
  return listener;
}

Result<std::unique_ptr<Listener>> Listener::take_over(ListenerContext& context, std::uint64_t id,
                                                      UniqueFd socket, Accepted accepted) {
  const Error unfit{Code::kInvalid, 0, "a socket that the service manager passes as \"lend\"",
                    "is not listening as AF_UNIX, SOCK_SEQPACKET: write ListenSequentialPacket= in "
                    "the socket unit"};
  if (sd_is_socket(socket.get(), AF_UNIX, SOCK_SEQPACKET, 1) <= 0) return unfit;
  // The manager passes it blocking, unless the unit says NonBlocking=.
  const int flags = ::fcntl(socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return system_error(errno, unfit.context, "cannot be made non-blocking");
  }
  sockaddr_un address{};
  socklen_t length = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      length <= offsetof(sockaddr_un, sun_path) || address.sun_path[0] == '\0') {
    return unfit;
  }
  // The path may fill its place to the last byte.
  const std::string path(std::begin(address.sun_path),
                         ::strnlen(std::begin(address.sun_path), sizeof address.sun_path));
  std::unique_ptr<Listener> listener(new Listener(
      context, id, {.path = path, .type = SOCK_SEQPACKET, .mode = 0, .group = "carveout"},
      std::move(accepted), std::move(socket)));
  listener->in_group_ = true;  // whom the file belongs to is the socket unit's business
  listener->refuses_descriptors_ = wire::refuse_descriptors(listener->socket_.get());
  if (auto watched = listener->watch(); !watched) return watched.error();
  return listener;
}

Listener::Listener(ListenerContext& context, std::uint64_t id, ListenerSettings settings,
                   Accepted accepted, UniqueFd socket)
    : context_(context),
      id_(id),
      settings_(std::move(settings)),
      accepted_(std::move(accepted)),
      socket_(std::move(socket)) {}

Listener::~Listener() {
  context_.poll_set.remove(id_, socket_.get());
  struct stat status {};
  if (::lstat(path().c_str(), &status) == 0 && status.st_dev == device_ &&
      status.st_ino == inode_) {
    ::unlink(path().c_str());
  }
}

Result<void> Listener::watch() {
  return context_.poll_set.watch(id_, socket_.get(), EPOLLIN, *this);
}

void Listener::on_ready(std::uint32_t /*events*/) {
  for (int i = 0; i < kAcceptsAtOnce && accept_one(); ++i) {
  }
}

// False when there is nothing more to accept now.
bool Listener::accept_one() {
  // It may have been impossible to open it again after the last time that it was used.
  if (!context_.reserve) context_.reserve = open_reserve();
  UniqueFd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    switch (errno) {
      case EINTR:
      case ECONNABORTED:
        return true;
      case EAGAIN:
        return false;
      case EMFILE:
      case ENFILE:
        if (!context_.make_room()) shed();
        return true;
      default:
        pause();
        return false;
    }
  }
  // One that was in the backlog before the listener's own setting took effect still has it on.
  if (refuses_descriptors_) wire::refuse_descriptors(socket.get());
  const auto peer = peer_of(socket.get());
  if (!peer) return true;
  accepted_(std::move(socket), *peer);
  return true;
}

// With no descriptor left the connection would stay in the backlog and the listener ready for
// ever: the reserve makes room to take it out and close it.
void Listener::shed() {
  context_.reserve.reset();
  UniqueFd victim(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const bool taken = static_cast<bool>(victim);
  if (taken) ++context_.counters.shed;
  victim.reset();
  context_.reserve = open_reserve();
  if (!taken) pause();
}

// The kernel has no memory, or no descriptors at all: asking at once again would spin.
void Listener::pause() {
  context_.poll_set.remove(id_, socket_.get());
  auto timer = context_.loop.after(kPause, [this] {
    if (!watch()) pause();
  });
  if (timer) {
    pause_ = *std::move(timer);
  } else {
    [[maybe_unused]] const auto watched = watch();
  }
}

UniqueFd open_reserve() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace carveout::daemon
