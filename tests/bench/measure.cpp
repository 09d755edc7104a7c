#include "bench/measure.hpp"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <stdexcept>

#include "support/daemon_process.hpp"

namespace carveout::test {

double cpu_seconds(pid_t pid) {
  clockid_t clock{};
  timespec now{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &now) != 0) {
    throw std::runtime_error("no processor clock for the server");
  }
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Batch run_batch(const Load& load, const std::string& socket, pid_t server, int count) {
  const double cpu = cpu_seconds(server);
  const auto before = Clock::now();
  load(socket, count);
  const double took = std::chrono::duration<double>(Clock::now() - before).count();
  return {count / took, (cpu_seconds(server) - cpu) / count * 1e6};
}

void connect_and_alloc(const std::string& socket, int count) {
  for (int i = 0; i < count; ++i) {
    const Peer peer(socket);
    (void)peer.alloc(kSlice);
  }
}

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  const double median =
      values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

void print(const char* row, const char* unit, const Spread& spread) {
  std::printf("  %-34s %-22s %9.2f  (%.2f to %.2f)\n", row, unit, spread.median, spread.least,
              spread.most);
}

void must(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}

void stay_on(pid_t pid, std::size_t core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    ::sched_setaffinity(std::stoi(task.path().filename()), sizeof set, &set);
  }
}

void raise_descriptor_limit() {
  constexpr rlim_t kEnough = 65'536;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlimit more{kEnough, std::max(limit.rlim_max, kEnough)};
  if (::setrlimit(RLIMIT_NOFILE, &more) == 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace carveout::test
