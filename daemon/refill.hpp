#pragma once

#include <chrono>
#include <optional>

#include "base/bytes.hpp"
#include "event_loop.hpp"
#include "hold.hpp"
#include "reservation.hpp"
#include "worker.hpp"

namespace carveout::daemon {

// Keeps a hold full: has the worker take back what comes back, try again what is missing, and make
// one of what is held in pieces; and tells the accounts what there is. The loop's own.
class Refill {
 public:
  // All must outlive this.
  Refill(EventLoop& loop, Worker& worker, Reservation& reservation, Hold& hold);

  // The hold is the worker's own: nobody else's while that has a task.
  [[nodiscard]] Hold& hold() { return hold_; }

  // So much of what the hold counts as lent is not; of nothing, what is missing is tried again.
  void take(Bytes come_back);
  // What the hold has, as a task of the worker's found it last.
  void apply(const HoldFigures& figures);

 private:
  class Task;
  void submit();
  void join_soon();

  EventLoop& loop_;
  Worker& worker_;
  Reservation& reservation_;
  Hold& hold_;
  bool under_way_ = false;          // a task is
  Bytes untold_;                    // come back, and the hold does not know it yet
  std::optional<Bytes> come_back_;  // ... since the task went
  bool join_wanted_ = false;
  bool join_due_ = false;  // its timer runs
  std::chrono::milliseconds join_after_;
  EventLoop::Source again_;
  EventLoop::Source join_;
};

}  // namespace carveout::daemon
