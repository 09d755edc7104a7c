// What follows from made reports: verdicts, comparisons, and what a reader is told besides.

#include "findings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "probe_reports.hpp"

namespace carveout::probe {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

const AgainstOrdinary* find_one(const std::vector<AgainstOrdinary>& all, std::size_t arm, Row row) {
  const auto one = std::find_if(all.begin(), all.end(), [&](const AgainstOrdinary& other) {
    return other.arm == arm && other.row == row;
  });
  return one == all.end() ? nullptr : &*one;
}

void for_moments(Report& report, std::size_t arm, void (*change)(Moment&)) {
  for (Series& series : report.series) {
    if (series.arm == arm) std::for_each(series.moments.begin(), series.moments.end(), change);
  }
}

TEST(ProbeFindings, CompareEachArmWithOrdinaryMemoryRowByRow) {
  const auto all = against_ordinary(bandwidth_report());
  EXPECT_THAT(all, SizeIs(7));
  EXPECT_THAT(all, Each(testing::Field(&AgainstOrdinary::arm, 1U)));
  const AgainstOrdinary* read = find_one(all, 1, Row::kRead);
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(read->comparison.verdict, Verdict::kLess);
  EXPECT_NEAR(read->comparison.difference, -0.167, 0.01);
  EXPECT_EQ(find_one(all, 1, Row::kWrite)->comparison.verdict, Verdict::kMore);
  EXPECT_EQ(find_one(all, 1, Row::kCopyInto)->comparison.verdict, Verdict::kInconclusive);
}

TEST(ProbeFindings, CompareOverTheBlocksThatBothHave) {
  Report report = bandwidth_report();
  report.series[3].batches.resize(5);  // read, of the lent arm
  report.series[5].batches.clear();    // write, of the lent arm
  const auto all = against_ordinary(report);
  EXPECT_EQ(find_one(all, 1, Row::kRead)->comparison.blocks, 5U);
  EXPECT_EQ(find_one(all, 1, Row::kRead)->comparison.verdict, Verdict::kInconclusive);
  EXPECT_EQ(find_one(all, 1, Row::kWrite), nullptr) << "there is nothing to compare";
}

TEST(ProbeFindings, SayWhatAConclusiveRunWouldNeed) {
  Report report = bandwidth_report();
  const auto sentences = wanting(report);
  EXPECT_THAT(sentences,
              Contains(AllOf(HasSubstr("copy into (memfd/host)"),
                             HasSubstr("blocks whose differences lie within 0.3 %, not 3.9 %"))));
  EXPECT_THAT(sentences, Each(Not(HasSubstr("write, one pass"))));
  for (Series& series : report.series)
    series.batches.resize(2);
  // All need the same: one sentence.
  EXPECT_THAT(wanting(report), ElementsAre(HasSubstr("8 blocks, of which there are 2")));
}

TEST(ProbeFindings, JudgeRereadingAgainstTheArmsOwnStreaming) {
  const auto all = residencies(residency_report());
  ASSERT_THAT(all, SizeIs(2)) << "not ordinary memory, nor what could not be had";
  EXPECT_EQ(all[0].arm, 1U);
  EXPECT_EQ(all[0].verdict.residency, Residency::kNotResident);
  EXPECT_NEAR(all[0].verdict.lent.difference, 209.0 / 244 - 1, 0.02);
  EXPECT_NEAR(all[0].verdict.ordinary.difference, 812.0 / 245 - 1, 0.05);
  EXPECT_EQ(all[1].arm, 2U);
  EXPECT_EQ(all[1].verdict.residency, Residency::kInconclusive) << "three blocks";
  EXPECT_STREQ(name_of(all[0].verdict.residency), "not resident");
  EXPECT_STREQ(name_of(Residency::kResident), "resident");
  EXPECT_STREQ(name_of(Residency::kPartly), "partly");
  EXPECT_STREQ(name_of(Residency::kInconclusive), "inconclusive");
}

TEST(ProbeFindings, JudgeNothingThatWasNotMeasured) {
  Report report = residency_report();
  report.command = "bandwidth";
  EXPECT_THAT(residencies(report), IsEmpty());
  report.command = "residency";
  report.reread_size = mib(7);
  EXPECT_THAT(residencies(report), IsEmpty()) << "there is no such series";
  report = residency_report();
  for (Series& series : report.series)
    if (series.arm == 2 && series.row == Row::kRead) series.batches.clear();
  EXPECT_THAT(residencies(report), SizeIs(1));
  std::erase_if(report.series, [](const Series& series) { return series.arm == 0; });
  const auto alone = residencies(report);
  ASSERT_THAT(alone, SizeIs(1));
  EXPECT_EQ(alone[0].verdict.residency, Residency::kInconclusive);
  EXPECT_THAT(alone[0].verdict.why, HasSubstr("ordinary memory was not measured"));
}

// On a GPU whose memory has more than half of its L2's rate, the time that a pass takes to begin is
// a gain of much the same size for both, if there is little else to a pass.
TEST(ProbeFindings, JudgeNothingByAStreamThatTheCacheHolds) {
  Report report = residency_report();
  const auto set = [&report](std::size_t arm, Row row, Bytes size, double rate) {
    for (Series& series : report.series) {
      if (series.arm != arm || series.row != row || series.size != size) continue;
      for (Batch& batch : series.batches)
        batch.median = rate;
    }
  };
  const auto rates_over = [&](Bytes stream) {
    for (Series& series : report.series)
      if (series.row == Row::kRead) series.size = stream;
    report.size = stream;
    const double begun_ns = 4000;
    for (const auto& [arm, rate] : {std::pair<std::size_t, double>{0, 5000}, {1, 3000}}) {
      const auto bytes = static_cast<double>(stream.count());
      set(arm, Row::kReread, report.reread_size, rate);
      set(arm, Row::kRead, stream, bytes / (bytes / rate + begun_ns));
    }
    return residencies(report).at(0).verdict;
  };
  const ResidencyVerdict held = rates_over(mib(16));
  EXPECT_EQ(held.lent.verdict, Verdict::kMore);
  EXPECT_GT(held.lent.difference, held.ordinary.difference / 2) << "what would be resident";
  EXPECT_EQ(held.residency, Residency::kInconclusive);
  EXPECT_THAT(held.why, AllOf(HasSubstr("16 MiB is less than 4 times the GPU's L2 (24 MiB)"),
                              HasSubstr("take --size 96MiB or more")));
  EXPECT_NE(rates_over(mib(95)).why.find("is less than"), std::string::npos);
  EXPECT_EQ(rates_over(mib(96)).why.find("is less than"), std::string::npos);
  report.machine.cache_bytes.clear();
  EXPECT_EQ(rates_over(mib(16)).why.find("is less than"), std::string::npos) << "not known";
}

TEST(ProbeFindings, JudgeAProcessorByItsSecondCache) {
  const std::vector<std::uint64_t> caches{kib(48).count(), mib(2).count(), mib(480).count()};
  EXPECT_EQ(judged_cache(EngineKind::kCpu, caches), mib(2));
  EXPECT_EQ(judged_cache(EngineKind::kCpu, {kib(48).count()}), kib(48));
  EXPECT_EQ(judged_cache(EngineKind::kGpu, {mib(24).count()}), mib(24));
  EXPECT_EQ(judged_cache(EngineKind::kGpu, {}), Bytes(0));
}

// --- remarks ---

TEST(ProbeRemarks, AreNoneWhereAllWasAlike) {
  EXPECT_THAT(remarks(residency_report()), IsEmpty());
  EXPECT_THAT(remarks(bandwidth_report()), IsEmpty());
  EXPECT_THAT(remarks(latency_report()), IsEmpty());
}

TEST(ProbeRemarks, TellPagesOfDifferentSizes) {
  Report report = bandwidth_report();
  report.arms[1].page_bytes = mib(2).count();
  EXPECT_THAT(remarks(report),
              ElementsAre(AllOf(HasSubstr("4 KiB with ordinary; 2 MiB with memfd/host"),
                                HasSubstr("pages of different sizes"))));
  // One that was not measured has no part in it, nor has one whose pages are not known.
  report.arms[1].unavailable = "no memory";
  EXPECT_THAT(remarks(report), IsEmpty());
  report.arms[1].unavailable.clear();
  report.arms[1].page_bytes = 0;
  EXPECT_THAT(remarks(report), IsEmpty());
}

TEST(ProbeRemarks, TellThatItIsNotKnownWhoHasLent) {
  Report report = bandwidth_report();
  report.machine.lender = "not known: control socket c.sock: nobody answers";
  EXPECT_THAT(remarks(report), IsEmpty()) << "a memfd of its own is nobody's loan";
  report.arms[1].source = "daemon";
  EXPECT_THAT(remarks(report),
              ElementsAre(AllOf(HasSubstr("is not known: control socket c.sock: nobody answers."),
                                HasSubstr("--control"))));
  report.arms[1].unavailable = "no memory";
  EXPECT_THAT(remarks(report), IsEmpty());
}

TEST(ProbeRemarks, TellConditionsThatDifferBetweenArms) {
  struct Case {
    void (*change)(Moment&);
    const char* says;
  };
  const std::vector<Case> cases{
      {[](Moment& moment) { moment.load_average = 1.25; },
       "the load average was 1.25 with daemon/vmm where ordinary memory had 0.50"},
      {[](Moment& moment) { moment.sm_mhz = 2200; },
       "the GPU's clock was 2200 MHz with daemon/vmm where ordinary memory had 2400 MHz"},
      {[](Moment& moment) { moment.memory_mhz = 3000; }, "the GPU memory's clock was 3000 MHz"},
      {[](Moment& moment) { moment.celsius = 60; }, "the GPU's temperature was 60"},
      {[](Moment& moment) { moment.other_processes = 1; },
       "the number of other processes on the GPU was 1"},
      {[](Moment& moment) { moment.governor = "powersave"; }, "(performance; powersave)"},
  };
  for (const Case& one : cases) {
    Report report = residency_report();
    for_moments(report, 1, one.change);
    EXPECT_THAT(remarks(report), ElementsAre(HasSubstr(one.says)));
  }
}

TEST(ProbeRemarks, PutArmsTogetherThatDifferAlike) {
  Report report = residency_report();
  for_moments(report, 1, [](Moment& moment) { moment.load_average = 2; });
  for_moments(report, 2, [](Moment& moment) { moment.load_average = 3; });
  EXPECT_THAT(remarks(report),
              ElementsAre(HasSubstr("was 2.00 with daemon/vmm, 3.00 with daemon/register where "
                                    "ordinary memory had 0.50. Run again")));
}

TEST(ProbeRemarks, LeaveSmallDifferencesOfConditionsAlone) {
  Report report = residency_report();
  for_moments(report, 1, [](Moment& moment) {
    moment.load_average = 0.9;
    moment.sm_mhz = 2300;
    moment.celsius = 55;
  });
  EXPECT_THAT(remarks(report), IsEmpty());
}

TEST(ProbeRemarks, HoldConditionsAgainstThoseOfTheSameBlocks) {
  // The load rises for all; the arm that ended early has seen less of it.
  Report report = residency_report();
  for (Series& series : report.series) {
    for (std::size_t i = 3; i < series.moments.size(); ++i)
      series.moments[i].load_average = 3;
  }
  EXPECT_THAT(remarks(report), IsEmpty());
}

TEST(ProbeRemarks, TellAStreamThatTheCachesMayHold) {
  Report report = residency_report();
  report.machine.cache_bytes = {mib(65).count()};
  EXPECT_THAT(
      remarks(report),
      ElementsAre(AllOf(HasSubstr("256 MiB is less than 4 times the largest cache, L2 (65 MiB)"),
                        HasSubstr("part of the stream may come from there"),
                        HasSubstr("--size 260MiB or more"))));
  report.machine.cache_bytes = {mib(64).count()};
  EXPECT_THAT(remarks(report), IsEmpty()) << "four times is enough";
  Report latency = latency_report();
  latency.machine.cache_bytes = {gib(1).count()};
  EXPECT_THAT(remarks(latency), IsEmpty()) << "nothing is streamed";
}

// One remark may be about a cache that the verdict is not about: each says which it means.
TEST(ProbeRemarks, SayWhichCacheTheyMean) {
  Report report = residency_report();
  report.engine = EngineKind::kCpu;
  const auto remark = [&report](Bytes second, Bytes third) {
    report.machine.cache_bytes = {kib(48).count(), second.count(), third.count()};
    const auto all = remarks(report);
    return all.size() == 1 ? all[0] : "";
  };
  EXPECT_THAT(remark(mib(2), mib(480)),
              AllOf(HasSubstr("the largest cache, L3 (480 MiB)"),
                    HasSubstr("The verdict is about a smaller one, the processor's L2 (2 MiB), for "
                              "which the stream is large enough.")));
  EXPECT_THAT(residencies(report)[0].verdict.why, Not(HasSubstr("is less than")));
  EXPECT_THAT(remark(mib(65), mib(480)), HasSubstr("L2 (65 MiB), for which the stream is too small "
                                                   "as well."));
  EXPECT_THAT(residencies(report)[0].verdict.why,
              HasSubstr("less than 4 times the processor's L2 (65 MiB), and part of it"));
  report.command = "bandwidth";
  EXPECT_THAT(remark(mib(2), mib(480)), Not(HasSubstr("verdict"))) << "there is none";
}

TEST(ProbeRemarks, CallDriftWhatDriftsAndNotWhatTakesTurns) {
  std::vector<double> rising{0}, alternating{0};
  for (int i = 0; i < 20; ++i) {
    rising.push_back(100 + i);
    alternating.push_back(i % 2 == 0 ? 100 : 120);
  }
  const auto remarks_on = [](const std::vector<double>& repetitions) {
    Report report = bandwidth_report();
    for (Batch& batch : report.series[2].batches)
      batch = summarize(repetitions);
    return remarks(report);
  };
  EXPECT_THAT(remarks_on(rising), ElementsAre(HasSubstr("read, one pass (ordinary) 0.85")));
  EXPECT_THAT(remarks_on(alternating), IsEmpty());
}

TEST(ProbeRemarks, NameTheSeriesWhoseRepetitionsDrift) {
  Report report = bandwidth_report();
  const auto drift = [&report](std::size_t series, double lag) {
    for (Batch& batch : report.series[series].batches)
      batch.autocorrelation = lag;
  };
  drift(2, 0.8);
  EXPECT_THAT(remarks(report), ElementsAre(AllOf(HasSubstr("drift within their batches"),
                                                 HasSubstr("read, one pass (ordinary) 0.80"))));
  for (std::size_t i = 0; i < report.series.size(); ++i)
    drift(i, 0.9);
  EXPECT_THAT(remarks(report), ElementsAre(HasSubstr("; and 8 more")));
  // One batch among eight is not typical.
  report = bandwidth_report();
  report.series[2].batches[0].autocorrelation = 0.99;
  EXPECT_THAT(remarks(report), IsEmpty());
  // A curve's sizes are not told one by one.
  report = residency_report();
  for (std::size_t i = 0; i < 6; ++i)
    drift(i, 0.5 + 0.05 * static_cast<double>(i + 1));
  EXPECT_THAT(remarks(report),
              ElementsAre(AllOf(HasSubstr("reread at 2 sizes (ordinary) up to 0.70"),
                                HasSubstr("reread at 2 sizes (daemon/vmm) up to 0.75"))));
}

}  // namespace
}  // namespace carveout::probe
