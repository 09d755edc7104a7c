// From carveout_open() to memory that can be used, against a committed memfd of the same pages, and
// where the rest goes; in mirrored blocks of one run. Usage: bench_open CARVEOUTD [BLOCKS]

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "bench/measure.hpp"
#include "bench/open_rounds.hpp"

namespace carveout::test {
namespace {

constexpr std::uint64_t kMeasured = 128 * kSlice;  // 256 MiB

enum Arm : std::size_t { kOpened, kInSteps, kMemfd };
constexpr std::size_t kArms = 3;

// One arm's share of a block: the medians of its rounds but the first, which is apart.
struct Share {
  Round median;
  Cost usable;
  double cold_ms = 0;
};
using Block = std::array<Share, kArms>;

Cost median_of(const std::vector<Round>& rounds, const std::function<Cost(const Round&)>& cost) {
  const auto median = [&](double Cost::*figure) {
    std::vector<double> figures;
    for (std::size_t i = 1; i < rounds.size(); ++i)
      figures.push_back(cost(rounds[i]).*figure);
    return spread_of(figures).median;
  };
  return {median(&Cost::wall), median(&Cost::daemon), median(&Cost::ours)};
}

Share share_of(const std::vector<Round>& rounds) {
  Share share;
  for (std::size_t stage = 0; stage < kStages; ++stage) {
    share.median.stages[stage] =
        median_of(rounds, [stage](const Round& round) { return round.stages[stage]; });
  }
  share.usable = median_of(rounds, [](const Round& round) { return round.usable(); });
  share.cold_ms = rounds.front().usable().wall;
  return share;
}

std::vector<Block> run_blocks(const OpenRounds& rounds, int count, int blocks) {
  const auto round = [&rounds](std::size_t arm) {
    if (arm == kMemfd) return rounds.memfd();
    return arm == kOpened ? rounds.opened() : rounds.in_steps();
  };
  std::vector<Block> all;
  for (int i = 0; i < blocks; ++i) {
    Block block;
    for (std::size_t turn = 0; turn < kArms; ++turn) {
      const std::size_t arm = i % 2 == 0 ? turn : kArms - 1 - turn;
      std::vector<Round> batch;
      for (int j = 0; j <= count; ++j)
        batch.push_back(round(arm));
      block[arm] = share_of(batch);
    }
    must(rounds.page_now() == rounds.page(), "the lent memory's pages are not what they were");
    all.push_back(block);
  }
  return all;
}

using Figure = std::function<double(const Block&)>;

Spread over(const std::vector<Block>& blocks, const Figure& figure) {
  std::vector<double> figures;
  for (const Block& block : blocks)
    figures.push_back(figure(block));
  return spread_of(figures);
}

Figure wall(Arm arm, Stage stage) {
  return [arm, stage](const Block& block) { return block[arm].median.at(stage).wall; };
}

Figure processor(Arm arm, Stage stage, std::initializer_list<double Cost::*> of) {
  return [arm, stage, of = std::vector(of)](const Block& block) {
    double sum = 0;
    for (const auto figure : of)
      sum += block[arm].median.at(stage).*figure;
    return sum;
  };
}

Figure usable(Arm arm) {
  return [arm](const Block& block) { return block[arm].usable.wall; };
}

// While it was made usable, neither process ran: woken late, or something else had the core.
Figure waited(Arm arm) {
  return [arm](const Block& block) {
    const Cost& cost = block[arm].usable;
    return cost.wall - cost.daemon - cost.ours;
  };
}

Figure cold(Arm arm) {
  return [arm](const Block& block) { return block[arm].cold_ms; };
}

Figure given_back(Arm arm) {
  return [arm](const Block& block) {
    const Round& median = block[arm].median;
    return median.at(Stage::kUnmapped).wall + median.at(Stage::kGone).wall;
  };
}

// What the loan costs, what the memfd does, and the difference within a block.
void print_row(const char* row, const std::vector<Block>& blocks, const Figure& loan,
               const Figure& memfd) {
  const Spread more = over(blocks, [&](const Block& block) { return loan(block) - memfd(block); });
  const bool conclusive = std::abs(more.median) > more.most - more.least;
  std::printf("  %-46s %9.3f %9.3f %+9.3f  (%+.3f to %+.3f)%s\n", row, over(blocks, loan).median,
              over(blocks, memfd).median, more.median, more.least, more.most,
              conclusive ? "" : " ?");
}

void print_stage(const char* row, const std::vector<Block>& blocks, Stage stage) {
  print_row(row, blocks, wall(kInSteps, stage), wall(kMemfd, stage));
}

void print_processor(const char* row, const std::vector<Block>& blocks, Stage stage,
                     std::initializer_list<double Cost::*> of) {
  print_row(row, blocks, processor(kInSteps, stage, of), processor(kMemfd, stage, of));
}

void print_table(const std::vector<Block>& blocks) {
  constexpr auto kDaemon = &Cost::daemon;
  constexpr auto kOurs = &Cost::ours;
  std::printf("  %-46s %9s %9s %9s\n", "milliseconds", "lent", "memfd", "more");
  print_stage("connect, ask, granted; memfd_create, fallocate", blocks, Stage::kHad);
  print_processor("  processor time: the daemon's", blocks, Stage::kHad, {kDaemon});
  print_processor("  ours", blocks, Stage::kHad, {kOurs});
  print_processor("  both", blocks, Stage::kHad, {kDaemon, kOurs});
  print_stage("map", blocks, Stage::kMapped);
  print_stage("write to each page", blocks, Stage::kTouched);
  print_processor("  processor time: ours", blocks, Stage::kTouched, {kOurs});
  print_row("usable, step by step", blocks, usable(kInSteps), usable(kMemfd));
  print_row("usable, by carveout_open()", blocks, usable(kOpened), usable(kMemfd));
  print_row("  of it, neither process ran", blocks, waited(kOpened), waited(kMemfd));
  print_row("  the first of each batch, not counted", blocks, cold(kOpened), cold(kMemfd));
  print_row("unmap, give back", blocks, given_back(kInSteps), given_back(kMemfd));
}

// The socket alone.
void print_round_trip(const DaemonProcess& daemon, int blocks) {
  std::vector<double> medians;
  for (int i = 0; i < blocks; ++i) {
    std::vector<double> took;
    for (int j = 0; j < 200; ++j) {
      const auto before = Clock::now();
      (void)daemon.connect().info();
      took.push_back(std::chrono::duration<double, std::milli>(Clock::now() - before).count());
    }
    medians.push_back(spread_of(took).median);
  }
  const Spread spread = spread_of(medians);
  std::printf("  %-46s %9.3f  (%.3f to %.3f)\n", "connect, info, close", spread.median,
              spread.least, spread.most);
}

void measure(const DaemonProcess& daemon, std::uint64_t size, int count, int blocks) {
  const OpenRounds rounds(daemon, size);
  std::string load = read_file("/proc/loadavg");
  load.resize(load.find(' '));
  std::printf("%zu MiB in pages of %zu KiB, load average %s: %d blocks (range) of %d rounds\n",
              static_cast<std::size_t>(size >> 20U), rounds.page() / 1024, load.c_str(), blocks,
              count);
  (void)run_blocks(rounds, 1, 1);
  const std::vector<Block> all = run_blocks(rounds, count, blocks);
  print("carveout_open() to usable memory", "time / memfd's", over(all, [](const Block& block) {
          return block[kOpened].usable.wall / block[kMemfd].usable.wall;
        }));
  print("", "processor / memfd's", over(all, [](const Block& block) {
          const Cost& opened = block[kOpened].usable;
          return (opened.daemon + opened.ours) / block[kMemfd].usable.ours;
        }));
  print_table(all);
}

enum class Where { kAnywhere, kOneCore, kCoreEach };

void bench_at(Where where, const char* carveoutd, int blocks) {
  // Has no more than what is measured: a round that was not given back would fail the next.
  const DaemonProcess daemon(carveoutd, {"--size", std::to_string(kMeasured)});
  if (where != Where::kAnywhere) {
    stay_on(::getpid(), where == Where::kOneCore ? 1 : 0);
    stay_on(daemon.pid(), 1);
  }
  measure(daemon, kMeasured, 4, blocks);
  // What does not depend on the size shows here.
  measure(daemon, kSlice, 100, blocks);
  print_round_trip(daemon, blocks);
}

// Left to the scheduler, as it mostly is; on one core, where what counts is the processor time of
// both; on a core each, where one finds the pages and the other uses them.
void bench(const char* carveoutd, int blocks) {
  std::printf("?: the range is wider than the difference, so inconclusive\n");
  std::printf("-- client and carveoutd where the scheduler puts them\n");
  bench_at(Where::kAnywhere, carveoutd, blocks);
  std::printf("-- on one core\n");
  bench_at(Where::kOneCore, carveoutd, blocks);
  std::printf("-- on a core each\n");
  bench_at(Where::kCoreEach, carveoutd, blocks);
}

}  // namespace
}  // namespace carveout::test

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_open CARVEOUTD [BLOCKS]\n");
    return 2;
  }
  try {
    carveout::test::bench(argv[1], argc > 2 ? std::max(2, std::atoi(argv[2])) : 8);
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "bench_open: %s\n", problem.what());
    return 1;
  }
}
