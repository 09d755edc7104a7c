#pragma once

#include <functional>
#include <utility>

#include "worker.hpp"

namespace carveout::daemon {

// A task of the worker made of two functions.
class Call final : public Worker::Task {
 public:
  explicit Call(std::function<void()> work, std::function<void()> done = {})
      : work_(std::move(work)), done_(std::move(done)) {}
  void work() override {
    if (work_) work_();
  }
  void done() override {
    if (done_) done_();
  }

 private:
  std::function<void()> work_, done_;
};

}  // namespace carveout::daemon
