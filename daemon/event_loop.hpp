#pragma once

#include <systemd/sd-event.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.hpp"

namespace carveout::daemon {

// The loop's share of the process: signals, timers, the worker's event and the poll set are
// sources of one sd-event loop. What it calls must not throw.
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

  // Until stop(). The error is the loop's own, not a callback's.
  Result<void> run();
  void stop();

 private:
  explicit EventLoop(sd_event* event) : event_(event) {}
  sd_event* event_;
};

}  // namespace carveout::daemon
