#pragma once

// Threads that stay each on a processor of its own and do one thing together, timed.

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/result.hpp"

namespace carveout::probe {

// The processors that this process may run on.
[[nodiscard]] std::vector<int> allowed_processors();

// Thread rule: used by the thread that has made it, which is the first of the crew and stays
// pinned.
class Crew {
 public:
  // Errors: kInvalid for none, or more than there are processors to run on; kSystem.
  static Result<Crew> gather(std::size_t threads);

  Crew(Crew&&) noexcept = default;
  Crew& operator=(Crew&&) = delete;
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew();

  [[nodiscard]] std::size_t size() const { return workers_.size() + 1; }
  // The first thread's.
  [[nodiscard]] int processor() const { return processor_; }

  // Has every thread call `part` with its number, and returns the seconds from when all were ready
  // to begin until the last had ended. `part` does not throw.
  double run(const std::function<void(std::size_t number)>& part);

 private:
  struct Shared {
    const std::function<void(std::size_t)>* part = nullptr;
    std::atomic<unsigned> round{0};
    std::atomic<std::size_t> ready{0}, done{0};
    bool ended = false;
  };

  Crew() = default;
  static void work(Shared& shared, std::size_t number, std::size_t all);

  int processor_ = 0;
  std::vector<int> before_;  // where the first thread might run
  std::unique_ptr<Shared> shared_;
  std::vector<std::thread> workers_;
};

}  // namespace carveout::probe
