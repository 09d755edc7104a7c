// What to do about a loan, from made reports.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "findings.hpp"
#include "probe_reports.hpp"

namespace carveout::probe {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Rates of rereading beside a streaming of 245 GB/s, which ordinary memory rereads at 812.
constexpr double kKept = 790, kKeptInPart = 400, kNotKept = 209;
constexpr double kNoisy = -1;  // no answer

struct Way {
  const char* source;
  const char* map;
  double reread;
  const char* ended = "";
};

Report report_of(const std::vector<Way>& ways) {
  Report report = residency_report();
  report.arms.resize(1);
  report.series = {series_of(0, Row::kReread, report.reread_size, 812),
                   series_of(0, Row::kRead, report.size, 245)};
  for (const Way& way : ways) {
    const std::size_t arm = report.arms.size();
    const std::string name = std::string(way.source) + "/" + way.map;
    report.arms.push_back({name, way.source, way.map, "", 0, "", way.ended});
    const bool is_noisy = way.reread == kNoisy;
    report.series.push_back(series_of(arm, Row::kReread, report.reread_size,
                                      is_noisy ? 300 : way.reread, is_noisy ? 3 : 8));
    report.series.push_back(series_of(arm, Row::kRead, report.size, 245));
  }
  return report;
}

std::string decided(const std::vector<Way>& ways) {
  return decision(report_of(ways));
}

TEST(ProbeDecision, IsToTakeTheLoanByWhatIsResident) {
  EXPECT_EQ(decided({{"daemon", "vmm", kNotKept}, {"daemon", "external", kKept}}),
            "Take the loan by CARVEOUT_MAP=external.");
  EXPECT_EQ(decided({{"daemon", "vmm", kKept}, {"daemon", "external", kKept}}),
            "Take the loan by CARVEOUT_MAP=vmm or external.");
  EXPECT_EQ(
      decided(
          {{"daemon", "vmm", kKept}, {"daemon", "external", kKept}, {"daemon", "register", kKept}}),
      "Take the loan by CARVEOUT_MAP=vmm, external or register.");
  // What is resident counts, whatever the others are.
  EXPECT_EQ(decided({{"daemon", "vmm", kNoisy},
                     {"daemon", "external", kKeptInPart},
                     {"daemon", "register", kKept}}),
            "Take the loan by CARVEOUT_MAP=register.");
}

TEST(ProbeDecision, NamesTheSourceWhereItIsNotTheLibrarysDefault) {
  EXPECT_EQ(decided({{"memfd", "register", kKept}}),
            "Take the loan by CARVEOUT_SOURCE=memfd and CARVEOUT_MAP=register.");
  EXPECT_EQ(
      decided(
          {{"drm", "external", kKept}, {"daemon", "external", kKept}, {"drm", "register", kKept}}),
      "Take the loan by CARVEOUT_SOURCE=drm and CARVEOUT_MAP=external or register, or by "
      "CARVEOUT_MAP=external.");
  EXPECT_THAT(decided({{"dma-heap", "external", kKept}}), HasSubstr("CARVEOUT_SOURCE=dma-heap"));
}

TEST(ProbeDecision, LeavesWhatIsNotKeptToWhatIsReadOnce) {
  const std::string decision = decided({{"daemon", "vmm", kNotKept}, {"daemon", "external", 245}});
  EXPECT_EQ(decision,
            "No way of mapping that was measured is kept: leave the loan to what is read once, "
            "unless a long prompt says otherwise. First ask for daemon/register, which was not "
            "asked for: --map auto does. Then try the other lend-as.");
  EXPECT_EQ(decided({{"daemon", "vmm", kNotKept},
                     {"daemon", "external", kNotKept},
                     {"daemon", "register", kNotKept}}),
            "No way of mapping that was measured is kept: leave the loan to what is read once, "
            "unless a long prompt says otherwise. Try the other lend-as first.");
  EXPECT_THAT(decided({{"memfd", "register", kNotKept}}),
              AllOf(EndsWith("says otherwise."), Not(HasSubstr("lend-as"))));
}

// They may be kept, and one of them costs less to try than other memory.
TEST(ProbeDecision, SendsToTheWaysThatWereNotMeasuredFirst) {
  EXPECT_THAT(decided({{"daemon", "vmm", kNotKept}}),
              EndsWith(" First ask for daemon/external and daemon/register, which were not asked "
                       "for: --map auto does. Then try the other lend-as."));
  EXPECT_THAT(decided({{"dma-heap", "external", kNotKept}}),
              EndsWith(" First ask for dma-heap/register, which was not asked for: --map auto "
                       "does."));
  Report report = report_of({{"daemon", "vmm", kNotKept},
                             {"daemon", "external", kNotKept},
                             {"daemon", "register", kKept}});
  report.arms[3].unavailable = "not enough is free";
  EXPECT_THAT(decision(report), EndsWith(" Why daemon/register could not be had is below. Then try "
                                         "the other lend-as."));
  report.arms.erase(report.arms.begin() + 2);
  std::erase_if(report.series, [](const Series& series) { return series.arm > 1; });
  EXPECT_THAT(decision(report),
              EndsWith(" First ask for daemon/external, which was not asked for: --map auto does. "
                       "Why daemon/register could not be had is below. Then try the other "
                       "lend-as."));
  // Not of a source that is no loan.
  EXPECT_THAT(decided({{"cuda", "register", kNotKept}, {"memfd", "register", kNotKept}}),
              EndsWith("says otherwise."));
}

TEST(ProbeDecision, LetsALongPromptDecideWhatIsKeptInPart) {
  EXPECT_EQ(decided({{"daemon", "vmm", kKeptInPart}, {"daemon", "external", kNotKept}}),
            "No way of mapping that was measured is kept whole: see in the curve where daemon/vmm "
            "leaves ordinary memory's, and without a better way let a long prompt decide. First "
            "ask for daemon/register, which was not asked for: --map auto does. Then try the other "
            "lend-as.");
  EXPECT_THAT(decided({{"daemon", "vmm", kKeptInPart},
                       {"daemon", "external", kKeptInPart},
                       {"daemon", "register", kNoisy}}),
              AllOf(HasSubstr("where daemon/vmm and daemon/external leave"),
                    HasSubstr("Of daemon/register there is no answer yet. Try the other "
                              "lend-as first.")));
}

TEST(ProbeDecision, IsNoneWhereThereIsNoAnswer) {
  EXPECT_EQ(decided({{"daemon", "vmm", kNoisy}}),
            "Decide nothing yet: there is no answer, neither yes nor no, of daemon/vmm. What the "
            "reason given says has to be mended first; then measure again.");
  EXPECT_THAT(decided({{"daemon", "vmm", kNoisy}, {"daemon", "external", kNotKept}}),
              HasSubstr("of daemon/vmm (daemon/external is not kept). What"));
}

// Of blocks between 1 and 5 times as fast as streaming: no gain that stands out, nor none.
void scatter(Report& report, std::size_t arm) {
  for (Series& series : report.series) {
    if (series.arm != arm || series.row != Row::kReread) continue;
    for (std::size_t i = 0; i < series.batches.size(); ++i)
      series.batches[i].median = i % 2 == 0 ? 1200 : 250;
  }
}

TEST(ProbeDecision, AsksForAQuietMachineWhereBlocksScatterAlone) {
  constexpr const char* kQuiet = "quiet machine";
  Report report = report_of({{"daemon", "vmm", kKept}, {"daemon", "external", kKept}});
  scatter(report, 1);
  scatter(report, 2);
  EXPECT_THAT(decision(report), EndsWith("external. Measure again on a quiet machine."));
  report.arms[2].ended = "interrupted";
  EXPECT_THAT(decision(report), EndsWith("Measure again on a quiet machine, once what the reason "
                                         "given for daemon/external says is mended."));
  report.arms[1].ended = "the lender was killed";
  EXPECT_THAT(decision(report), Not(HasSubstr(kQuiet)));
  // By what it is judged by.
  report = report_of({{"daemon", "vmm", kKept}});
  scatter(report, 0);
  EXPECT_THAT(decision(report), HasSubstr(kQuiet));
  report.size = mib(64);
  for (Series& series : report.series)
    if (series.row == Row::kRead) series.size = report.size;
  EXPECT_THAT(residencies(report).at(0).verdict.why, HasSubstr("take --size "));
  EXPECT_THAT(decision(report), AllOf(StartsWith("Decide nothing yet"), Not(HasSubstr(kQuiet))));
  report = report_of({{"daemon", "vmm", kKept}});
  for (Series& series : report.series)
    if (series.arm == 0 && series.row == Row::kReread)
      series = series_of(0, series.row, series.size, 200);
  EXPECT_THAT(residencies(report).at(0).verdict.why, HasSubstr("ordinary memory shows no gain"));
  EXPECT_THAT(decision(report), AllOf(StartsWith("Decide nothing yet"), Not(HasSubstr(kQuiet))));
}

// It may have ended because its data was wrong.
TEST(ProbeDecision, IsNeverForWhatEndedEarly) {
  for (const double rate : {kKept, kKeptInPart, kNotKept}) {
    const Report report = report_of({{"daemon", "vmm", rate, "its data was wrong"}});
    EXPECT_NE(residencies(report).at(0).verdict.residency, Residency::kInconclusive);
    EXPECT_THAT(decision(report), StartsWith("Decide nothing yet: "));
  }
  Report silent = report_of({{"daemon", "vmm", kKept, "the lender left"}});
  silent.series.resize(2);
  EXPECT_THAT(decision(silent), StartsWith("Decide nothing yet: "));
}

TEST(ProbeDecision, IsAboutWhatIsLentAlone) {
  EXPECT_EQ(decided({{"cuda", "vmm", kNotKept}, {"daemon", "external", kKept}}),
            "Take the loan by CARVEOUT_MAP=external.");
  EXPECT_THAT(decided({{"cuda", "vmm", kKept}, {"daemon", "vmm", kNotKept}}),
              StartsWith("No way of mapping that was measured is kept: "));
  EXPECT_THAT(decided({{"cuda", "vmm", kKept}}),
              HasSubstr("nothing that is lent was measured. --source daemon"));
  Report refused = report_of({{"daemon", "vmm", kKept}});
  refused.arms[1].unavailable = "nobody listens";
  EXPECT_THAT(decision(refused), HasSubstr("no lent memory was to be had"));
}

TEST(ProbeDecision, IsNoneByTheProcessorAndOfOtherCommands) {
  Report report = report_of({{"daemon", "vmm", kKept}});
  report.engine = EngineKind::kCpu;
  EXPECT_THAT(decision(report),
              AllOf(StartsWith("This is about the processor's caches"),
                    HasSubstr("decides nothing about a GPU"), Not(HasSubstr("CARVEOUT_MAP"))));
  report = report_of({{"daemon", "vmm", kKept}});
  report.command = "bandwidth";
  EXPECT_EQ(decision(report), "");
}

TEST(ProbeDecision, SendsNoControlCharacters) {
  Report report = report_of({{"daemon", "vmm", kKept}});
  report.arms[1].map = "vmm\033[31m";
  EXPECT_EQ(decision(report).find('\033'), std::string::npos);
}

}  // namespace
}  // namespace carveout::probe
