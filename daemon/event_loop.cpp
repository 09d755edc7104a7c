#include "event_loop.hpp"

#include <sys/epoll.h>

#include <cerrno>
#include <ctime>
#include <utility>

namespace carveout::daemon {

struct EventLoop::Source::State {
  sd_event_source* source = nullptr;
  std::function<void()> call;
};

void EventLoop::Source::Deleter::operator()(State* state) const {
  sd_event_source_disable_unref(state->source);
  delete state;
}

EventLoop::Source::Source(std::unique_ptr<State> state) : state_(state.release()) {}

namespace {

// Every kind of callback ends here; `userdata` is the source's own std::function.
int dispatch(void* userdata) {
  (*static_cast<std::function<void()>*>(userdata))();
  return 0;
}
int dispatch_io(sd_event_source*, int, std::uint32_t, void* userdata) {
  return dispatch(userdata);
}
int dispatch_signal(sd_event_source*, const signalfd_siginfo*, void* userdata) {
  return dispatch(userdata);
}
int dispatch_time(sd_event_source*, std::uint64_t, void* userdata) {
  // A timer's callback may replace its own source, and with it the function that is running.
  const auto call = *static_cast<std::function<void()>*>(userdata);
  call();
  return 0;
}

Error loop_error(int negative, const char* message) {
  return system_error(-negative, "event loop", message);
}

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  sd_event* event = nullptr;
  if (const int made = sd_event_new(&event); made < 0) return loop_error(made, "cannot be made");
  std::unique_ptr<EventLoop> loop(new EventLoop(event));
  // sd-event opens its timer with the first timer source: one that never comes due has it open
  // before descriptors can run out.
  const int added =
      sd_event_add_time(event, nullptr, CLOCK_MONOTONIC, UINT64_MAX, 0, nullptr, nullptr);
  if (added < 0) return loop_error(added, "cannot have a timer");
  return loop;
}

EventLoop::~EventLoop() {
  sd_event_unref(event_);
}

Result<EventLoop::Source> EventLoop::on_readable(int descriptor, std::function<void()> call) {
  auto state = std::make_unique<Source::State>();
  state->call = std::move(call);
  const int added =
      sd_event_add_io(event_, &state->source, descriptor, EPOLLIN, dispatch_io, &state->call);
  if (added < 0) return loop_error(added, "cannot watch a descriptor");
  changed_ = true;
  return Source(std::move(state));
}

Result<EventLoop::Source> EventLoop::on_signal(int signal, std::function<void()> call) {
  auto state = std::make_unique<Source::State>();
  state->call = std::move(call);
  const int added =
      sd_event_add_signal(event_, &state->source, signal, dispatch_signal, &state->call);
  if (added < 0) return loop_error(added, "cannot wait for a signal");
  changed_ = true;
  return Source(std::move(state));
}

Result<EventLoop::Source> EventLoop::after(std::chrono::microseconds delay,
                                           std::function<void()> call) {
  auto state = std::make_unique<Source::State>();
  state->call = std::move(call);
  const int added = sd_event_add_time_relative(
      event_, &state->source, CLOCK_MONOTONIC, static_cast<std::uint64_t>(delay.count()),
      10'000 /* µs of slack, so that wake-ups can be joined */, dispatch_time, &state->call);
  if (added < 0) return loop_error(added, "cannot set a timer");
  changed_ = true;
  return Source(std::move(state));
}

Result<void> EventLoop::feed_watchdog() {
  if (const int set = sd_event_set_watchdog(event_, 1); set < 0) {
    return loop_error(set, "cannot serve the service manager's watchdog");
  }
  return {};
}

Result<void> EventLoop::run(PollSet& sockets) {
  const int own = sd_event_get_fd(event_);
  if (own < 0) return loop_error(own, "has no descriptor");
  if (auto watched = sockets.watch_guest(own); !watched) return watched;
  // As sd_event_run(3) does it, but waiting on the sockets meanwhile: a request costs one
  // epoll_wait, and sd-event only turns when something of its own has happened.
  while (sd_event_get_state(event_) != SD_EVENT_FINISHED) {
    changed_ = false;
    int pending = sd_event_prepare(event_);
    if (pending == 0) {
      while (!changed_ && !sockets.serve()) {
      }
      pending = sd_event_wait(event_, 0);
    }
    if (pending > 0) pending = sd_event_dispatch(event_);
    if (pending < 0 && pending != -EINTR) return loop_error(pending, "failed");
  }
  return {};
}

void EventLoop::stop() {
  changed_ = true;
  sd_event_exit(event_, 0);
}

}  // namespace carveout::daemon
