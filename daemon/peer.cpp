#include "peer.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <systemd/sd-login.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // include/uapi/asm-generic/socket.h, Linux 6.5
#endif

namespace carveout::daemon {
namespace {

UniqueFd pidfd_of(int socket) {
  int pidfd = -1;
  socklen_t length = sizeof pidfd;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) != 0) return {};
  return UniqueFd(pidfd);
}

bool has_ended(const UniqueFd& pidfd) {
  if (!pidfd) return false;
  pollfd item{pidfd.get(), POLLIN, 0};
  return ::poll(&item, 1, 0) > 0;
}

// Takes over a string that libsystemd allocated.
std::string adopt(char* text) {
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  return text == nullptr ? std::string() : std::string(text);
}

}  // namespace

Result<Peer> peer_of(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return system_error(errno, "connection", "the peer's credentials cannot be read");
  }
  return Peer{credentials.uid, credentials.gid, credentials.pid};
}

Identity identify(int socket, pid_t pid) {
  Identity identity;
  if (pid <= 0) return identity;
  const UniqueFd pidfd = pidfd_of(socket);
  // Only a kernel that has no such thing is asked without: otherwise the peer has ended already.
  if (!pidfd && errno != ENOPROTOOPT) return identity;
  if (auto command = read_text(cat("/proc/", pid, "/comm"), 64)) {
    identity.command = command->substr(0, command->find('\n'));
  }
  char* text = nullptr;
  if (sd_pid_get_cgroup(pid, &text) >= 0) identity.cgroup = adopt(text);
  text = nullptr;
  if (sd_pid_get_unit(pid, &text) >= 0) identity.unit = adopt(text);
  return has_ended(pidfd) ? Identity{} : identity;
}

}  // namespace carveout::daemon
