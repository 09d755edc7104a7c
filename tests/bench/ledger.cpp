// What the ledger and the service manager's store cost, under a real systemd
// (tests/guest/run-systemd runs this, with the units installed): grants against those of a daemon
// with --ledger none, with no, 64 and 1,000 other leases held; what PID 1 bears of it; and how long
// a restart with 1,023 leases takes against one with none. Usage: bench_ledger CARVEOUTD [BLOCKS]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/measure.hpp"
#include "support/daemon_process.hpp"
#include "support/proc.hpp"

namespace carveout::test {
namespace {

constexpr const char* kSocket = "/run/carveout/carveout.sock";
constexpr const char* kUnit = "carveoutd.service";
constexpr pid_t kManager = 1;

std::string systemctl(std::vector<std::string> words) {
  words.insert(words.begin(), "systemctl");
  const Outcome outcome = run(words);
  if (outcome.code != 0) throw std::runtime_error(outcome.output + outcome.error);
  return outcome.output;
}

double property(const std::string& name) {
  return std::strtod(systemctl({"show", "--value", "-p", name, kUnit}).c_str(), nullptr);
}

class Holders {
 public:
  void hold(std::size_t count) {
    while (peers_.size() < count) {
      peers_.push_back(std::make_unique<Peer>(kSocket));
      (void)peers_.back()->alloc(kSlice);
    }
  }
  void release() {
    peers_.clear();
    must(eventually([] {
           const Peer peer(kSocket);
           return peer.info().free == peer.info().size;
         }),
         "what was released is not free");
  }

 private:
  std::vector<std::unique_ptr<Peer>> peers_;
};

void grants(const DaemonProcess& bare, std::size_t held, int count, int blocks) {
  const auto daemon = static_cast<pid_t>(property("MainPID"));
  std::vector<double> ratios, ours_per_second, bare_per_second, ours_cpu, manager_cpu;
  connect_and_alloc(kSocket, count / 5);
  connect_and_alloc(bare.socket(), count / 5);
  for (int block = 0; block < blocks; ++block) {
    Batch ours, theirs;
    double manager = 0;
    const auto run_ours = [&] {
      manager = cpu_seconds(kManager);
      ours = run_batch(connect_and_alloc, kSocket, daemon, count);
      manager = cpu_seconds(kManager) - manager;
    };
    const auto run_bare = [&] {
      theirs = run_batch(connect_and_alloc, bare.socket(), bare.pid(), count);
    };
    if (block % 2 == 0) {
      run_ours();
      run_bare();
    } else {
      run_bare();
      run_ours();
    }
    ratios.push_back(ours.per_second / theirs.per_second);
    ours_per_second.push_back(ours.per_second);
    bare_per_second.push_back(theirs.per_second);
    ours_cpu.push_back(ours.cpu_us);
    manager_cpu.push_back(manager / count * 1e6);
  }
  const std::string row = "connect + alloc + close, " + std::to_string(held) + " held";
  print(row.c_str(), "per s / none's", spread_of(ratios));
  print("", "per s", spread_of(ours_per_second));
  print("", "--ledger none, per s", spread_of(bare_per_second));
  print("", "daemon's cpu us each", spread_of(ours_cpu));
  print("", "PID 1's cpu us each", spread_of(manager_cpu));
}

// From the execution of the daemon until it says that it is ready.
double restart_ms() {
  systemctl({"restart", kUnit});
  return (property("ActiveEnterTimestampMonotonic") - property("ExecMainStartTimestampMonotonic")) /
         1000;
}

void restarts(Holders& holders, int blocks) {
  std::vector<double> none, all;
  for (int i = 0; i < blocks; ++i)
    none.push_back(restart_ms());
  holders.hold(1023);
  for (int i = 0; i < blocks; ++i)
    all.push_back(restart_ms());
  print("restart until ready", "ms, no lease", spread_of(none));
  print("", "ms, 1,023 leases", spread_of(all));
  holders.release();
}

void bench(const char* carveoutd, int blocks) {
  raise_descriptor_limit();
  Holders holders;
  std::printf("under systemd: median of %d (range)\n", blocks);
  {
    const DaemonProcess bare(carveoutd, {"--ledger", "none"});
    for (const std::size_t held : {0U, 64U, 1000U}) {
      holders.hold(held);
      grants(bare, held, held < 1000 ? 400 : 100, blocks);
    }
  }
  holders.release();
  restarts(holders, blocks);
}

}  // namespace
}  // namespace carveout::test

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_ledger CARVEOUTD [BLOCKS]\n");
    return 2;
  }
  try {
    carveout::test::bench(argv[1], argc > 2 ? std::max(2, std::atoi(argv[2])) : 5);
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "bench_ledger: %s\n", problem.what());
    return 1;
  }
}
