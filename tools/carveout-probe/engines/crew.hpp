#pragma once

// Threads that stay each on a processor of its own and do one thing together, timed.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.hpp"

namespace carveout::probe {

// The processors that this process may run on.
[[nodiscard]] std::vector<int> allowed_processors();

// The same ones, those first that do most, as far as the kernel tells: a GB10 counts slower and
// faster ones by turns, and begins with slower ones. `root`: /sys/devices/system/cpu.
[[nodiscard]] std::vector<int> fastest_first(std::vector<int> processors, const std::string& root);

// Thread rule: used by the thread that has made it, which is the first of the crew and stays
// pinned.
class Crew {
 public:
  // On the fastest processors. Errors: kInvalid for none, or more than there are processors to run
  // on; kSystem.
  static Result<Crew> gather(std::size_t threads);

  Crew(Crew&&) noexcept = default;
  Crew& operator=(Crew&&) = delete;
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew();

  [[nodiscard]] std::size_t size() const { return workers_.size() + 1; }
  // The first thread's.
  [[nodiscard]] int processor() const { return processor_; }

  // Has every thread call `part` with its number once all are ready, and returns the seconds from
  // when the first began until the last had ended. `part` does not throw.
  double run(const std::function<void(std::size_t number)>& part);

 private:
  using Clock = std::chrono::steady_clock;
  struct Shared {
    explicit Shared(std::size_t threads) : began(threads), ended_at(threads) {}
    const std::function<void(std::size_t)>* part = nullptr;
    std::atomic<unsigned> round{0};
    std::atomic<std::size_t> ready{0}, done{0};
    bool ended = false;
    std::vector<Clock::time_point> began, ended_at;  // by each thread
    void do_part(std::size_t number);
  };

  Crew() = default;
  static void work(Shared& shared, std::size_t number, std::size_t all);

  int processor_ = 0;
  std::vector<int> before_;  // where the first thread might run
  std::unique_ptr<Shared> shared_;
  std::vector<std::thread> workers_;
};

}  // namespace carveout::probe
