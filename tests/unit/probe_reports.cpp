#include "unit/probe_reports.hpp"

#include <gtest/gtest.h>

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

// --- of figures that are all unlike ---

// Neither short nor alike: a third is no finite binary fraction.
double figure(double base, std::size_t step) {
  return base + static_cast<double>(step) / 3;
}

Batch made_batch(double base, std::size_t step) {
  return {.cold = figure(base / 2, step),
          .median = figure(base, step),
          .autocorrelation = step % 2 == 0 ? 0.1 / 3 : -0.7,
          .count = 20 + step};
}

Series made_series(std::size_t arm, Row row, Bytes size, std::size_t blocks, double base) {
  Series series{.arm = arm, .row = row, .size = size, .batches = {}, .moments = {}};
  for (std::size_t i = 0; i < blocks; ++i) {
    series.batches.push_back(made_batch(base, i));
    series.moments.push_back({.unix_s = figure(1.8e9, i),
                              .load_average = figure(0.25, i),
                              .governor = {},
                              .sm_mhz = {},
                              .memory_mhz = {},
                              .celsius = {},
                              .other_processes = {}});
  }
  return series;
}

void add_gpu_conditions(Series& series) {
  unsigned step = 0;
  for (Moment& moment : series.moments) {
    moment.governor = "performance";
    moment.sm_mhz = 2400 + step;
    moment.memory_mhz = 4000 + step;
    moment.celsius = 50 + step;
    moment.other_processes = step;
    ++step;
  }
}

Report made_run(const char* command, EngineKind engine) {
  Report report = empty_report(command, engine);
  report.engine_detail = "processor, 2 threads, 512 bits";
  report.started_unix_s = 1796000000.125;
  report.ended_unix_s = 1796000060.0 + 1.0 / 3;
  report.size = mib(64);
  report.threads = 2;
  report.reread_size = {};
  report.machine.kernel = "Linux 6.18.44 x86_64";
  report.machine.processor = "Made(R) Processor, 2 CPUs";
  report.machine.lender.clear();
  report.machine.cache_bytes = {48UL << 10U, 2UL << 20U, 33UL << 20U};
  report.arms = {{"ordinary", "ordinary", "", "anonymous memory", 4096, "", ""}};
  return report;
}

ArmRecord made_arm(const std::string& source, const std::string& map) {
  return {.name = source + "/" + map,
          .source = source,
          .map = map,
          .memory = "lent as dma-buf, \"" + map + "\" \u2026",
          .page_bytes = 2UL << 20U,
          .unavailable = {},
          .ended = {}};
}

// --- of a machine as there might be ---

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

Report made_bandwidth() {
  Report report = made_run("bandwidth", EngineKind::kCpu);
  report.arms.push_back(made_arm("memfd", "host"));
  report.arms.push_back(made_arm("daemon", "host"));
  report.arms.back().memory.clear();
  report.arms.back().page_bytes = 0;
  report.arms.back().unavailable = "/run/carveout/carveout.sock: nobody listens (ENOENT)";
  double base = 10;
  for (const Row row : {Row::kReread, Row::kRead, Row::kWrite, Row::kWritePastCaches,
                        Row::kCopyInto, Row::kCopyOutOf, Row::kGather}) {
    for (const std::size_t arm : {0U, 1U})
      report.series.push_back(made_series(arm, row, mib(64), 8, base += 7));
  }
  return report;
}

Report made_residency() {
  Report report = made_run("residency", EngineKind::kGpu);
  report.engine_detail = "NVIDIA GB10, 48 SMs";
  report.reread_size = mib(8);
  report.machine.gpu = "NVIDIA GB10";
  report.machine.driver = "580.82.07";
  report.machine.cuda = "13.0";
  report.machine.host = "spark-1";
  report.machine.lender = "carveoutd 0.1.0, backend drm";
  report.machine.cache_bytes = {24UL << 20U};
  report.arms[0].memory = "cuMemAlloc";
  report.arms.push_back(made_arm("daemon", "vmm"));
  report.arms.push_back(made_arm("daemon", "register"));
  report.arms.push_back(made_arm("drm", "external"));
  report.arms[2].ended = "the lender ended the lease";
  report.arms[3].unavailable = "no card";
  double base = 100;
  for (const Bytes size : {mib(8), mib(64)}) {
    for (const Row row : {Row::kReread, Row::kRead}) {
      report.series.push_back(made_series(0, row, size, 8, base += 17));
      report.series.push_back(made_series(1, row, size, 8, base += 17));
      report.series.push_back(made_series(2, row, size, 3, base += 17));
    }
  }
  for (Series& series : report.series)
    add_gpu_conditions(series);
  return report;
}

Report made_latency() {
  Report report = made_run("latency", EngineKind::kCpu);
  report.arms.push_back(made_arm("memfd", "host"));
  double base = 90;
  for (const Row row : {Row::kLoad, Row::kClaim, Row::kGiveBack}) {
    for (const std::size_t arm : {0U, 1U})
      report.series.push_back(made_series(arm, row, mib(64), 8, base += 5));
  }
  return report;
}

Report made_empty() {
  Report report;
  report.command = "bandwidth";
  return report;
}

Findings made_findings() {
  const Comparison more{Verdict::kMore, 0.5, 0.4, 0.6, 8};
  const Comparison less{Verdict::kLess, -0.25, -0.5, -0.125, 8};
  const Comparison open{Verdict::kInconclusive, 0.01, -0.1, 0.1, 8};
  return {.against_ordinary = {{1, Row::kReread, mib(8), less},
                               {1, Row::kRead, mib(8), open},
                               {2, Row::kReread, mib(8), more}},
          .residencies = {{1, {Residency::kNotResident, less, more, "slower than streamed"}},
                          {2, {Residency::kResident, more, more, "a gain of 50 %"}}},
          .remarks = {"the governor differs", "a second remark"}};
}

namespace {

// Each has all members by name, so that a new one that is not looked at does not compile.
void expect_same(const Machine& machine, const Machine& expected) {
  const auto& [host, kernel, processor, gpu, driver, cuda, lender, page_bytes, cache_bytes] =
      machine;
  EXPECT_EQ(host, expected.host);
  EXPECT_EQ(kernel, expected.kernel);
  EXPECT_EQ(processor, expected.processor);
  EXPECT_EQ(gpu, expected.gpu);
  EXPECT_EQ(driver, expected.driver);
  EXPECT_EQ(cuda, expected.cuda);
  EXPECT_EQ(lender, expected.lender);
  EXPECT_EQ(page_bytes, expected.page_bytes);
  EXPECT_EQ(cache_bytes, expected.cache_bytes);
}

void expect_same(const ArmRecord& arm, const ArmRecord& expected) {
  const auto& [name, source, map, memory, page_bytes, unavailable, ended] = arm;
  EXPECT_EQ(name, expected.name);
  EXPECT_EQ(source, expected.source);
  EXPECT_EQ(map, expected.map);
  EXPECT_EQ(memory, expected.memory);
  EXPECT_EQ(page_bytes, expected.page_bytes);
  EXPECT_EQ(unavailable, expected.unavailable);
  EXPECT_EQ(ended, expected.ended);
}

void expect_same(const Batch& batch, const Batch& expected) {
  const auto& [cold, median, autocorrelation, count] = batch;
  EXPECT_EQ(cold, expected.cold);
  EXPECT_EQ(median, expected.median);
  EXPECT_EQ(autocorrelation, expected.autocorrelation);
  EXPECT_EQ(count, expected.count);
}

void expect_same(const Moment& moment, const Moment& expected) {
  const auto& [unix_s, load_average, governor, sm_mhz, memory_mhz, celsius, other_processes] =
      moment;
  EXPECT_EQ(unix_s, expected.unix_s);
  EXPECT_EQ(load_average, expected.load_average);
  EXPECT_EQ(governor, expected.governor);
  EXPECT_EQ(sm_mhz, expected.sm_mhz);
  EXPECT_EQ(memory_mhz, expected.memory_mhz);
  EXPECT_EQ(celsius, expected.celsius);
  EXPECT_EQ(other_processes, expected.other_processes);
}

void expect_same(const Series& series, const Series& expected);

template <typename T>
void expect_same_all(const std::vector<T>& all, const std::vector<T>& expected) {
  ASSERT_EQ(all.size(), expected.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    expect_same(all[i], expected[i]);
}

void expect_same(const Series& series, const Series& expected) {
  const auto& [arm, row, size, batches, moments] = series;
  EXPECT_EQ(arm, expected.arm);
  EXPECT_EQ(row, expected.row);
  EXPECT_EQ(size, expected.size);
  expect_same_all(batches, expected.batches);
  expect_same_all(moments, expected.moments);
}

}  // namespace

void expect_same(const Report& report, const Report& expected) {
  const auto& [version, command, engine, engine_detail, started_unix_s, ended_unix_s, size, threads,
               blocks, reread_size, machine, arms, series] = report;
  EXPECT_EQ(version, expected.version);
  EXPECT_EQ(command, expected.command);
  EXPECT_EQ(engine, expected.engine);
  EXPECT_EQ(engine_detail, expected.engine_detail);
  EXPECT_EQ(started_unix_s, expected.started_unix_s);
  EXPECT_EQ(ended_unix_s, expected.ended_unix_s);
  EXPECT_EQ(size, expected.size);
  EXPECT_EQ(threads, expected.threads);
  EXPECT_EQ(blocks, expected.blocks);
  EXPECT_EQ(reread_size, expected.reread_size);
  expect_same(machine, expected.machine);
  expect_same_all(arms, expected.arms);
  expect_same_all(series, expected.series);
}

}  // namespace carveout::probe
