#include "crew.hpp"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <memory>
#include <system_error>

#include "base/text.hpp"

namespace carveout::probe {
namespace {

using Clock = std::chrono::steady_clock;

// A set that is large enough for whatever the kernel was built for.
constexpr std::size_t kMostProcessors = 8192;

class ProcessorSet {
 public:
  ProcessorSet() : set_(CPU_ALLOC(kMostProcessors)) { CPU_ZERO_S(size(), set_); }
  ProcessorSet(const ProcessorSet&) = delete;
  ProcessorSet& operator=(const ProcessorSet&) = delete;
  ProcessorSet(ProcessorSet&&) = delete;
  ProcessorSet& operator=(ProcessorSet&&) = delete;
  ~ProcessorSet() { CPU_FREE(set_); }

  [[nodiscard]] static std::size_t size() { return CPU_ALLOC_SIZE(kMostProcessors); }
  [[nodiscard]] cpu_set_t* get() const { return set_; }

 private:
  cpu_set_t* set_;
};

int pin(pthread_t thread, const std::vector<int>& processors) {
  const ProcessorSet set;
  for (const int processor : processors)
    CPU_SET_S(static_cast<std::size_t>(processor), ProcessorSet::size(), set.get());
  return ::pthread_setaffinity_np(thread, ProcessorSet::size(), set.get());
}

}  // namespace

std::vector<int> allowed_processors() {
  const ProcessorSet set;
  std::vector<int> all;
  if (::sched_getaffinity(0, ProcessorSet::size(), set.get()) != 0) return all;
  for (std::size_t i = 0; i < kMostProcessors; ++i) {
    if (CPU_ISSET_S(i, ProcessorSet::size(), set.get())) all.push_back(static_cast<int>(i));
  }
  return all;
}

Result<Crew> Crew::gather(std::size_t threads) {
  const auto processors = allowed_processors();
  if (threads == 0 || threads > processors.size()) {
    return Error{Code::kInvalid, 0, cat(threads, " threads"),
                 cat("this process may run on ", processors.size(), " processors: say 1 to ",
                     processors.size())};
  }
  Crew crew;
  crew.processor_ = processors.front();
  crew.before_ = processors;
  crew.shared_ = std::make_unique<Shared>();
  if (const int failed = pin(::pthread_self(), {processors.front()}); failed != 0) {
    return system_error(failed, cat("processor ", processors.front()),
                        "the thread cannot be pinned to it");
  }
  for (std::size_t number = 1; number < threads; ++number) {
    try {
      crew.workers_.emplace_back(&Crew::work, std::ref(*crew.shared_), number, threads);
    } catch (const std::system_error& problem) {
      return system_error(problem.code().value(), cat("thread ", number), "cannot be started");
    }
    const int processor = processors[number];
    if (const int failed = pin(crew.workers_.back().native_handle(), {processor}); failed != 0) {
      return system_error(failed, cat("processor ", processor), "no thread can be pinned to it");
    }
  }
  return crew;
}

Crew::~Crew() {
  if (!shared_) return;
  shared_->ended = true;
  ++shared_->round;
  shared_->round.notify_all();
  for (std::thread& worker : workers_)
    worker.join();
  (void)pin(::pthread_self(), before_);
}

void Crew::work(Shared& shared, std::size_t number, std::size_t all) {
  unsigned seen = 0;
  for (;;) {
    shared.round.wait(seen);
    seen = shared.round.load();
    if (shared.ended) return;
    ++shared.ready;
    while (shared.ready.load() < all)
      std::this_thread::yield();
    (*shared.part)(number);
    ++shared.done;
  }
}

double Crew::run(const std::function<void(std::size_t)>& part) {
  shared_->part = &part;
  shared_->ready = 0;
  shared_->done = 0;
  ++shared_->round;
  shared_->round.notify_all();
  ++shared_->ready;
  while (shared_->ready.load() < size())
    std::this_thread::yield();
  const auto begun = Clock::now();
  part(0);
  ++shared_->done;
  while (shared_->done.load() < size())
    std::this_thread::yield();
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

}  // namespace carveout::probe
