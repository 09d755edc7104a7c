#include "findings.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/text.hpp"
#include "writing.hpp"

namespace carveout::probe {
namespace {

// Beyond these an arm's typical conditions (medians) are called unlike those of ordinary memory.
// The arms take turns within seconds, in which the load average hardly moves by itself; boost
// clocks wander by a few percent, and temperatures by a few degrees, in any run.
constexpr double kLoadApart = 0.5;
constexpr double kClockApart = 0.05;  // a part of the larger
constexpr double kCelsiusApart = 5;
constexpr double kProcessesApart = 0.5;

// What a stream must be of the largest cache, so that little of it can be left there from before.
constexpr std::uint64_t kStreamOfCache = 4;
// Above this repetitions say more of the ones before them than of the memory. Far below zero they
// take turns, as copies do whose offsets alternate: that is no drift.
constexpr double kDrifting = 0.5;
// How many rows of arms a sentence names.
constexpr std::size_t kMostNamed = 6;

bool is_measured(const Series* series) {
  return series != nullptr && !series->batches.empty();
}

std::string joined(const std::vector<std::string>& parts, const char* with) {
  std::string all;
  for (const std::string& part : parts)
    all += cat(all.empty() ? "" : with, part);
  return all;
}

// A number of a moment, if it is known.
using Reading = std::function<std::optional<double>(const Moment&)>;

Reading reading(std::optional<unsigned> Moment::*member) {
  return [member](const Moment& moment) -> std::optional<double> {
    if (!(moment.*member)) return std::nullopt;
    return static_cast<double>(*(moment.*member));
  };
}

// An arm's and ordinary memory's, in the blocks of the rows that both have: what both were given.
struct Readings {
  std::vector<double> lent, ordinary;
};

std::map<std::size_t, Readings> paired(const Report& report, const Reading& read) {
  std::map<std::size_t, Readings> arms;
  for (const Series& series : report.series) {
    const Series* ordinary = find(report, 0, series.row, series.size);
    if (series.arm == 0 || ordinary == nullptr) continue;
    const std::size_t blocks = std::min(series.moments.size(), ordinary->moments.size());
    for (std::size_t block = 0; block < blocks; ++block) {
      const auto lent = read(series.moments[block]), other = read(ordinary->moments[block]);
      if (!lent || !other) continue;
      arms[series.arm].lent.push_back(*lent);
      arms[series.arm].ordinary.push_back(*other);
    }
  }
  return arms;
}

struct Condition {
  const char* name;
  Reading read;
  double apart;
  bool is_relative;
  const char* unit;
  int digits;
  const char* advice;
};

void remark_condition(const Report& report, const Condition& condition,
                      std::vector<std::string>& remarks) {
  // By what ordinary memory had in the blocks that it shares with the arm.
  std::map<std::string, std::vector<std::string>> unlike;
  const auto written = [&condition](double value) {
    return cat(fixed(value, condition.digits), condition.unit);
  };
  for (const auto& [arm, readings] : paired(report, condition.read)) {
    const double lent = median(readings.lent), ordinary = median(readings.ordinary);
    const double bound =
        condition.is_relative ? condition.apart * std::max(lent, ordinary) : condition.apart;
    if (std::abs(lent - ordinary) <= bound) continue;
    unlike[written(ordinary)].push_back(cat(written(lent), " with ", arm_name(report, arm)));
  }
  std::vector<std::string> parts;
  parts.reserve(unlike.size());
  for (const auto& [ordinary, arms] : unlike)
    parts.push_back(cat(joined(arms, ", "), " where ordinary memory had ", ordinary));
  if (parts.empty()) return;
  remarks.push_back(cat("The arms were not measured alike: ", condition.name, " was ",
                        joined(parts, "; "), ". ", condition.advice));
}

void remark_conditions(const Report& report, std::vector<std::string>& remarks) {
  const std::vector<Condition> conditions{
      {"the load average", [](const Moment& moment) { return std::optional(moment.load_average); },
       kLoadApart, false, "", 2, "Run again while nothing else does."},
      {"the GPU's clock", reading(&Moment::sm_mhz), kClockApart, true, " MHz", 0,
       "Fix the clocks (nvidia-smi --lock-gpu-clocks), or let the GPU warm up and cool alike."},
      {"the GPU memory's clock", reading(&Moment::memory_mhz), kClockApart, true, " MHz", 0,
       "Fix the clocks (nvidia-smi --lock-memory-clocks), or run again."},
      {"the GPU's temperature", reading(&Moment::celsius), kCelsiusApart, false, " \u00b0C", 0,
       "Let the GPU reach its temperature first, or take more blocks (--blocks)."},
      {"the number of other processes on the GPU", reading(&Moment::other_processes),
       kProcessesApart, false, "", 0, "End them, or run again while there are none."},
  };
  for (const Condition& condition : conditions)
    remark_condition(report, condition, remarks);
}

void remark_governor(const Report& report, std::vector<std::string>& remarks) {
  std::set<std::string> governors;
  for (const Series& series : report.series) {
    for (const Moment& moment : series.moments)
      if (!moment.governor.empty()) governors.insert(printable(moment.governor, 64));
  }
  if (governors.size() < 2) return;
  remarks.push_back(cat("The processor's frequency governor changed during the run (",
                        joined({governors.begin(), governors.end()}, "; "),
                        "). Set one (cpupower frequency-set -g performance) and run again."));
}

void remark_pages(const Report& report, std::vector<std::string>& remarks) {
  std::map<std::uint64_t, std::vector<std::string>> sizes;
  for (std::size_t i = 0; i < report.arms.size(); ++i) {
    const ArmRecord& arm = report.arms[i];
    if (!arm.unavailable.empty() || arm.page_bytes == 0) continue;
    sizes[arm.page_bytes].push_back(arm_name(report, i));
  }
  if (sizes.size() < 2) return;
  std::vector<std::string> parts;
  parts.reserve(sizes.size());
  for (const auto& [bytes, arms] : sizes)
    parts.push_back(cat(format_bytes(Bytes(bytes)), " with ", joined(arms, ", ")));
  remarks.push_back(cat("The arms have pages of different sizes (", joined(parts, "; "),
                        "): a part of what they differ in may be the pages' doing. Give the host "
                        "huge pages (vm.nr_hugepages) so that all have the same."));
}

void remark_lender(const Report& report, std::vector<std::string>& remarks) {
  const bool is_asked = std::any_of(
      report.arms.begin(), report.arms.end(),
      [](const ArmRecord& arm) { return arm.source == "daemon" && arm.unavailable.empty(); });
  if (!is_asked || !report.machine.lender.starts_with(kLenderNotKnown)) return;
  remarks.push_back(
      cat("By which backend it was lent is ", printable(report.machine.lender, 1000),
          ". Who may use the daemon's control socket (root; --control) is told, and whoever reads "
          "the result later can then tell whether it is of what is lent."));
}

bool is_less_than_a_stream(Bytes size, Bytes cache) {
  return size.count() / kStreamOfCache < cache.count();
}

// As a shell takes it: without the space.
std::string enough_for(Bytes cache) {
  std::string enough = format_bytes(Slices::holding(Bytes(cache.count() * kStreamOfCache)).bytes());
  std::erase(enough, ' ');
  return enough;
}

// A verdict is about a smaller cache than the largest, maybe, for which the stream may be enough.
std::string about_the_judged(const Report& report, Bytes largest) {
  const NamedCache judged = judged_cache(report);
  if (residencies(report).empty() || judged.size == largest) return {};
  return cat(
      " The verdict is about a smaller one, ", with_size(judged), ", for which the stream is ",
      is_less_than_a_stream(report.size, judged.size) ? "too small as well." : "large enough.");
}

void remark_stream(const Report& report, std::vector<std::string>& remarks) {
  const auto& caches = report.machine.cache_bytes;
  const bool streams =
      std::any_of(report.series.begin(), report.series.end(), [&report](const Series& series) {
        return series.size == report.size && !series.batches.empty() &&
               series.row != Row::kReread && facts(series.row).unit == Unit::kGbPerSecond;
      });
  if (caches.empty() || !streams) return;
  const auto place = std::max_element(caches.begin(), caches.end());
  const Bytes largest(*place);
  if (!is_less_than_a_stream(report.size, largest)) return;
  const std::string name =
      cache_name(report.engine, static_cast<std::size_t>(place - caches.begin()));
  remarks.push_back(cat("The stream of ", format_bytes(report.size), " is less than ",
                        kStreamOfCache, " times the largest cache, ", name, " (",
                        format_bytes(largest),
                        "): part of the stream may come from there. Take --size ",
                        enough_for(largest), " or more.", about_the_judged(report, largest)));
}

// What comes from the cache is no stream: what is gained over it may be no more than the beginning
// of a pass, which two memories have alike though a cache keeps only one of them.
void withhold_without_stream(const Report& report, ResidencyVerdict& verdict) {
  const NamedCache cache = judged_cache(report);
  if (!is_less_than_a_stream(report.size, cache.size)) return;
  verdict.residency = Residency::kInconclusive;
  verdict.is_for_noise = false;
  verdict.why =
      cat("the stream of ", format_bytes(report.size), " is less than ", kStreamOfCache, " times ",
          with_size(cache), ", and part of it may come from there: take --size ",
          enough_for(cache.size), " or more");
}

// Of one row of one arm: the sizes at which repetitions drift.
struct Drift {
  std::size_t arm = 0;
  Row row = Row::kRead;
  std::vector<Bytes> sizes;
  double most = 0;
};

std::vector<Drift> drifts(const Report& report) {
  std::vector<Drift> all;
  for (const Series& series : report.series) {
    std::vector<double> lags;
    for (const Batch& batch : series.batches)
      lags.push_back(batch.autocorrelation);
    const double lag = median(lags);
    if (lag <= kDrifting) continue;
    auto drift = std::find_if(all.begin(), all.end(), [&series](const Drift& one) {
      return one.arm == series.arm && one.row == series.row;
    });
    if (drift == all.end()) drift = all.insert(drift, {series.arm, series.row, {}, 0});
    drift->sizes.push_back(series.size);
    drift->most = std::max(drift->most, lag);
  }
  return all;
}

void remark_drift(const Report& report, std::vector<std::string>& remarks) {
  std::vector<std::string> named;
  const std::vector<Drift> all = drifts(report);
  for (const Drift& one : all) {
    const std::size_t sizes = one.sizes.size();
    if (named.size() == kMostNamed) {
      named.push_back(cat("and ", all.size() - kMostNamed, " more"));
      break;
    }
    const std::string row = sizes == 1 ? label(report, {one.row, one.sizes.front()})
                                       : cat(facts(one.row).title, " at ", sizes, " sizes");
    named.push_back(cat(row, " (", arm_name(report, one.arm), ") ", sizes == 1 ? "" : "up to ",
                        fixed(one.most, 2)));
  }
  if (named.empty()) return;
  remarks.push_back(
      cat("Repetitions drift within their batches (lag-1 autocorrelation: ", joined(named, "; "),
          "): each says little that the one before it did not. Let the machine "
          "settle, and look at its load and clocks."));
}

}  // namespace

std::vector<AgainstOrdinary> against_ordinary(const Report& report) {
  std::vector<AgainstOrdinary> all;
  for (const Series& series : report.series) {
    const Series* ordinary = find(report, 0, series.row, series.size);
    if (series.arm == 0 || series.batches.empty() || !is_measured(ordinary)) continue;
    all.push_back(
        {series.arm, series.row, series.size, compare(ordinary->batches, series.batches)});
  }
  return all;
}

std::vector<ArmResidency> residencies(const Report& report) {
  std::vector<ArmResidency> all;
  if (report.command != "residency") return all;
  const auto reads = [&report](std::size_t arm) -> std::optional<Reads> {
    const Series* reread = find(report, arm, Row::kReread, report.reread_size);
    const Series* streaming = find(report, arm, Row::kRead, report.size);
    if (!is_measured(reread) || !is_measured(streaming)) return std::nullopt;
    return Reads{reread->batches, streaming->batches};
  };
  const std::optional<Reads> ordinary = reads(0);
  for (std::size_t arm = 0; arm < report.arms.size(); ++arm) {
    if (report.arms[arm].is_ordinary() || !report.arms[arm].unavailable.empty()) continue;
    const std::optional<Reads> lent = reads(arm);
    if (!lent) continue;
    ResidencyVerdict verdict = judge(*lent, ordinary.value_or(Reads{}));
    if (!ordinary) verdict.why = "ordinary memory was not measured: there is nothing to judge by";
    withhold_without_stream(report, verdict);
    all.push_back({arm, std::move(verdict)});
  }
  return all;
}

const char* name_of(Residency residency) {
  switch (residency) {
    case Residency::kInconclusive:
      break;
    case Residency::kNotResident:
      return "not resident";
    case Residency::kPartly:
      return "partly";
    case Residency::kResident:
      return "resident";
  }
  return "inconclusive";
}

std::vector<std::string> wanting(const Report& report) {
  const std::vector<RowAt> rows = table_rows(report);
  // In the order in which they come up.
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const AgainstOrdinary& one : against_ordinary(report)) {
    const RowAt row{one.row, one.size};
    const std::string needs = one.comparison.wanting();
    if (needs.empty() || std::find(rows.begin(), rows.end(), row) == rows.end()) continue;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&needs](const auto& other) { return other.first == needs; });
    if (group == groups.end()) group = groups.insert(group, {needs, {}});
    group->second.push_back(cat(label(report, row), " (", arm_name(report, one.arm), ")"));
  }
  std::vector<std::string> sentences;
  sentences.reserve(groups.size());
  for (const auto& [needs, of] : groups)
    sentences.push_back(cat(joined(of, "; "), ": ", needs));
  return sentences;
}

std::vector<std::string> remarks(const Report& report) {
  std::vector<std::string> all;
  remark_lender(report, all);
  remark_pages(report, all);
  remark_conditions(report, all);
  remark_governor(report, all);
  remark_stream(report, all);
  remark_drift(report, all);
  return all;
}

}  // namespace carveout::probe
