#include "client/lender.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "client/descriptor.hpp"
#include "wire/codec.hpp"

namespace carveout::client {
namespace {

constexpr const char* kLender = "the lender";
constexpr Bytes kMostAsk(std::numeric_limits<std::int64_t>::max());

std::string_view remedy(int number) {
  switch (number) {
    case ENOENT:
    case ECONNREFUSED:
      return "no lender answers there: is carveoutd running, and is this one of its --socket?";
    case EACCES:
    case EPERM:
      return "only root and members of its group (carveout, unless ls -l shows another) may use "
             "it: usermod -aG carveout USER, then log in again";
    case EPROTOTYPE:
      return "is another kind of socket: is it the control socket?";
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

Error with_advice(Error problem) {
  if (is_about_key(problem)) problem.message += ": the key is not this lender's";
  return problem;
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
  if (grant.size != Slices::holding(grant.size).bytes()) {
    return unacceptable(cat("is ", format_bytes(grant.size), ", which are no whole slices"));
  }
  UniqueFd& memory = reply.descriptors.front();
  const auto file = examine(memory.get());
  if (!file) return file.error();
  if (file->length && *file->length < grant.size) {
    return unacceptable(cat("is ", format_bytes(grant.size), ", but the memory that came with it ",
                            format_bytes(*file->length)));
  }
  // Of what can be had in part, no more than was asked for.
  return Loan{std::move(memory), file->length ? ask : grant.size, grant.base, file->kind};
}

}  // namespace

Result<Lender> Lender::connect(const std::string& socket, Deadline deadline) {
  auto connection = wire::connect_to(socket, SOCK_SEQPACKET, deadline);
  if (connection && connection->get() > STDERR_FILENO) return Lender(*std::move(connection));
  // In a process without standard streams it could be taken for one.
  if (connection) connection = duplicate(connection->get(), "the lending socket");
  if (connection) return Lender(*std::move(connection));
  Error problem = connection.error();
  problem.context = "the lending socket";  // instead of its path
  if (problem.code == Code::kSystem) problem.message = remedy(problem.number);
  return problem;
}

Result<wire::Datagram> Lender::ask(std::string_view request, Deadline deadline) {
  if (!connection_) return closed("is not connected any more");
  if (spent_) return closed("takes no further claim here: an earlier one failed");
  spent_ = true;
  return exchange(connection_.get(), request, deadline);
}

Result<wire::Info> Lender::info(const wire::Key& key, Deadline deadline) {
  auto reply = ask(wire::encode_info_request(key.bytes()), deadline);
  if (!reply) return reply.error();
  auto info = wire::parse_info_reply(reply->bytes, key.bytes());
  if (!info) return with_advice(std::move(info).error());
  spent_ = false;
  return info;
}

Result<Loan> Lender::claim(const wire::Key& key, Bytes size, Deadline deadline) {
  if (size == Bytes(0) || size > kMostAsk) {
    return Error{Code::kInvalid, 0, "a claim", "must be 1 to 2^63 - 1 bytes"};
  }
  const Bytes whole = Slices::holding(size).bytes();
  auto reply = ask(wire::encode_alloc_request(key.bytes(), whole), deadline);
  if (!reply) return reply.error();
  const auto grant = wire::parse_grant_reply(reply->bytes, key.bytes());
  if (!grant) {
    Error problem = with_advice(grant.error());
    if (problem.code == Code::kRefused && !is_about_key(problem)) {
      problem.message += cat(" (", format_bytes(whole), " were asked for)");
    }
    return problem;
  }
  auto loan = accept(*reply, whole, *grant);
  if (loan) spent_ = false;
  return loan;
}

bool Lender::gone() const {
  if (!connection_) return true;
  pollfd item{connection_.get(), POLLRDHUP, 0};
  return ::poll(&item, 1, 0) > 0;  // also for POLLHUP and POLLERR
}

bool is_about_key(const Error& refusal) {
  return refusal.code == Code::kRefused && refusal.message.starts_with(wire::kUnknownKey);
}

bool is_about_size(const Error& refusal) {
  return refusal.code == Code::kRefused && refusal.message.starts_with(wire::kBadSize);
}

Result<Lease> borrow(const LenderSettings& settings, Bytes ask, Deadline deadline) {
  auto lender = Lender::connect(settings.socket, deadline);
  if (!lender) return lender.error();
  auto loan = lender->claim(settings.key, ask, deadline);
  if (!loan) return loan.error();
  return Lease(*std::move(lender), *std::move(loan));
}

}  // namespace carveout::client
