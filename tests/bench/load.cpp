// What a request costs carveoutd against the least that is possible (floor_server), both under
// the same load, in mirrored blocks of one run (docs/decisions/0004-what-a-request-costs.md). Also:
// whether held leases and idle connections make the others slower, and what they weigh. Usage:
// bench_load CARVEOUTD FLOOR_SERVER [BLOCKS]

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "bench/measure.hpp"
#include "support/daemon_process.hpp"

namespace carveout::test {
namespace {

// What the ledger costs is bench_ledger's.
const std::vector<std::string> kBare{"--ledger", "none"};

class FloorServer {
 public:
  explicit FloorServer(const std::string& binary) {
    pid_ = spawn({binary, socket()}, -1, -1);
    if (!eventually([this] {
          try {
            return !Peer(socket()).ask("info").ended();
          } catch (const std::system_error&) {
            return false;
          }
        })) {
      throw std::runtime_error("floor_server does not answer");
    }
  }
  FloorServer(const FloorServer&) = delete;
  FloorServer& operator=(const FloorServer&) = delete;
  FloorServer(FloorServer&&) = delete;
  FloorServer& operator=(FloorServer&&) = delete;
  ~FloorServer() {
    ::kill(pid_, SIGTERM);
    wait_for(pid_);
  }
  [[nodiscard]] std::string socket() const { return directory_.file("floor.sock"); }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  TempDir directory_;
  pid_t pid_ = -1;
};

void info_one_by_one(const std::string& socket, int count) {
  const Peer peer(socket);
  const std::string request = peer.info_request();
  for (int i = 0; i < count; ++i)
    must(!peer.ask(request).ended(), "info was not answered");
}

void info_eight_at_once(const std::string& socket, int count) {
  const Peer peer(socket);
  const std::string request = peer.info_request();
  constexpr int kDepth = 8;
  for (int i = 0; i < count; i += kDepth) {
    for (int j = 0; j < kDepth; ++j)
      peer.send(request);
    for (int j = 0; j < kDepth; ++j)
      must(!peer.receive().ended(), "info was not answered");
  }
}

void connect_and_info(const std::string& socket, int count) {
  for (int i = 0; i < count; ++i) {
    const Peer peer(socket);
    must(!peer.ask(peer.info_request()).ended(), "info was not answered");
  }
}

void against_the_floor(const DaemonProcess& daemon, const FloorServer& floor, const char* row,
                       const Load& load, int count, int blocks) {
  load(floor.socket(), count / 10);
  load(daemon.socket(), count / 10);
  std::vector<double> throughput, cpu, per_second, floor_per_second, cpu_us, floor_cpu_us;
  for (int block = 0; block < blocks; ++block) {
    Batch ours, theirs;
    const auto run_ours = [&] { ours = run_batch(load, daemon.socket(), daemon.pid(), count); };
    const auto run_theirs = [&] { theirs = run_batch(load, floor.socket(), floor.pid(), count); };
    if (block % 2 == 0) {
      run_ours();
      run_theirs();
    } else {
      run_theirs();
      run_ours();
    }
    throughput.push_back(ours.per_second / theirs.per_second);
    cpu.push_back(ours.cpu_us / theirs.cpu_us);
    per_second.push_back(ours.per_second);
    floor_per_second.push_back(theirs.per_second);
    cpu_us.push_back(ours.cpu_us);
    floor_cpu_us.push_back(theirs.cpu_us);
  }
  print(row, "throughput / floor's", spread_of(throughput));
  print("", "cpu / floor's", spread_of(cpu));
  print("", "requests/s", spread_of(per_second));
  print("", "floor's requests/s", spread_of(floor_per_second));
  print("", "cpu us a request", spread_of(cpu_us));
  print("", "floor's cpu us", spread_of(floor_cpu_us));
}

double median_latency_us(const Load& load, const std::string& socket, int count) {
  std::vector<double> took;
  for (int i = 0; i < count; ++i) {
    const auto before = Clock::now();
    load(socket, 1);
    took.push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
  }
  return spread_of(took).median;
}

// `burdened` against `bare`, in mirrored blocks.
void against_each_other(const char* row, const Load& load, const DaemonProcess& burdened,
                        const DaemonProcess& bare, int count, int blocks) {
  // On one core, as against the floor.
  stay_on(::getpid(), 1);
  stay_on(burdened.pid(), 1);
  stay_on(bare.pid(), 1);
  std::vector<double> ratios;
  for (int block = 0; block < blocks; ++block) {
    double with = 0;
    double without = 0;
    const auto run_with = [&] { with = median_latency_us(load, burdened.socket(), count); };
    const auto run_without = [&] { without = median_latency_us(load, bare.socket(), count); };
    if (block % 2 == 0) {
      run_with();
      run_without();
    } else {
      run_without();
      run_with();
    }
    ratios.push_back(with / without);
  }
  print(row, "latency / unburdened", spread_of(ratios));
}

void with_leases_held(const char* carveoutd, int blocks) {
  const DaemonProcess burdened(carveoutd, kBare);
  const DaemonProcess bare(carveoutd, kBare);
  std::vector<Peer> holders;
  std::vector<UniqueFd> memory;
  for (int i = 0; i < 1000; ++i) {
    holders.push_back(burdened.connect());
    memory.push_back(holders.back().alloc(kSlice));
  }
  against_each_other("alloc, 1,000 leases held", connect_and_alloc, burdened, bare, 200, blocks);
}

void with_idle_connections(const char* carveoutd, int blocks) {
  raise_descriptor_limit();
  const DaemonProcess burdened(carveoutd, {"--ledger", "none", "--idle-timeout", "0"});
  const DaemonProcess bare(carveoutd, kBare);
  std::vector<Peer> idle;
  for (int i = 0; i < 1000; ++i)
    idle.push_back(burdened.connect());
  (void)burdened.connect().info();
  against_each_other("connect + info, 1,000 idle", connect_and_info, burdened, bare, 1000, blocks);
  const std::size_t before = resident_kib(burdened.pid());
  const std::size_t first = idle.size();
  while (idle.size() < first + 10'000) {
    idle.push_back(burdened.connect());
    // The daemon takes no more than its own limit allows: it ends the oldest then.
    if (idle.size() % 100 == 0 &&
        burdened.status().find("\"idle_closed\":0") == std::string::npos) {
      break;
    }
  }
  (void)burdened.connect().info();
  const auto more = static_cast<double>(idle.size() - first);
  std::printf("  %-34s %-22s %9.0f\n", (std::to_string(idle.size() - first) + " idle more").c_str(),
              "bytes each",
              static_cast<double>(resident_kib(burdened.pid()) - before) * 1024 / more);
}

void bench(const char* carveoutd, const char* floor_server, int blocks) {
  {
    const DaemonProcess daemon(carveoutd, kBare);
    const FloorServer floor(floor_server);
    // On one core what counts is the processor time of client and server together; on a core each,
    // mostly what it costs to wake the other.
    for (const std::size_t core : {1U, 0U}) {
      stay_on(::getpid(), core);
      stay_on(daemon.pid(), 1);
      stay_on(floor.pid(), 1);
      std::printf("against the floor, client and server on %s: median of %d blocks (range)\n",
                  core == 1 ? "one core" : "a core each", blocks);
      against_the_floor(daemon, floor, "info, one at a time", info_one_by_one, 20'000, blocks);
      against_the_floor(daemon, floor, "info, eight at a time", info_eight_at_once, 20'000, blocks);
      against_the_floor(daemon, floor, "connect + info", connect_and_info, 5'000, blocks);
      against_the_floor(daemon, floor, "connect + alloc 2 MiB + close", connect_and_alloc, 500,
                        blocks);
    }
  }
  std::printf("burdens: median of %d blocks (range)\n", blocks);
  with_leases_held(carveoutd, blocks);
  with_idle_connections(carveoutd, blocks);
}

}  // namespace
}  // namespace carveout::test

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: bench_load CARVEOUTD FLOOR_SERVER [BLOCKS]\n");
    return 2;
  }
  try {
    carveout::test::bench(argv[1], argv[2], argc > 3 ? std::max(2, std::atoi(argv[3])) : 8);
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "bench_load: %s\n", problem.what());
    return 1;
  }
}
