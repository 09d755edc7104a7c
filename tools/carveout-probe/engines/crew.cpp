#include "engines/crew.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "host.hpp"

namespace carveout::probe {
namespace {

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

// What the kernel holds of a processor: Arm's kernels tell what it does against the others, the
// rest how often it ticks at most. 0: not known.
std::uint64_t speed_of(int processor, const std::string& root) {
  for (const char* name : {"cpu_capacity", "cpufreq/cpuinfo_max_freq"}) {
    const auto text = read_text(cat(root, "/cpu", processor, "/", name), 64);
    std::uint64_t speed = 0;
    if (text && std::from_chars(text->data(), text->data() + text->size(), speed).ec == std::errc())
      return speed;
  }
  return 0;
}

}  // namespace

std::vector<int> fastest_first(std::vector<int> processors, const std::string& root) {
  std::map<int, std::uint64_t> speeds;
  for (const int processor : processors)
    speeds[processor] = speed_of(processor, root);
  std::stable_sort(processors.begin(), processors.end(),
                   [&speeds](int a, int b) { return speeds[a] > speeds[b]; });
  return processors;
}

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
  const auto processors = fastest_first(allowed_processors(), kProcessors);
  if (threads == 0 || threads > processors.size()) {
    return Error{Code::kInvalid, 0, cat(threads, " threads"),
                 cat("this process may run on ", processors.size(), " processors: say 1 to ",
                     processors.size())};
  }
  Crew crew;
  crew.processor_ = processors.front();
  crew.before_ = processors;
  crew.shared_ = std::make_unique<Shared>(threads);
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
    shared.do_part(number);
  }
}

void Crew::Shared::do_part(std::size_t number) {
  began[number] = Clock::now();
  (*part)(number);
  ended_at[number] = Clock::now();
  ++done;
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
  shared_->do_part(0);
  while (shared_->done.load() < size())
    std::this_thread::yield();
  // Not by this thread's clock alone: it may be the last to begin, when others are far already.
  const auto begun = *std::min_element(shared_->began.begin(), shared_->began.end());
  const auto ended = *std::max_element(shared_->ended_at.begin(), shared_->ended_at.end());
  return std::chrono::duration<double>(ended - begun).count();
}

}  // namespace carveout::probe
