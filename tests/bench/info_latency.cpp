// What `info` costs one client while the whole reservation is prepared for another, and while it
// goes back to the kernel: p99 inside those windows against the same client's p99 at rest.
// Usage: bench_info_latency CARVEOUTD [RUNS]

#include <sys/utsname.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/daemon_process.hpp"

namespace carveout::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kWhole = 1023 * kSlice;
constexpr std::size_t kSamples = 20'000;  // at least, for each window of each run

// What the other client is doing at the moment.
enum class Window { kRest, kPrepared, kReleased, kAbandoned, kNone };
constexpr Window kWindows[] = {Window::kRest, Window::kPrepared, Window::kReleased,
                               Window::kAbandoned};

const char* name_of(Window window) {
  switch (window) {
    case Window::kRest:
      return "at rest";
    case Window::kPrepared:
      return "being prepared";
    case Window::kReleased:
      return "being released by the borrower";
    case Window::kAbandoned:
      return "prepared for a peer that left, and released by the daemon";
    case Window::kNone:
      break;
  }
  return "";
}

// Asks for `info` without pause and keeps how long each answer took, by window. A sample counts
// for a window when it began in it, so one that outlasts the window counts in full.
class Sampler {
 public:
  explicit Sampler(const DaemonProcess& daemon) : peer_(daemon.connect()) {
    thread_ = std::thread([this] { run(); });
  }
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  Sampler(Sampler&&) = delete;
  Sampler& operator=(Sampler&&) = delete;
  ~Sampler() { finish(); }

  void enter(Window window) { window_.store(window, std::memory_order_release); }
  [[nodiscard]] std::size_t count(Window window) const {
    return counts_[static_cast<std::size_t>(window)].load(std::memory_order_relaxed);
  }
  void finish() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Microseconds; sorts in place. After finish().
  double percentile(Window window, double part) {
    auto& took = samples_[window];
    const auto at = static_cast<std::size_t>(part * static_cast<double>(took.size() - 1));
    std::nth_element(took.begin(), took.begin() + static_cast<std::ptrdiff_t>(at), took.end());
    return static_cast<double>(took[at]) / 1000.0;
  }

 private:
  void run() {
    for (const Window window : kWindows)
      samples_[window].reserve(4'000'000);
    const std::string request = peer_.info_request();
    while (!stop_.load(std::memory_order_relaxed)) {
      const Window window = window_.load(std::memory_order_acquire);
      const auto before = Clock::now();
      const Reply reply = peer_.ask(request);
      const auto took = Clock::now() - before;
      if (reply.bytes.find("\"largest\"") == std::string::npos) std::abort();
      if (window == Window::kNone) continue;
      samples_[window].push_back(took.count());
      counts_[static_cast<std::size_t>(window)].fetch_add(1, std::memory_order_relaxed);
    }
  }

  Peer peer_;
  std::atomic<Window> window_{Window::kNone};
  std::atomic<bool> stop_{false};
  std::atomic<std::size_t> counts_[5] = {};
  std::map<Window, std::vector<Clock::rep>> samples_;
  std::thread thread_;
};

void rest(Sampler& sampler) {
  sampler.enter(Window::kRest);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  sampler.enter(Window::kNone);
}

void prepare_and_release(const DaemonProcess& daemon, Sampler& sampler) {
  Peer borrower = daemon.connect();
  sampler.enter(Window::kPrepared);
  UniqueFd memory = borrower.alloc(kWhole);
  sampler.enter(Window::kNone);
  // The daemon closes its own descriptor; then the borrower's is the last.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  sampler.enter(Window::kReleased);
  borrower.close();
  memory.reset();
  sampler.enter(Window::kNone);
}

void prepare_for_nobody(const DaemonProcess& daemon, Sampler& sampler) {
  const Peer onlooker = daemon.connect();
  Peer leaver = daemon.connect();
  sampler.enter(Window::kAbandoned);
  leaver.send(leaver.alloc_request(kWhole));
  // Only once it is begun: the request of a peer that is already gone is not served.
  const auto free_is_whole = [&onlooker] { return onlooker.info().free == kWhole; };
  if (!eventually([&] { return !free_is_whole(); })) throw std::runtime_error("never begun");
  leaver.close();
  if (!eventually(free_is_whole)) throw std::runtime_error("never given back");
  sampler.enter(Window::kNone);
}

std::map<Window, double> run_once(const char* carveoutd) {
  const DaemonProcess daemon(carveoutd);
  Sampler sampler(daemon);
  const auto wants = [&](Window window) { return sampler.count(window) < kSamples; };
  // Interleaved, so that what drifts is shared by all.
  while (std::any_of(std::begin(kWindows), std::end(kWindows), wants)) {
    rest(sampler);
    prepare_and_release(daemon, sampler);
    prepare_for_nobody(daemon, sampler);
  }
  sampler.finish();
  std::map<Window, double> p99;
  for (const Window window : kWindows) {
    p99[window] = sampler.percentile(window, 0.99);
    std::printf("  %-58s %8zu samples  p50 %6.1f us  p99 %7.1f us\n", name_of(window),
                sampler.count(window), sampler.percentile(window, 0.5), p99[window]);
  }
  return p99;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace
}  // namespace carveout::test

int main(int argc, char** argv) {
  using namespace carveout::test;  // NOLINT(google-build-using-namespace): this file's own
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_info_latency CARVEOUTD [RUNS]\n");
    return 2;
  }
  try {
    const int runs = argc > 2 ? std::max(1, std::atoi(argv[2])) : 5;
    std::map<Window, std::vector<double>> ratios;
    for (int i = 1; i <= runs; ++i) {
      std::printf("run %d: info of one client, while 2046 MiB are\n", i);
      auto p99 = run_once(argv[1]);
      for (const Window window : kWindows) {
        ratios[window].push_back(p99[window] / p99[Window::kRest]);
      }
    }
    std::printf("p99 against p99 at rest, median of %d runs (smallest to largest)\n", runs);
    for (const Window window : {Window::kPrepared, Window::kReleased, Window::kAbandoned}) {
      const auto [least, most] = std::minmax_element(ratios[window].begin(), ratios[window].end());
      std::printf("  %-58s %5.2f (%.2f to %.2f)\n", name_of(window), median(ratios[window]), *least,
                  *most);
    }
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "bench_info_latency: %s\n", problem.what());
    return 1;
  }
}
