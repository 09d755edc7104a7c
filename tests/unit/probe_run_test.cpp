// Which memories, which rows at which sizes, and runs in which one ends.

#include "run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engines/anonymous.hpp"
#include "engines/cpu_engine.hpp"

namespace carveout::probe {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Gt;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

std::vector<std::string> names(const std::vector<ArmPlan>& plans) {
  std::vector<std::string> all;
  for (const ArmPlan& plan : plans)
    all.push_back(plan.name);
  return all;
}

TEST(ProbeArms, AreOrdinaryMemoryAndEachSourceByEachMap) {
  EXPECT_THAT(names(plan_arms(EngineKind::kCpu, {"daemon"}, {})),
              ElementsAre("ordinary", "daemon/host"));
  EXPECT_THAT(
      names(plan_arms(EngineKind::kGpu, {"cuda", "daemon"}, {"auto"})),
      ElementsAre("ordinary", "cuda/vmm", "daemon/vmm", "daemon/external", "daemon/register"));
  EXPECT_THAT(names(plan_arms(EngineKind::kGpu, {"daemon", "drm"}, {"register", "register"})),
              ElementsAre("ordinary", "daemon/register", "drm/register"));
  EXPECT_THAT(names(plan_arms(EngineKind::kCpu, {"ordinary", "memfd", "memfd"}, {})),
              ElementsAre("ordinary", "ordinary#2", "memfd/host"));
  EXPECT_THAT(names(plan_arms(EngineKind::kGpu, {"memfd", "dma-heap"}, {})),
              ElementsAre("ordinary", "memfd/register", "dma-heap/external", "dma-heap/register"));
}

TEST(ProbeArms, ThatCannotBeHadSayWhy) {
  auto engine = open_cpu_engine(1);
  ASSERT_TRUE(engine);
  ArmSettings settings;
  settings.size = mib(2);
  settings.socket = "/nowhere/carveout.sock";
  settings.key_file = "/nowhere/key";
  const auto taken = take_arms(
      **engine, plan_arms(EngineKind::kCpu, {"daemon", "memfd", "cuda", "dma-heap"}, {}), settings);
  ASSERT_THAT(taken.records, SizeIs(5));
  EXPECT_THAT(taken.records[0].unavailable, IsEmpty());
  EXPECT_THAT(taken.records[1].unavailable, HasSubstr("--key-file: "));
  EXPECT_FALSE(taken.arms[1]);
  EXPECT_THAT(taken.records[2].unavailable, IsEmpty());
  EXPECT_THAT(taken.records[2].memory, HasSubstr("memfd"));
  EXPECT_THAT(taken.records[3].unavailable, Not(IsEmpty())) << "a GPU's memory, on the processor";
  EXPECT_THAT(taken.records[4].unavailable, HasSubstr("--heap: "));
  EXPECT_EQ(taken.records[0].page_bytes, taken.records[2].page_bytes)
      << "ordinary memory of pages like those that were lent";
}

TEST(ProbeSteps, OfTheTable) {
  EXPECT_THAT(bandwidth_steps({Row::kReread, Row::kWrite, Row::kLoad}, mib(512)),
              ElementsAre(Step{Row::kReread, mib(8)}, Step{Row::kWrite, mib(512)},
                          Step{Row::kLoad, mib(8)}));
  EXPECT_THAT(bandwidth_steps({Row::kReread, Row::kRead}, mib(4)),
              ElementsAre(Step{Row::kReread, mib(4)}, Step{Row::kRead, mib(4)}));
}

TEST(ProbeSteps, AreOverMuchMoreThanTheL2) {
  EXPECT_EQ(default_size(EngineKind::kCpu, mib(480)), mib(512));
  EXPECT_EQ(default_size(EngineKind::kGpu, Bytes(0)), mib(512)) << "it is not known";
  EXPECT_EQ(default_size(EngineKind::kGpu, mib(4)), mib(512));
  EXPECT_EQ(default_size(EngineKind::kGpu, mib(24)), mib(768)) << "GB10's";
  EXPECT_EQ(default_size(EngineKind::kGpu, mib(50)), mib(1600));
  EXPECT_EQ(default_size(EngineKind::kGpu, mib(128)), mib(1792)) << "no more than is lent";
}

TEST(ProbeSteps, WellInsideACache) {
  EXPECT_EQ(well_inside(mib(24)), mib(8)) << "GB10's L2";
  EXPECT_EQ(well_inside(mib(50)), mib(16));
  EXPECT_EQ(well_inside(mib(2)), kib(512));
  EXPECT_EQ(well_inside(Bytes(0)), mib(8)) << "it is not known";
}

std::vector<Bytes> sizes(const std::vector<Step>& steps) {
  std::vector<Bytes> all;
  for (const Step& step : steps)
    all.push_back(step.size);
  return all;
}

TEST(ProbeSteps, OfTheCurve) {
  const auto gpu = residency_steps(EngineKind::kGpu, mib(24), mib(8), mib(512));
  EXPECT_EQ(gpu.front(), (Step{Row::kRead, mib(512)})) << "the stream";
  EXPECT_EQ(gpu[1], (Step{Row::kReread, kib(256)}));
  EXPECT_EQ(gpu[2], (Step{Row::kReread, kib(384)}));
  EXPECT_EQ(gpu.back(), (Step{Row::kReread, mib(384)})) << "16 times the L2";
  EXPECT_THAT(gpu, Contains(Step{Row::kReread, mib(8)}));
  const auto cpu = residency_steps(EngineKind::kCpu, mib(480), kib(512), mib(64));
  EXPECT_EQ(cpu[1], (Step{Row::kReread, kib(16)}));
  EXPECT_EQ(cpu.back(), (Step{Row::kReread, mib(64)})) << "all there is";
  EXPECT_THAT(sizes(residency_steps(EngineKind::kGpu, Bytes(0), mib(8), mib(16))),
              ElementsAre(mib(16), kib(256), kib(384), kib(512), kib(768), mib(1), kib(1536),
                          mib(2), mib(3), mib(4), mib(6), mib(8), mib(12), mib(16)));
}

// An engine whose memory is as fast as a test says.
class MadeEngine : public Engine {
 public:
  using Rate = std::function<Result<double>(int bench, Row row, Bytes size)>;
  explicit MadeEngine(Rate rate) : rate_(std::move(rate)) {}

  [[nodiscard]] EngineKind kind() const override { return EngineKind::kCpu; }
  [[nodiscard]] std::string describe() const override { return "made"; }
  [[nodiscard]] std::vector<Row> rows() const override { return {Row::kReread, Row::kRead}; }
  void describe(Machine& machine) const override { machine.cache_bytes = {1024}; }
  [[nodiscard]] Bytes cache() const override { return kib(1); }
  void note(Moment& moment) const override { moment.celsius = 40; }
  Result<Ordinary> ordinary(Bytes size, std::uint64_t like) override {
    auto memory = std::make_shared<Anonymous>(std::move(*Anonymous::map(size, like)));
    const Place place{memory->address(), 0, size};
    return Ordinary{std::move(memory), place, "made", 0};
  }
  Result<std::unique_ptr<Bench>> bench(const Place&) override {
    return std::unique_ptr<Bench>(std::make_unique<MadeBench>(rate_, benches_++));
  }

 private:
  struct MadeBench : Bench {
    MadeBench(const Rate& rate, int number) : rate_(rate), number_(number) {}
    Result<double> repeat(Row row, Bytes size) override { return rate_(number_, row, size); }
    const Rate& rate_;
    int number_;
  };
  Rate rate_;
  int benches_ = 0;
};

bool never() {
  return false;
}

RunSettings with_memfd() {
  RunSettings settings;
  settings.arms.sources = {"memfd"};
  settings.arms.size = mib(2);
  settings.repetitions = 3;
  return settings;
}

TEST(ProbeRun, HasABatchOfEveryArmInEveryBlock) {
  MadeEngine engine([](int bench, Row row, Bytes) -> Result<double> {
    return bench == 0 ? 10 : row == Row::kRead ? 20 : 30;
  });
  std::size_t told = 0;
  const Report report = run_steps(
      "bandwidth", engine, with_memfd(), bandwidth_steps(engine.rows(), mib(2)),
      [&told](std::size_t done, std::size_t) { told = done; }, never);
  EXPECT_EQ(report.command, "bandwidth");
  EXPECT_EQ(report.engine_detail, "made");
  EXPECT_EQ(report.size, mib(2));
  EXPECT_THAT(report.arms, SizeIs(2));
  ASSERT_THAT(report.series, SizeIs(4));
  EXPECT_EQ(told, 4 * kLeastBlocks);
  for (const Series& series : report.series) {
    ASSERT_THAT(series.batches, SizeIs(kLeastBlocks));
    ASSERT_THAT(series.moments, SizeIs(kLeastBlocks));
    EXPECT_EQ(series.batches[0].count, 3U);
    EXPECT_EQ(series.moments[0].celsius, 40U) << "what the engine knows";
    EXPECT_THAT(series.moments[0].unix_s, Gt(1.7e9)) << "what the host knows";
  }
  EXPECT_EQ(find(report, 1, Row::kRead, mib(2))->batches[7].median, 20);
  EXPECT_EQ(find(report, 0, Row::kRead, mib(2))->batches[7].median, 10);
  EXPECT_GE(report.ended_unix_s, report.started_unix_s);
}

TEST(ProbeRun, EndsAnArmInEveryRowWithItsReason) {
  int asked = 0;
  MadeEngine engine([&asked](int bench, Row, Bytes) -> Result<double> {
    if (bench == 1 && ++asked > 40) return Error{Code::kSystem, 0, "memfd", "went away"};
    return 10;
  });
  const Report report = run_steps("bandwidth", engine, with_memfd(),
                                  bandwidth_steps(engine.rows(), mib(2)), {}, never);
  EXPECT_EQ(report.arms[1].ended, "memfd: went away");
  EXPECT_THAT(report.arms[0].ended, IsEmpty());
  EXPECT_EQ(asked, 41) << "in no row is it asked again";
  EXPECT_THAT(find(report, 0, Row::kReread, mib(2))->batches, SizeIs(kLeastBlocks));
  const Series& cut = *find(report, 1, Row::kReread, mib(2));
  EXPECT_THAT(cut.batches, Not(SizeIs(kLeastBlocks)));
  EXPECT_EQ(cut.batches.size(), cut.moments.size());
}

TEST(ProbeRun, EndsAllArmsWhenInterrupted) {
  static int asked = 0;
  asked = 0;
  MadeEngine engine([](int, Row, Bytes) -> Result<double> { return 10; });
  const Report report =
      run_steps("bandwidth", engine, with_memfd(), bandwidth_steps(engine.rows(), mib(2)), {},
                [] { return ++asked > 60; });
  for (const ArmRecord& arm : report.arms)
    EXPECT_THAT(arm.ended, StartsWith("interrupted"));
  for (const Series& series : report.series)
    EXPECT_THAT(series.batches, Not(IsEmpty())) << "what there was is reported";
}

TEST(ProbeRun, TriesEachRowBeforeItBegins) {
  MadeEngine engine([](int bench, Row row, Bytes) -> Result<double> {
    if (bench == 1 && row == Row::kRead) return Error{Code::kInvalid, 0, "reading", "is wrong"};
    return 10;
  });
  const Report report = run_steps("bandwidth", engine, with_memfd(),
                                  bandwidth_steps(engine.rows(), mib(2)), {}, never);
  EXPECT_EQ(report.arms[1].ended, "reading: is wrong");
  EXPECT_THAT(find(report, 1, Row::kReread, mib(2))->batches, IsEmpty());
}

TEST(ProbeRun, MeasuresNothingWhereOrdinaryMemoryIsAlone) {
  int asked = 0;
  MadeEngine engine([&asked](int, Row, Bytes) -> Result<double> { return ++asked; });
  RunSettings settings = with_memfd();
  settings.arms.sources = {"cuda"};
  const Report report =
      run_steps("bandwidth", engine, settings, bandwidth_steps(engine.rows(), mib(2)), {}, never);
  EXPECT_EQ(asked, 0);
  EXPECT_THAT(report.series, IsEmpty());
  ASSERT_THAT(report.arms, SizeIs(2));
  EXPECT_THAT(report.arms[0].unavailable, IsEmpty());
  EXPECT_THAT(report.arms[1].unavailable, Not(IsEmpty()));
  EXPECT_GE(report.ended_unix_s, report.started_unix_s);
  EXPECT_THAT(run_latency(engine, settings, {}, never).series, IsEmpty());
}

TEST(ProbeRun, MeasuresOrdinaryMemoryAgainstItself) {
  MadeEngine engine([](int, Row, Bytes) -> Result<double> { return 10; });
  RunSettings settings = with_memfd();
  settings.arms.sources = {"ordinary", "cuda"};
  const Report report =
      run_steps("bandwidth", engine, settings, bandwidth_steps(engine.rows(), mib(2)), {}, never);
  ASSERT_THAT(report.series, SizeIs(4)) << "what cannot be had is no reason against the rest";
  EXPECT_THAT(report.series[1].batches, SizeIs(kLeastBlocks));
}

TEST(ProbeRun, MeasuresClaimingAndGivingBack) {
  auto engine = open_cpu_engine(1);
  ASSERT_TRUE(engine);
  RunSettings settings = with_memfd();
  settings.arms.sources.emplace_back("cuda");
  const Report report = run_latency(**engine, settings, {}, never);
  EXPECT_EQ(report.command, "latency");
  EXPECT_THAT(report.arms[2].unavailable, Not(IsEmpty()));
  ASSERT_THAT(report.series, SizeIs(4)) << "of two arms that there are";
  for (const Series& series : report.series) {
    ASSERT_THAT(series.batches, SizeIs(kLeastBlocks));
    EXPECT_THAT(series.batches[0].median, Gt(0));
  }
}

TEST(ProbeRun, TellsWhatIsThereWithoutMeasuring) {
  auto engine = open_cpu_engine(1);
  ASSERT_TRUE(engine);
  const Report report = run_info(**engine, with_memfd());
  EXPECT_EQ(report.command, "info");
  EXPECT_THAT(report.arms, SizeIs(2));
  EXPECT_THAT(report.arms[1].memory, HasSubstr("memfd"));
  EXPECT_THAT(report.series, IsEmpty());
  EXPECT_THAT(report.machine.kernel, StartsWith("Linux"));
}

}  // namespace
}  // namespace carveout::probe
