#include "session.hpp"

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <utility>

#include "base/text.hpp"
#include "failpoint.hpp"
#include "wire/channel.hpp"

namespace carveout::daemon {
namespace {

void count(Counters& counters, wire::Refusal refusal) {
  switch (refusal) {
    case wire::Refusal::kUnknownKey:
      ++counters.refused_key;
      break;
    case wire::Refusal::kUnknownOp:
      ++counters.refused_op;
      break;
    case wire::Refusal::kBadSize:
      ++counters.refused_size;
      break;
    case wire::Refusal::kNotEnough:
      ++counters.refused_not_enough;
      break;
  }
}

std::string_view name_of(wire::Refusal refusal) {
  switch (refusal) {
    case wire::Refusal::kUnknownKey:
      return "unreadable request, or no good key";
    case wire::Refusal::kUnknownOp:
      return "unknown op";
    case wire::Refusal::kBadSize:
      return "bad size";
    case wire::Refusal::kNotEnough:
      return "not enough free";
  }
  return "";
}

}  // namespace

Session::~Session() {
  context_.poll_set.remove(id_, socket_.get());
  context_.idle.remove(place_);
  if (outgoing_.lease != 0) {
    // Granted, but its reply never left.
    std::erase(leases_, outgoing_.lease);
    context_.lending.undo(outgoing_.lease, std::move(outgoing_.memory));
  }
  // With a copy of it elsewhere, closing ours would not end it.
  if (context_.lending.keeps(id_) && !context_.lending.leaving()) {
    ::shutdown(socket_.get(), SHUT_RDWR);
  }
  socket_.reset();
  release_leases();
  context_.lending.connection_ended(id_);
}

void Session::release_leases() {
  for (const std::uint64_t lease : std::exchange(leases_, {}))
    context_.lending.release(lease);
}

Result<void> Session::start() {
  return context_.poll_set.watch(id_, socket_.get(), EPOLLIN, *this);
}

Result<void> Session::adopt(const std::vector<LedgerRecord>& leases) {
  for (const LedgerRecord& lease : leases) {
    context_.lending.adopt(lease, peer_);
    leases_.push_back(lease.lease);
  }
  context_.idle.remove(place_);
  return start();
}

void Session::resume(const LedgerRecord& request) {
  if (!context_.lending.resume(*this, request, socket_.get(), peer_)) {
    return refuse(wire::Refusal::kNotEnough);
  }
  if (!wait_for_grant()) context_.poll_set.remove(id_, socket_.get());
}

void Session::on_ready(std::uint32_t events) {
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
    // With a grant on its way this must live on until that has come; what was lent is free now.
    return state_ == State::kGranting ? release_leases() : end();
  }
  if (state_ == State::kReading) return read_request();
  if (state_ == State::kSending && (events & EPOLLOUT) != 0) {
    send(std::exchange(outgoing_, Outgoing{}));
  }
}

void Session::read_request() {
  std::size_t length = 0;
  switch (wire::receive(socket_.get(), context_.datagram, length)) {
    case wire::Transfer::kDone:
      return handle({context_.datagram.data(), length});
    case wire::Transfer::kMalformed:
      return refuse(wire::Refusal::kUnknownKey);
    case wire::Transfer::kLater:
      return;
    case wire::Transfer::kEnd:
      return finish();
    default:
      return end();
  }
}

void Session::handle(std::string_view datagram) {
  const auto request = wire::parse_request(datagram);
  if (!request || !context_.keys.admits(request->key, key_)) {
    return refuse(wire::Refusal::kUnknownKey);
  }
  context_.idle.touch(place_);
  switch (request->op) {
    case wire::Op::kInfo:
      ++context_.counters.infos;
      return send({.bytes = wire::encode_info(info())});
    case wire::Op::kAlloc:
      return handle_alloc(*request);
    case wire::Op::kUnknown:
      return refuse(wire::Refusal::kUnknownOp);
  }
}

void Session::handle_alloc(const wire::Request& request) {
  if (!request.size || *request.size == Bytes(0) || *request.size > info().size) {
    context_.lending.refused(id_, peer_, request.size.value_or(Bytes(0)), "bad size");
    return refuse(wire::Refusal::kBadSize);
  }
  if (!context_.lending.begin(*this, id_, socket_.get(), peer_, *request.size)) {
    return refuse(wire::Refusal::kNotEnough);
  }
  context_.idle.remove(place_);
  if (!wait_for_grant()) context_.poll_set.remove(id_, socket_.get());
}

// Not for requests; and of a hang-up only to be told once.
Result<void> Session::wait_for_grant() {
  state_ = State::kGranting;
  return context_.poll_set.watch(id_, socket_.get(), EPOLLONESHOT, *this);
}

void Session::on_granted(const Lease& lease, UniqueFd memory) {
  leases_.push_back(lease.id);
  state_ = State::kSending;
  send({.bytes = wire::encode_grant({.base = info().base, .size = lease.size}),
        .memory = std::move(memory),
        .lease = lease.id,
        .size = lease.size});
}

void Session::on_failed() {
  state_ = State::kSending;
  refuse(wire::Refusal::kNotEnough);
}

void Session::refuse(wire::Refusal refusal) {
  count(context_.counters, refusal);
  context_.journal.log_of_peer(
      Level::kInfo, Event::kRefused,
      cat("refused pid ", peer_.pid, " of uid ", peer_.uid, ": ", name_of(refusal)),
      {.uid = peer_.uid, .pid = peer_.pid});
  send({.bytes = wire::encode_refusal(refusal, info()), .last = true});
}

void Session::send(Outgoing reply) {
  // The last step before the reply leaves, so that a daemon that dies leaves little to guess.
  if (const auto recorded = context_.lending.record_grant(reply.lease); !recorded) {
    return cannot_send(reply, recorded.error().describe());
  }
  switch (send_now(reply)) {
    case wire::Transfer::kDone:
      return sent(reply);
    case wire::Transfer::kLater: {
      context_.lending.held_up(reply.lease);
      outgoing_ = std::move(reply);
      if (ticket_ % 2 == 0) context_.stalls.set(id_, ++ticket_);
      state_ = State::kSending;
      const bool watched = context_.poll_set.watch(id_, socket_.get(), EPOLLOUT, *this).has_value();
      return watched ? void() : end();
    }
    case wire::Transfer::kTooMany:
      return cannot_send(
          reply,
          "the kernel holds as many descriptors in flight as it allows this user (RLIMIT_NOFILE): "
          "borrowers are not reading their replies");
    default:
      // The reply goes the way of the session: ~Session undoes the lease.
      outgoing_ = std::move(reply);
      return end();
  }
}

wire::Transfer Session::send_now(const Outgoing& reply) {
  const bool grant = reply.lease != 0;
  if (grant && fails_at("send", "before", reply.size)) return wire::Transfer::kBroken;
  const auto sent = wire::send(socket_.get(), reply.bytes, grant ? reply.memory.get() : -1);
  if (grant && fails_at("send", "after", reply.size)) return wire::Transfer::kBroken;
  return sent;
}

void Session::sent(Outgoing& reply) {
  if (ticket_ % 2 != 0) ++ticket_;
  if (reply.lease != 0) context_.lending.answered(reply.lease, std::move(reply.memory));
  if (reply.last) return finish();
  if (state_ != State::kReading) resume_reading();
}

void Session::cannot_send(Outgoing& reply, std::string_view reason) {
  std::erase(leases_, reply.lease);
  context_.lending.undeliverable(reply.lease, std::move(reply.memory), reason);
  refuse(wire::Refusal::kNotEnough);
}

void Session::resume_reading() {
  state_ = State::kReading;
  if (!context_.poll_set.watch(id_, socket_.get(), EPOLLIN, *this)) end();
}

void Session::finish() {
  // Closing with requests unread would turn the reply that is on its way into ECONNRESET.
  ::shutdown(socket_.get(), SHUT_RDWR);
  std::size_t length = 0;
  for (;;) {
    const auto left = wire::receive(socket_.get(), context_.datagram, length);
    if (left == wire::Transfer::kDone || left == wire::Transfer::kMalformed) continue;
    // An empty datagram looks like the end; behind one there may be more.
    int waiting = 0;
    if (left != wire::Transfer::kEnd || ::ioctl(socket_.get(), FIONREAD, &waiting) != 0 ||
        waiting == 0) {
      break;
    }
  }
  end();
}

void Session::on_stalled(std::uint64_t ticket) {
  if (ticket_ != ticket) return;
  ++context_.counters.stalled;
  context_.journal.log_of_peer(
      Level::kInfo, Event::kRefused,
      cat("closed pid ", peer_.pid, " of uid ", peer_.uid, ": it does not read its replies"),
      {.uid = peer_.uid, .pid = peer_.pid});
  end();
}

wire::Info Session::info() const {
  const Figures now = context_.lending.figures_for(peer_.uid, id_);
  return {.base = now.base, .size = now.size, .free = now.free, .largest = now.largest};
}

}  // namespace carveout::daemon
