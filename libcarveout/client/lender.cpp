#include "client/lender.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "client/descriptor.hpp"
#include "wire/codec.hpp"

namespace carveout::client {
namespace {

constexpr const char* kLender = "the lender";
constexpr Bytes kMostAsk(std::numeric_limits<std::int64_t>::max());

// The protocol's own reasons, as far as they are fixed.
constexpr std::string_view kUnknownKey = "missing or unknown key";
constexpr std::array<std::string_view, 4> kReasons{
    kUnknownKey, "unknown op", "size must be an integer from 1 to ", "not enough free carveout"};

std::string remedy(int number, const LenderNames& names) {
  switch (number) {
    case ENOENT:
    case ECONNREFUSED:
      return cat("no lender answers there: is carveoutd running, and is ", names.socket,
                 " one of its lending sockets?");
    case EACCES:
    case EPERM:
      return "not allowed: only root and the members of the socket's group are (ls -l it)";
    case EPROTOTYPE:
      return cat("is another kind of socket: is ", names.socket, " the control socket?");
    default:
      return "cannot be connected to";
  }
}

Error closed(std::string message) {
  return Error{Code::kClosed, 0, kLender, std::move(message)};
}

Error unacceptable(std::string message) {
  return Error{Code::kProtocol, 0, "the lender's grant", std::move(message)};
}

// A lender's text may repeat what it was sent: the key is taken out of it, and its beginning, too
// (a long text is cut). The protocol's own reasons stay what they are, even for a key that is a
// word of them.
std::string without_key(std::string_view text, std::string_view key_bytes) {
  constexpr std::size_t kTelling = 8;  // so much of a key's beginning is not there by chance
  const std::string key = printable(key_bytes, key_bytes.size());
  std::string safe;
  for (const std::string_view reason : kReasons) {
    if (text.starts_with(reason)) safe = reason;
  }
  text.remove_prefix(safe.size());
  while (!text.empty()) {
    const auto differs = std::mismatch(key.begin(), key.end(), text.begin(), text.end());
    const auto same = static_cast<std::size_t>(differs.first - key.begin());
    if (same == key.size() || same >= kTelling) {
      safe += "[the key]";
      text.remove_prefix(same);
    } else {
      safe += text.front();
      text.remove_prefix(1);
    }
  }
  return safe;
}

Error refusal(Error problem, const wire::Key& key, const LenderNames& names) {
  problem.message = without_key(problem.message, key.bytes());
  if (problem.message == kUnknownKey) {
    problem.message += cat(": what ", names.key, " has is not this lender's key");
  }
  return problem;
}

bool is_refusal(const wire::Datagram& reply) {
  const auto grant = wire::parse_grant_reply(reply.bytes);
  return !grant && grant.error().code == Code::kRefused;
}

// One request and its reply. A lender that refuses closes at once, perhaps before it has read the
// request: then sending fails, or the kernel says ECONNRESET first, and the refusal is what is
// still queued. A grant from a lender that is gone is none.
Result<wire::Datagram> exchange(int socket, std::string_view request, Deadline deadline) {
  const auto sent = wire::send_by(socket, request, deadline);
  if (!sent && sent.error().code != Code::kClosed) return sent.error();
  auto reply = wire::receive_by(socket, wire::kMaxDatagram, sent ? deadline : wire::Clock::now());
  if (sent && (reply || reply.error().code != Code::kClosed)) return reply;
  if (!reply) reply = wire::receive_by(socket, wire::kMaxDatagram, wire::Clock::now());
  if (reply && is_refusal(*reply)) return reply;
  return closed("closed the connection without an answer: has it ended, or no room?");
}

// The memory of a grant for `ask`, or why it must not be used.
Result<Loan> accept(wire::Datagram& reply, Bytes ask, const wire::Grant& grant) {
  if (reply.descriptors.size() != 1) {
    return unacceptable(cat("came with ", reply.descriptors.size(), " descriptors instead of one"));
  }
  if (grant.size < ask) {
    return unacceptable(
        cat("is ", format_bytes(grant.size), ", less than the ", format_bytes(ask), " asked for"));
  }
  UniqueFd& memory = reply.descriptors.front();
  const auto file = examine(memory.get());
  if (!file) return file.error();
  if (file->length && *file->length < grant.size) {
    return unacceptable(cat("is ", format_bytes(grant.size), ", but the memory that came with it ",
                            format_bytes(*file->length)));
  }
  return Loan{std::move(memory), grant.size, grant.base, file->kind};
}

}  // namespace

Result<Lender> Lender::connect(const std::string& socket, Deadline deadline,
                               const LenderNames& names) {
  auto connection = wire::connect_to(socket, SOCK_SEQPACKET, deadline);
  if (connection) return Lender(*std::move(connection), names);
  Error problem = connection.error();
  problem.context = "the lending socket";  // instead of its path
  if (problem.code == Code::kSystem) problem.message = remedy(problem.number, names);
  return problem;
}

Result<Loan> Lender::claim(const wire::Key& key, Bytes ask, Deadline deadline) {
  if (ask == Bytes(0) || ask > kMostAsk) {
    return Error{Code::kInvalid, 0, "a claim", "must be 1 to 2^63 - 1 bytes"};
  }
  if (!connection_) return closed("is not connected any more");
  if (spent_) return closed("takes no further claim here: an earlier one failed");
  spent_ = true;
  const Bytes whole = Slices::holding(ask).bytes();
  auto reply =
      exchange(connection_.get(), wire::encode_alloc_request(key.bytes(), whole), deadline);
  if (!reply) return reply.error();
  const auto grant = wire::parse_grant_reply(reply->bytes);
  if (!grant) return refusal(grant.error(), key, names_);
  auto loan = accept(*reply, whole, *grant);
  if (loan) spent_ = false;
  return loan;
}

bool Lender::gone() const {
  if (!connection_) return true;
  pollfd item{connection_.get(), POLLRDHUP, 0};
  return ::poll(&item, 1, 0) > 0;  // also for POLLHUP and POLLERR
}

Result<Lease> borrow(const LenderSettings& settings, Bytes ask, Deadline deadline) {
  auto lender = Lender::connect(settings.socket, deadline, settings.names);
  if (!lender) return lender.error();
  auto loan = lender->claim(settings.key, ask, deadline);
  if (!loan) return loan.error();
  return Lease(*std::move(lender), *std::move(loan));
}

}  // namespace carveout::client
