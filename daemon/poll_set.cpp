#include "poll_set.hpp"

#include <cerrno>

namespace carveout::daemon {
namespace {

constexpr std::uint64_t kGuest = 0;
constexpr std::uint32_t kHangUp = EPOLLHUP | EPOLLERR;

Result<void> control(int epoll, int operation, std::uint64_t id, int descriptor,
                     std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll, operation, descriptor, &event) == 0) return {};
  return system_error(errno, "epoll", "a socket cannot be watched");
}

}  // namespace

Result<PollSet> PollSet::create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error(errno, "epoll", "cannot be made");
  return PollSet(std::move(epoll));
}

bool PollSet::serve() {
  // Room for all of them: a hang-up that was left out would be served after a request.
  ready_.resize(members_.size() + 1);
  const int count = ::epoll_wait(epoll_.get(), ready_.data(), static_cast<int>(ready_.size()), -1);
  if (count <= 0) return false;
  const auto end = ready_.begin() + count;
  bool guest = false;
  for (auto event = ready_.begin(); event != end; ++event) {
    if (event->data.u64 == kGuest) {
      guest = true;
    } else if ((event->events & kHangUp) != 0) {
      call(*event);
    }
  }
  for (auto event = ready_.begin(); event != end; ++event) {
    if ((event->events & kHangUp) == 0 && event->data.u64 != kGuest) call(*event);
  }
  return guest;
}

Result<void> PollSet::watch_guest(int descriptor) {
  return control(epoll_.get(), EPOLL_CTL_ADD, kGuest, descriptor, EPOLLIN);
}

void PollSet::call(const epoll_event& event) {
  // By id: an earlier call may have ended this member. A copy: epoll_event is packed, and what
  // members_ would refer to need not be aligned.
  const std::uint64_t id = event.data.u64;
  const auto member = members_.find(id);
  if (member != members_.end()) member->second->on_ready(event.events);
}

Result<void> PollSet::watch(std::uint64_t id, int descriptor, std::uint32_t events,
                            Member& member) {
  const auto [place, added] = members_.try_emplace(id, &member);
  auto watched =
      control(epoll_.get(), added ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, id, descriptor, events);
  if (!watched && added) members_.erase(place);
  return watched;
}

void PollSet::remove(std::uint64_t id, int descriptor) {
  if (members_.erase(id) == 0) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
}

}  // namespace carveout::daemon
