#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"
#include "counters.hpp"
#include "deadline_queue.hpp"
#include "idle_order.hpp"
#include "journal.hpp"
#include "key_ring.hpp"
#include "lending.hpp"
#include "peer.hpp"
#include "poll_set.hpp"
#include "wire/channel.hpp"
#include "wire/codec.hpp"

namespace carveout::daemon {

// What all sessions share; outlives them.
struct SessionContext {
  PollSet& poll_set;
  Lending& lending;
  const KeyRing& keys;
  Journal& journal;
  Counters& counters;
  DeadlineQueue& stalls;
  IdleOrder& idle;
  std::function<void(std::uint64_t id)> ended;      // destroys the session
  std::array<char, wire::kMaxDatagram> datagram{};  // one request at a time is looked at
};

// One connection on a lending socket: at most one request in hand, its replies in order.
//
//   reading --alloc--> granting --granted or failed--> reading, sending or ended
//   reading --reply not taken at once--> sending --taken--> reading
//   any --refusal sent, peer gone--> ended
//
// While granting, the socket is watched for a hang-up only, and once: a level-triggered one would
// spin. It gives back what the peer already had; the grant under way ends when it cannot be sent.
class Session final : public PollSet::Member, public Lending::Borrower {
 public:
  Session(SessionContext& context, std::uint64_t id, UniqueFd socket, const Peer& peer)
      : context_(context),
        id_(id),
        socket_(std::move(socket)),
        peer_(peer),
        place_(context.idle.add(id)) {}
  ~Session() override;

  // Begins to watch the socket.
  Result<void> start();
  // The same for a connection of an earlier start, whose leases go on.
  Result<void> adopt(const std::vector<LedgerRecord>& leases);
  // Serves what an earlier start had read. May end the session.
  void resume(const LedgerRecord& request);

  [[nodiscard]] const Peer& peer() const { return peer_; }
  [[nodiscard]] bool has_lease() const { return !leases_.empty(); }

  void on_ready(std::uint32_t events) override;
  void on_granted(const Lease& lease, UniqueFd memory) override;
  void on_failed() override;

  // Ends the session if it is still trying to send the reply that `ticket` stands for.
  void on_stalled(std::uint64_t ticket);

 private:
  enum class State { kReading, kGranting, kSending };
  // A reply on its way out, and what has to happen once it is out.
  struct Outgoing {
    std::string bytes = {};
    UniqueFd memory = {};
    std::uint64_t lease = 0;
    Bytes size = {};  // of the lease
    bool last = false;
  };

  void read_request();
  void handle(std::string_view datagram);
  void handle_alloc(const wire::Request& request);
  void refuse(wire::Refusal refusal);
  void send(Outgoing reply);
  [[nodiscard]] wire::Transfer send_now(const Outgoing& reply);
  void sent(Outgoing& reply);
  void cannot_send(Outgoing& reply, std::string_view reason);
  [[nodiscard]] Result<void> wait_for_grant();
  void resume_reading();
  void release_leases();
  void finish();
  void end() { context_.ended(id_); }  // destroys *this
  [[nodiscard]] wire::Info info() const;

  SessionContext& context_;
  const std::uint64_t id_;
  UniqueFd socket_;
  const Peer peer_;
  State state_ = State::kReading;
  KeyRing::Held key_;
  IdleOrder::Place place_;
  Outgoing outgoing_;
  std::uint64_t ticket_ = 0;
  std::vector<std::uint64_t> leases_;
};

}  // namespace carveout::daemon
