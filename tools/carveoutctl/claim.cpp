#include "claim.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "base/text.hpp"
#include "wire/key.hpp"

namespace carveout::ctl {
namespace {

constexpr std::chrono::seconds kTimeLimit{10};  // the lending protocol's

// Lets a descriptor pass exec(), and says its number in the environment.
bool hand_down(const char* name, int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFD);
  return flags >= 0 && ::fcntl(descriptor, F_SETFD, flags & ~FD_CLOEXEC) == 0 &&
         ::setenv(name, cat(descriptor).c_str(), 1) == 0;
}

}  // namespace

Result<client::Lease> claim(const ClaimSettings& settings, const std::string& name) {
  auto key = wire::read_key_file(settings.key_file, wire::KeyAudience::kBorrower);
  if (!key) return std::move(key).error();
  // What the daemon will show as the borrower's command.
  ::prctl(PR_SET_NAME, name.c_str());
  auto lease = client::borrow({settings.socket, *std::move(key)}, settings.size,
                              wire::Clock::now() + kTimeLimit);
  if (lease) return lease;
  Error problem = std::move(lease).error();
  problem.context += cat(" at ", printable(settings.socket, 200));
  if (client::is_about_key(problem)) {
    problem.message += cat(" (it is the one in ", printable(settings.key_file, 200), ")");
  }
  return problem;
}

Error become(const client::Lease& held, const std::vector<std::string>& command) {
  if (!hand_down("CARVEOUT_FD", held.loan().memory.get()) ||
      !hand_down("CARVEOUT_LEASE_FD", held.watch()) ||
      ::setenv("CARVEOUT_BYTES", cat(held.loan().size.count()).c_str(), 1) != 0) {
    return system_error(errno, command.front(), "the lease cannot be handed down");
  }
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));  // NOLINT: execvp does not write
  }
  arguments.push_back(nullptr);
  ::execvp(arguments.front(), arguments.data());
  return system_error(errno, command.front(), "cannot be run");
}

Result<void> hold(const client::Lease& held, const std::function<void()>& announce) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const UniqueFd signals(::signalfd(-1, &ends, SFD_CLOEXEC));
  if (!signals) return system_error(errno, "signalfd", "cannot be made");
  announce();
  for (;;) {
    pollfd items[] = {{signals.get(), POLLIN, 0}, {held.watch(), POLLRDHUP, 0}};
    if (::poll(items, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return system_error(errno, "lease", "poll failed");
    }
    if (items[0].revents != 0) return {};
    if (items[1].revents != 0) {
      return Error{Code::kClosed, 0, "the lender", "went away, and the lease with it"};
    }
  }
}

}  // namespace carveout::ctl
