#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/unique_fd.hpp"
#include "deadline_queue.hpp"
#include "event_loop.hpp"
#include "peer.hpp"
#include "poll_set.hpp"

namespace carveout::daemon {

// The operator's socket: a stream, one request line of JSON ({"op": "status"}) a connection, one
// line of JSON in answer, then the end (docs/protocol.md, "The control socket").
class Control {
 public:
  // The reply to a request's op; empty when there is no such op.
  using Answer = std::function<std::string(std::string_view op)>;

  // `poll_set` and `loop` must outlive this.
  Control(EventLoop& loop, PollSet& poll_set, Answer answer);
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  Control(Control&&) = delete;
  Control& operator=(Control&&) = delete;
  ~Control();

  // Takes over an accepted connection, watched under `id`.
  void accept(std::uint64_t id, UniqueFd socket, const Peer& peer);

 private:
  class Connection;

  PollSet& poll_set_;
  Answer answer_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  DeadlineQueue deadlines_;
};

}  // namespace carveout::daemon
