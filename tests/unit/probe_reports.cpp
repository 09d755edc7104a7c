#include "probe_reports.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

namespace carveout::probe {
namespace {

constexpr double kStarted = 1790000000;  // 2026-09-21T14:13:20Z

Moment moment_of(std::size_t block, bool has_gpu) {
  Moment moment;
  moment.unix_s = kStarted + 10 * static_cast<double>(block);
  moment.load_average = 0.5;
  moment.governor = "performance";
  if (has_gpu) {
    moment.sm_mhz = 2400;
    moment.memory_mhz = 4266;
    moment.celsius = 51;
    moment.other_processes = 0;
  }
  return moment;
}

Report empty_report(const char* command, EngineKind engine) {
  Report report;
  report.version = "0.1.0";
  report.command = command;
  report.engine = engine;
  report.started_unix_s = kStarted;
  report.ended_unix_s = kStarted + 98;
  report.size = mib(256);
  report.blocks = 8;
  report.reread_size = mib(8);
  report.machine.kernel = "Linux 6.18.44 aarch64";
  report.machine.processor = "Cortex-X925, 20 CPUs";
  report.machine.lender = "carveoutd 0.1.0, backend drm (card1)";
  report.machine.page_bytes = 4096;
  return report;
}

void note_moments(Report& report) {
  for (Series& series : report.series) {
    for (std::size_t i = 0; i < series.batches.size(); ++i)
      series.moments.push_back(moment_of(i, report.engine == EngineKind::kGpu));
  }
}

// Flat within `cache`, then falling to `outside` by eight times of it.
double kept(Bytes size, Bytes cache, double inside, double outside) {
  const double over =
      std::log2(static_cast<double>(size.count()) / static_cast<double>(cache.count()));
  const double part = std::clamp(over / 3, 0.0, 1.0);
  return inside * std::pow(outside / inside, part);
}

}  // namespace

Series series_of(std::size_t arm, Row row, Bytes size, double rate, std::size_t blocks) {
  Series series{arm, row, size, {}, {}};
  for (std::size_t i = 0; i < blocks; ++i) {
    // Arms and rows do not swing together: each has a phase of its own.
    const double swing = std::sin(static_cast<double>(i * 7 + arm * 3 + size.count() % 11));
    series.batches.push_back({.cold = rate * 0.8,
                              .median = rate * (1 + 0.01 * swing),
                              .autocorrelation = 0.1,
                              .count = 20});
  }
  return series;
}

Report residency_report() {
  Report report = empty_report("residency", EngineKind::kGpu);
  report.engine_detail = std::string(kHostileName) + ", 48 SMs";
  report.machine.gpu = kHostileName;
  report.machine.driver = "580.82.07";
  report.machine.cuda = "13.0";
  report.machine.cache_bytes = {mib(24).count()};
  report.arms = {
      {"ordinary", "ordinary", "", "cuMemAlloc", mib(2).count(), "", ""},
      {"daemon/vmm", "daemon", "vmm", "lent <by> drm & imported", mib(2).count(), "", ""},
      {"daemon/register", "daemon", "register", "lent, registered", mib(2).count(), "",
       kHostileReason},
      {"drm/external", "drm", "external", "", 0,
       "/dev/dri/card1: no such <device>; load nvidia_drm with modeset=1", ""},
  };
  for (Bytes size = kib(256); size <= mib(384); size = size + size) {
    report.series.push_back(series_of(0, Row::kReread, size, kept(size, mib(24), 812, 245)));
    report.series.push_back(
        series_of(1, Row::kReread, size, size < mib(16) ? 209 : kept(size, mib(16), 209, 244)));
    report.series.push_back(series_of(2, Row::kReread, size, kept(size, mib(24), 790, 240), 3));
  }
  report.series.push_back(series_of(0, Row::kRead, report.size, 245));
  report.series.push_back(series_of(1, Row::kRead, report.size, 244));
  report.series.push_back(series_of(2, Row::kRead, report.size, 241, 3));
  note_moments(report);
  return report;
}

Report bandwidth_report() {
  Report report = empty_report("bandwidth", EngineKind::kCpu);
  report.engine_detail = "processor, 1 thread, 128 bits";
  report.machine.cache_bytes = {kib(64).count(), mib(2).count(), mib(16).count()};
  report.arms = {{"ordinary", "ordinary", "", "anonymous memory", 4096, "", ""},
                 {"memfd/host", "memfd", "host", "a sealed memfd", 4096, "", ""}};
  const std::array<std::pair<Row, std::pair<double, double>>, 6> rates{{
      {Row::kRead, {24.5, 20.4}},
      {Row::kWrite, {9.81, 12.3}},
      {Row::kWritePastCaches, {31, 31}},
      {Row::kCopyInto, {11.2, 11.2}},
      {Row::kCopyOutOf, {11.3, 11.3}},
      {Row::kLoad, {98.7, 131}},
  }};
  report.series.push_back(series_of(0, Row::kReread, report.reread_size, 96));
  report.series.push_back(series_of(1, Row::kReread, report.reread_size, 95.9));
  for (const auto& [row, both] : rates) {
    report.series.push_back(series_of(0, row, report.size, both.first));
    report.series.push_back(series_of(1, row, report.size, both.second));
  }
  note_moments(report);
  return report;
}

Report latency_report() {
  Report report = empty_report("latency", EngineKind::kCpu);
  report.engine_detail = "processor, 1 thread, 128 bits";
  report.reread_size = {};
  report.arms = {{"ordinary", "ordinary", "", "anonymous memory", 4096, "", ""},
                 {"daemon/host", "daemon", "host", "a slice of carveoutd", 4096, "", ""}};
  report.series = {series_of(0, Row::kClaim, report.size, 0.0123),
                   series_of(1, Row::kClaim, report.size, 41.5),
                   series_of(0, Row::kGiveBack, report.size, 8.2),
                   series_of(1, Row::kGiveBack, report.size, 1.25)};
  note_moments(report);
  return report;
}

}  // namespace carveout::probe
