#include "run.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "host.hpp"
#include "version.hpp"

namespace carveout::probe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBatchSeconds = 0.1;
constexpr std::size_t kLeastRepetitions = 5;
constexpr std::size_t kMostRepetitions = 20;
// The curve of the processor begins within its first cache, that of a GPU where measurement.md
// says.
constexpr Bytes kLeastOfCpu = kib(16);
constexpr Bytes kLeastOfGpu = kib(256);
// What the table of bandwidths rereads.
constexpr Bytes kTableReread = mib(8);

// Twice, for two ways of mapping, it fits the reservation of a GB10; the library's own default.
constexpr Bytes kLeastDefault = mib(512);
constexpr Bytes kMostDefault = mib(1792);

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Error interruption() {
  return Error{Code::kClosed, 0, "", "interrupted: whole batches only are reported"};
}

Report begin_report(const char* command, const Engine& engine, const RunSettings& settings) {
  Report report;
  report.version = kVersion;
  report.command = command;
  report.engine = engine.kind();
  report.engine_detail = engine.describe();
  report.started_unix_s = unix_now();
  report.size = settings.arms.size;
  report.threads = settings.threads;
  report.blocks = settings.blocks;
  report.machine = host_machine();
  engine.describe(report.machine);
  return report;
}

// With what it has by now.
Report end_report(Report report) {
  report.ended_unix_s = unix_now();
  return report;
}

// Ordinary memory alone says nothing, however long it is measured: outcome.cpp says what to do.
bool has_something_to_compare(const Report& report) {
  return std::any_of(report.arms.begin() + 1, report.arms.end(),
                     [](const ArmRecord& arm) { return arm.unavailable.empty(); });
}

// The moments of a series, noted as its batches begin.
std::function<void()> noting(const Engine& engine, std::vector<Moment>& moments) {
  return [&engine, &moments] {
    moments.push_back(host_moment(0));
    engine.note(moments.back());
  };
}

// How many repetitions a batch has: those of the slowest arm fit into its time.
std::size_t repetitions_for(const RunSettings& settings, double seconds) {
  if (settings.repetitions != 0) return settings.repetitions;
  const double fitting = kBatchSeconds / std::max(seconds, 1e-6);
  return fitting > kMostRepetitions
             ? kMostRepetitions
             : std::max(kLeastRepetitions, static_cast<std::size_t>(fitting));
}

// What is run by turns, and where its results go.
class Turns {
 public:
  Turns(Engine& engine, const RunSettings& settings, Report& report)
      : engine_(engine), settings_(settings), report_(report) {}

  // One row at one size of several arms, which have `repeat` each.
  using Repeat = std::function<Result<double>()>;
  void add(const Step& step, const std::vector<std::pair<std::size_t, Repeat>>& arms) {
    double slowest = 0;
    for (const auto& [arm, repeat] : arms) {
      if (!report_.arms[arm].ended.empty()) continue;
      slowest = std::max(slowest, try_out(arm, repeat));
    }
    for (const auto& [arm, repeat] : arms) {
      report_.series.push_back({arm, step.row, step.size, {}, {}});
      moments_.emplace_back();
      ArmToRun turn{report_.arms[arm].name, {}, repetitions_for(settings_, slowest)};
      turn.repeat = alive(arm, repeat);
      turn.begin = noting(engine_, moments_.back());
      turns_.push_back(std::move(turn));
    }
  }

  void run(const Progress& progress) {
    auto runs = run_interleaved(turns_, settings_.blocks, progress);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      Series& series = report_.series[i];
      series.batches = std::move(runs[i].batches);
      series.moments = std::move(moments_[i]);
      series.moments.resize(series.batches.size());
    }
    report_.ended_unix_s = unix_now();
  }

 private:
  // The seconds of a repetition, by the second: the first may have to prepare the memory.
  double try_out(std::size_t arm, const Repeat& repeat) {
    double seconds = 0;
    for (int i = 0; i < 2 && report_.arms[arm].ended.empty(); ++i) {
      const auto begun = Clock::now();
      if (const auto tried = repeat(); !tried) end(arm, tried.error());
      seconds = seconds_since(begun);
    }
    return seconds;
  }

  void end(std::size_t arm, const Error& why) {
    std::string& ended = report_.arms[arm].ended;
    if (ended.empty()) ended = printable(why.describe(), 1000);
  }

  // An arm that has failed in one row is not asked in another.
  Repeat alive(std::size_t arm, const Repeat& repeat) {
    return [this, arm, repeat]() -> Result<double> {
      if (const std::string& ended = report_.arms[arm].ended; !ended.empty()) {
        return Error{Code::kClosed, 0, "", ended};
      }
      auto rate = repeat();
      if (!rate) end(arm, rate.error());
      return rate;
    };
  }

  Engine& engine_;
  const RunSettings& settings_;
  Report& report_;
  std::vector<ArmToRun> turns_;
  std::deque<std::vector<Moment>> moments_;  // where one is must not change
};

// Two sizes an octave: powers of two, and one and a half times those.
std::vector<Bytes> curve_sizes(Bytes least, Bytes most) {
  std::vector<Bytes> sizes;
  for (Bytes size = least; size <= most; size = size + size) {
    sizes.push_back(size);
    const Bytes between(size.count() / 2 * 3);
    if (between <= most) sizes.push_back(between);
  }
  return sizes;
}

}  // namespace

Bytes default_size(EngineKind engine, Bytes cache) {
  if (engine == EngineKind::kCpu) return kLeastDefault;
  const Bytes wanted = Slices::holding(Bytes(cache.count() * 32)).bytes();
  return std::clamp(wanted, kLeastDefault, kMostDefault);
}

std::vector<Step> bandwidth_steps(const std::vector<Row>& rows, Bytes size) {
  std::vector<Step> steps;
  for (const Row row : rows) {
    const bool is_small = row == Row::kReread || row == Row::kLoad;
    steps.push_back({row, is_small ? std::min(kTableReread, size) : size});
  }
  return steps;
}

Bytes well_inside(Bytes cache) {
  return cache.count() < 3 ? kTableReread : Bytes(std::bit_floor(cache.count() / 3));
}

std::vector<Step> residency_steps(EngineKind engine, Bytes largest_cache, Bytes inside,
                                  Bytes size) {
  const Bytes least = engine == EngineKind::kGpu ? kLeastOfGpu : kLeastOfCpu;
  const Bytes beyond(largest_cache.count() * 16);
  const Bytes most = largest_cache == Bytes(0) ? size : std::min(beyond, size);
  std::vector<Step> steps{{Row::kRead, size}};
  auto sizes = curve_sizes(least, most);
  if (std::find(sizes.begin(), sizes.end(), inside) == sizes.end()) {
    sizes.insert(std::upper_bound(sizes.begin(), sizes.end(), inside), inside);
  }
  for (const Bytes one : sizes)
    steps.push_back({Row::kReread, one});
  return steps;
}

Report run_steps(const char* command, Engine& engine, const RunSettings& settings,
                 const std::vector<Step>& steps, const Progress& progress,
                 Interrupted interrupted) {
  Report report = begin_report(command, engine, settings);
  const auto plans = plan_arms(engine.kind(), settings.arms.sources, settings.arms.maps);
  auto taken = take_arms(engine, plans, settings.arms);
  report.arms = std::move(taken.records);
  std::vector<std::unique_ptr<Bench>> benches(plans.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (!taken.arms[i]) continue;
    auto bench = engine.bench(taken.arms[i]->place());
    if (bench) {
      benches[i] = std::move(*bench);
    } else {
      report.arms[i].unavailable = printable(bench.error().describe(), 1000);
    }
  }
  if (!has_something_to_compare(report)) return end_report(std::move(report));
  Turns turns(engine, settings, report);
  for (const Step& step : steps) {
    std::vector<std::pair<std::size_t, Turns::Repeat>> arms;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (!benches[i]) continue;
      arms.emplace_back(
          i, [&bench = *benches[i], &arm = *taken.arms[i], step, interrupted]() -> Result<double> {
            if (interrupted()) return interruption();
            auto rate = bench.repeat(step.row, step.size);
            if (auto lent = arm.check_lender(); !lent) return std::move(lent).error();
            return rate;
          });
    }
    turns.add(step, arms);
  }
  turns.run(progress);
  return report;
}

Report run_latency(Engine& engine, const RunSettings& settings, const Progress& progress,
                   Interrupted interrupted) {
  Report report = begin_report("latency", engine, settings);
  const auto plans = plan_arms(engine.kind(), settings.arms.sources, settings.arms.maps);
  for (const ArmPlan& plan : plans) {
    report.arms.push_back({plan.name, plan.source, plan.map, "", 0, "", ""});
    ArmRecord& record = report.arms.back();
    auto arm = take_arm(engine, plan, settings.arms);
    if (arm) {
      record.memory = arm->record().memory;
    } else {
      record.unavailable = printable(arm.error().describe(), 1000);
    }
  }
  if (!has_something_to_compare(report)) return end_report(std::move(report));
  Turns turns(engine, settings, report);
  for (const Row row : {Row::kClaim, Row::kGiveBack}) {
    std::vector<std::pair<std::size_t, Turns::Repeat>> arms;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (!report.arms[i].unavailable.empty()) continue;
      arms.emplace_back(
          i, [&engine, &settings, &plan = plans[i], row, interrupted]() -> Result<double> {
            if (interrupted()) return interruption();
            const auto begun = Clock::now();
            auto arm = take_arm(engine, plan, settings.arms);
            if (!arm) return std::move(arm).error();
            const double taking = seconds_since(begun);
            const auto giving = Clock::now();
            { const Memory given_back = std::move(*arm); }
            return (row == Row::kClaim ? taking : seconds_since(giving)) * 1e3;
          });
    }
    turns.add({row, settings.arms.size}, arms);
  }
  turns.run(progress);
  return report;
}

Report run_info(Engine& engine, const RunSettings& settings) {
  Report report = begin_report("info", engine, settings);
  for (const ArmPlan& plan : plan_arms(engine.kind(), settings.arms.sources, settings.arms.maps)) {
    ArmRecord record{plan.name, plan.source, plan.map, "", 0, "", ""};
    if (auto arm = take_arm(engine, plan, settings.arms)) {
      record.memory = arm->record().memory;
    } else {
      record.unavailable = printable(arm.error().describe(), 1000);
    }
    report.arms.push_back(std::move(record));
  }
  return end_report(std::move(report));
}

}  // namespace carveout::probe
