#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace carveout::daemon {

// The sockets of the daemon in an epoll set, with the event loop's descriptor as a guest. Of what
// is ready at once, hang-ups are dispatched before anything else, so that a request sees every
// release that came before it (docs/decisions/0002-own-poll-set.md).
class PollSet {
 public:
  class Member {
   public:
    Member() = default;
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    Member(Member&&) = delete;
    Member& operator=(Member&&) = delete;
    virtual ~Member() = default;
    // `events` as epoll has them. May remove and destroy any member, this one included.
    virtual void on_ready(std::uint32_t events) = 0;
  };

  static Result<PollSet> create();

  // Waits until a member or the guest is ready, and calls the members that are. True if the guest
  // is ready.
  bool serve();

  // A descriptor that is waited for like the members', but served by the caller.
  Result<void> watch_guest(int descriptor);

  // Watches `descriptor`, level-triggered, for `events` (and for hang-ups, always) until remove(),
  // or changes the events of one that is watched. `id` (not 0) names the member and is never used
  // again for another.
  Result<void> watch(std::uint64_t id, int descriptor, std::uint32_t events, Member& member);
  // Nothing happens if it is not watched.
  void remove(std::uint64_t id, int descriptor);

 private:
  explicit PollSet(UniqueFd epoll) : epoll_(std::move(epoll)) {}
  void call(const epoll_event& event);

  UniqueFd epoll_;
  std::unordered_map<std::uint64_t, Member*> members_;
  std::vector<epoll_event> ready_;
};

}  // namespace carveout::daemon
