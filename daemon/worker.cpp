#include "worker.hpp"

#include <pthread.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace carveout::daemon {

Result<std::unique_ptr<Worker>> Worker::start() {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return system_error(errno, "eventfd", "cannot be made");
  std::unique_ptr<Worker> worker(new Worker(std::move(event)));
  try {
    worker->thread_ = std::thread(&Worker::run, worker.get());
  } catch (const std::system_error& problem) {
    return system_error(problem.code().value(), "worker thread", "cannot be started");
  }
  ::pthread_setname_np(worker->thread_.native_handle(), "carveoutd-mem");
  return worker;
}

void Worker::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Worker::submit(std::unique_ptr<Task> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void Worker::dispose(UniqueFd descriptor) {
  {
    const std::lock_guard lock(mutex_);
    disposals_.push_back(std::move(descriptor));
  }
  wake_.notify_one();
}

void Worker::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !tasks_.empty() || !disposals_.empty(); });
    if (stopping_) return;
    if (!disposals_.empty()) {
      std::vector<UniqueFd> closing;
      closing.swap(disposals_);
      lock.unlock();
      closing.clear();
      lock.lock();
      continue;
    }
    std::unique_ptr<Task> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task->work();
    lock.lock();
    done_.push_back(std::move(task));
    const std::uint64_t one = 1;
    // Fails only when the counter is at its maximum, and then the loop is being woken anyway.
    [[maybe_unused]] const auto written = ::write(done_event_.get(), &one, sizeof one);
  }
}

void Worker::run_done() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto read = ::read(done_event_.get(), &count, sizeof count);
  std::deque<std::unique_ptr<Task>> done;
  {
    const std::lock_guard lock(mutex_);
    done.swap(done_);
  }
  for (const auto& task : done)
    task->done();
}

}  // namespace carveout::daemon
