// How a run ends, by what it has found.

#include "outcome.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "exit_codes.hpp"
#include "unit/probe_reports.hpp"

namespace carveout::probe {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;

// Ordinary memory, and one arm that is read again at such a rate.
Report with_reread(double rate) {
  Report report = residency_report();
  report.arms.resize(2);
  report.series = {series_of(0, Row::kRead, report.size, 245),
                   series_of(1, Row::kRead, report.size, 244),
                   series_of(0, Row::kReread, report.reread_size, 810),
                   series_of(1, Row::kReread, report.reread_size, rate)};
  return report;
}

TEST(ProbeOutcome, IsGoodWhereAllWasMeasured) {
  EXPECT_EQ(outcome_of(bandwidth_report(), {"memfd"}, false).code, kDone);
  EXPECT_THAT(outcome_of(bandwidth_report(), {"memfd"}, false).complaint, IsEmpty());
}

TEST(ProbeOutcome, IsAFailureWhereAnArmEnded) {
  const Outcome ended = outcome_of(residency_report(), {"daemon"}, false);
  EXPECT_EQ(ended.code, kFailed);
  EXPECT_THAT(ended.complaint, HasSubstr("daemon/register ended early: "));
}

TEST(ProbeOutcome, IsAFailureWhereASourceGaveNothing) {
  Report report = with_reread(800);
  EXPECT_EQ(outcome_of(report, {"daemon"}, false).code, kDone);
  const Outcome missing = outcome_of(report, {"daemon", "drm"}, false);
  EXPECT_EQ(missing.code, kFailed);
  EXPECT_THAT(missing.complaint, HasSubstr("no memory of drm could be had"));
  report.arms[0].unavailable = "no memory left";
  const Outcome nothing = outcome_of(report, {"daemon"}, false);
  EXPECT_EQ(nothing.code, kFailed);
  EXPECT_THAT(nothing.complaint, HasSubstr("no memory left"));
}

TEST(ProbeOutcome, SaysWhyNothingWasMeasured) {
  Report report = with_reread(800);
  report.arms[1].unavailable = "no lender answers there";
  report.series.clear();
  const Outcome alone = outcome_of(report, {"daemon"}, true);
  EXPECT_EQ(alone.code, kFailed) << "not refused: it was not judged";
  EXPECT_THAT(alone.complaint, AllOf(HasSubstr("no lender answers there; nothing was measured"),
                                     HasSubstr("--source ordinary measures it against itself")));
  report.command = "info";
  EXPECT_THAT(outcome_of(report, {"daemon"}, false).complaint, Not(HasSubstr("--source")));
}

TEST(ProbeOutcome, IsAFailureWhereOrdinaryMemoryHasNoSecond) {
  Report report = with_reread(800);
  report.arms[1] = {"ordinary#2", "ordinary", "", "", 0, "", ""};
  EXPECT_EQ(outcome_of(report, {"ordinary"}, false).code, kDone);
  report.arms[1].unavailable = "no memory left";
  report.series.clear();
  const Outcome failed = outcome_of(report, {"ordinary"}, false);
  EXPECT_EQ(failed.code, kFailed);
  EXPECT_THAT(failed.complaint, EndsWith("could be had: ordinary#2: no memory left"));
}

TEST(ProbeOutcome, RequiresResidencyOfEveryArm) {
  EXPECT_EQ(outcome_of(with_reread(800), {"daemon"}, true).code, kDone);
  for (const double rate : {209.0, 244.0, 400.0}) {
    const Outcome refused = outcome_of(with_reread(rate), {"daemon"}, true);
    EXPECT_EQ(refused.code, kRefused) << rate;
    EXPECT_THAT(refused.complaint,
                AllOf(HasSubstr("daemon/vmm is required to be resident"), HasSubstr("gain")));
    EXPECT_EQ(outcome_of(with_reread(rate), {"daemon"}, false).code, kDone);
  }
  Report none = with_reread(800);
  none.arms[1].unavailable = "cuMemMap failed";
  none.series.resize(1);
  EXPECT_EQ(outcome_of(none, {}, true).code, kRefused) << "nothing was found to be resident";
}

TEST(ProbeOutcome, NamesAllThatAreNotResidentAndWhatIsLentFirst) {
  Report report = with_reread(209);
  report.arms.insert(report.arms.begin() + 1, {"cuda/vmm", "cuda", "vmm", "", 0, "", ""});
  report.arms.push_back({"daemon/external", "daemon", "external", "", 0, "", ""});
  report.arms.push_back({"daemon/register", "daemon", "register", "", 0, "", ""});
  for (Series& series : report.series)
    if (series.arm == 1) series.arm = 2;
  for (const auto& [arm, rate] : {std::pair{1U, 210.0}, {3U, 400.0}, {4U, 800.0}}) {
    report.series.push_back(series_of(arm, Row::kRead, report.size, 244));
    report.series.push_back(series_of(arm, Row::kReread, report.reread_size, rate));
  }
  const Outcome refused = outcome_of(report, {"cuda", "daemon"}, true);
  EXPECT_EQ(refused.code, kRefused);
  EXPECT_THAT(refused.complaint,
              MatchesRegex("daemon/vmm is required to be resident, and is not resident: [^;]*; "
                           "daemon/external is required to be resident, and is partly: [^;]*; "
                           "cuda/vmm is required to be resident, and is not resident: [^;]*"));
}

}  // namespace
}  // namespace carveout::probe
