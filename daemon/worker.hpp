#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace carveout::daemon {

// One thread for everything that may take long: finding, zeroing and giving back memory. Tasks are
// done in the order in which they were submitted, and what was handed over for closing goes before
// them all: it is memory, or at least a descriptor, that a task may want.
class Worker {
 public:
  class Task {
   public:
    Task() = default;
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    Task(Task&&) = delete;
    Task& operator=(Task&&) = delete;
    virtual ~Task() = default;
    virtual void work() = 0;  // on the worker
    virtual void done() = 0;  // on the loop, afterwards
  };

  // The signals that the loop waits for must be blocked already: the thread inherits the mask.
  static Result<std::unique_ptr<Worker>> start();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  Worker(Worker&&) = delete;
  Worker& operator=(Worker&&) = delete;
  ~Worker() { stop(); }

  // Finishes the task at hand; the others, and what is submitted from now on, are dropped with the
  // worker (their done() is not called).
  void stop();

  void submit(std::unique_ptr<Task> task);

  // Closes `descriptor`: the last reference to memory takes long to drop.
  void dispose(UniqueFd descriptor);

  // Readable when tasks are done; the loop then calls run_done().
  [[nodiscard]] int done_descriptor() const { return done_event_.get(); }
  void run_done();

 private:
  explicit Worker(UniqueFd done_event) : done_event_(std::move(done_event)) {}
  void run();

  UniqueFd done_event_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<UniqueFd> disposals_;
  std::deque<std::unique_ptr<Task>> tasks_;
  std::deque<std::unique_ptr<Task>> done_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace carveout::daemon
