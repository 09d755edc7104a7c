#include "claim.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "base/text.hpp"
#include "wire/channel.hpp"
#include "wire/codec.hpp"
#include "wire/key.hpp"

namespace carveout::ctl {
namespace {

constexpr std::chrono::seconds kTimeLimit{10};  // the lending protocol's

Error unacceptable(std::string message) {
  return Error{Code::kProtocol, 0, "the lender's grant", std::move(message)};
}

std::string_view remedy(int number) {
  switch (number) {
    case ENOENT:
    case ECONNREFUSED:
      return "no lender answers there: is carveoutd running, and is this one of its --socket?";
    case EACCES:
    case EPERM:
      return "not allowed: only root and the members of the socket's group are (ls -l it)";
    case EPROTOTYPE:
      return "is another kind of socket: is it the control socket?";
    default:
      return "cannot be connected to";
  }
}

// The memory of a grant for `ask`, or why it must not be used.
Result<UniqueFd> accept_grant(wire::Datagram& reply, Bytes ask, Bytes granted) {
  if (reply.descriptors.size() != 1) {
    return unacceptable(cat("came with ", reply.descriptors.size(), " descriptors instead of one"));
  }
  if (granted < ask) {
    return unacceptable(
        cat("is ", format_bytes(granted), ", less than the ", format_bytes(ask), " asked for"));
  }
  // Asked without lseek: the offset is not ours to move. An NVIDIA file has no length (0).
  struct stat status {};
  const UniqueFd& memory = reply.descriptors.front();
  if (::fstat(memory.get(), &status) == 0 && status.st_size > 0 &&
      Bytes(static_cast<std::uint64_t>(status.st_size)) < granted) {
    return unacceptable("is longer than the memory that came with it");
  }
  return std::move(reply.descriptors.front());
}

// Lets a descriptor pass exec(), and says its number in the environment.
bool hand_down(const char* name, const UniqueFd& descriptor) {
  const int flags = ::fcntl(descriptor.get(), F_GETFD);
  return flags >= 0 && ::fcntl(descriptor.get(), F_SETFD, flags & ~FD_CLOEXEC) == 0 &&
         ::setenv(name, cat(descriptor.get()).c_str(), 1) == 0;
}

}  // namespace

Result<Claim> claim(const ClaimSettings& settings, const std::string& name) {
  const auto key = wire::read_key_file(settings.key_file, wire::KeyAudience::kBorrower);
  if (!key) return key.error();
  // What the daemon will show as the borrower's command.
  ::prctl(PR_SET_NAME, name.c_str());

  const auto deadline = wire::Clock::now() + kTimeLimit;
  auto connection = wire::connect_to(settings.socket, SOCK_SEQPACKET, deadline);
  if (!connection) {
    const Error& problem = connection.error();
    if (problem.code != Code::kSystem) return problem;
    return system_error(problem.number, cat("lending socket ", printable(settings.socket, 200)),
                        std::string(remedy(problem.number)));
  }
  const Bytes ask = Slices::holding(settings.size).bytes();
  const std::string request = wire::encode_alloc_request(key->bytes(), ask);
  if (auto sent = wire::send_by(connection->get(), request, deadline); !sent) return sent.error();
  auto reply = wire::receive_by(connection->get(), wire::kMaxDatagram, deadline);
  if (!reply) return reply.error();
  const auto grant = wire::parse_grant_reply(reply->bytes);
  if (!grant) {
    Error refused = grant.error();
    refused.context = cat("the lender at ", printable(settings.socket, 200));
    if (refused.message == "missing or unknown key") {
      refused.message +=
          cat(": the key in ", printable(settings.key_file, 200), " is not the lender's");
    }
    return refused;
  }
  auto memory = accept_grant(*reply, ask, grant->size);
  if (!memory) return memory.error();
  return Claim{*std::move(connection), *std::move(memory), grant->size};
}

Error become(const Claim& held, const std::vector<std::string>& command) {
  if (!hand_down("CARVEOUT_FD", held.memory) || !hand_down("CARVEOUT_LEASE_FD", held.connection) ||
      ::setenv("CARVEOUT_BYTES", cat(held.size.count()).c_str(), 1) != 0) {
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

Result<void> hold(const Claim& held, const std::function<void()>& announce) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const UniqueFd signals(::signalfd(-1, &ends, SFD_CLOEXEC));
  if (!signals) return system_error(errno, "signalfd", "cannot be made");
  announce();
  for (;;) {
    pollfd items[] = {{signals.get(), POLLIN, 0}, {held.connection.get(), POLLIN, 0}};
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
