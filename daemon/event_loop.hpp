#pragma once

#include <systemd/sd-event.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.hpp"
#include "poll_set.hpp"

namespace carveout::daemon {

// Signals, timers, the watchdog and the worker's event are sources of one sd-event loop, which
// turns inside the sockets' poll set. What it calls must not throw.
class EventLoop {
 public:
  // Keeps a source alive: destroying it takes the source out of the loop.
  class Source {
   public:
    Source() = default;

   private:
    friend class EventLoop;
    struct State;
    explicit Source(std::unique_ptr<State> state);
    struct Deleter {
      void operator()(State* state) const;
    };
    std::unique_ptr<State, Deleter> state_;
  };

  static Result<std::unique_ptr<EventLoop>> create();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  EventLoop(EventLoop&&) = delete;
  EventLoop& operator=(EventLoop&&) = delete;
  ~EventLoop();

  // `descriptor` stays the caller's and must outlive the source.
  Result<Source> on_readable(int descriptor, std::function<void()> call);
  // `signal` must be blocked in every thread.
  Result<Source> on_signal(int signal, std::function<void()> call);
  // Once, after `delay`.
  Result<Source> after(std::chrono::microseconds delay, std::function<void()> call);

  // Tells the service manager's watchdog that the loop turns, where it asked to be told.
  Result<void> feed_watchdog();

  // Until stop(): waits on the sockets' set, of which this loop's own descriptor is a guest.
  // The error is the loop's own, not a callback's.
  Result<void> run(PollSet& sockets);
  void stop();

 private:
  explicit EventLoop(sd_event* event) : event_(event) {}
  sd_event* event_;
  bool changed_ = false;  // since the loop was last prepared: a timer may be nearer now
};

}  // namespace carveout::daemon
