// The terminal's curve of rereading, from rates that are known.

#include "show/curve.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "probe_reports.hpp"
#include "show/reread_curve.hpp"
#include "writing.hpp"

namespace carveout::probe {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// The rows of the chart alone, without what is left of its axis.
std::vector<std::string> chart_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> rows;
  for (std::string line; std::getline(stream, line);) {
    for (const std::string_view axis : {"│", "┤"}) {
      const std::size_t at = line.find(axis);
      if (at != std::string::npos) rows.push_back(line.substr(at + axis.size()));
    }
  }
  return rows;
}

struct Mark {
  std::size_t row = 0, column = 0;
  friend bool operator==(const Mark&, const Mark&) = default;
};

std::vector<Mark> marks_of(const std::vector<std::string>& chart, std::string_view mark) {
  std::vector<Mark> found;
  for (std::size_t row = 0; row < chart.size(); ++row) {
    for (std::size_t at = chart[row].find(mark); at != std::string::npos;
         at = chart[row].find(mark, at + 1)) {
      found.push_back({row, width(std::string_view(chart[row]).substr(0, at))});
    }
  }
  return found;
}

// Steady rates, one a size: 1 MiB, 2 MiB, 4 MiB, ...
Report report_of(const std::vector<std::vector<double>>& arms) {
  Report report = residency_report();
  report.series.clear();
  for (std::size_t arm = 0; arm < arms.size(); ++arm) {
    for (std::size_t i = 0; i < arms[arm].size(); ++i) {
      Series series{arm, Row::kReread, mib(std::uint64_t{1} << i), {}, {}};
      series.batches.assign(8,
                            {.cold = 1, .median = arms[arm][i], .autocorrelation = 0, .count = 9});
      report.series.push_back(series);
    }
  }
  return report;
}

TEST(ProbeCurve, PutsTheLargestRateInTheTopRowAndNothingInTheLowest) {
  const auto chart = chart_of(terminal_curve(report_of({{600, 300, 0.001}}), 67));
  ASSERT_THAT(chart, SizeIs(16));
  EXPECT_THAT(marks_of(chart, "●"), ElementsAre(Mark{0, 0}, Mark{8, 30}, Mark{15, 59}));
}

TEST(ProbeCurve, HasAMarkForEachArmAndNamesIt) {
  const std::string text = terminal_curve(report_of({{600, 600, 300}, {150, 150, 150}}), 67);
  const auto chart = chart_of(text);
  EXPECT_THAT(marks_of(chart, "●"), SizeIs(3));
  EXPECT_THAT(marks_of(chart, "○"), ElementsAre(Mark{11, 0}, Mark{11, 30}, Mark{11, 59}));
  EXPECT_THAT(text, AllOf(HasSubstr("● ordinary"), HasSubstr("○ daemon/vmm"),
                          Not(HasSubstr("side by side"))));
}

TEST(ProbeCurve, PutsMarksOfOnePlaceBesideEachOther) {
  const std::string text = terminal_curve(report_of({{600, 600}, {600, 300}}), 67);
  EXPECT_THAT(marks_of(chart_of(text), "●"), ElementsAre(Mark{0, 0}, Mark{0, 59}));
  EXPECT_THAT(marks_of(chart_of(text), "○"), ElementsAre(Mark{0, 1}, Mark{8, 59}));
  EXPECT_THAT(text, HasSubstr("side by side"));
}

TEST(ProbeCurve, LabelsSizesRatesAndTheEndsOfCaches) {
  Report report = report_of({{800, 700, 600, 500, 400, 300}});
  report.machine.cache_bytes = {mib(8).count()};
  const std::string text = terminal_curve(report, 67);
  for (const char* label : {"GB/s", " 1 MiB", " 32 MiB", "800 ┤", "400 ┤", "  0 ┤", "L2 8 MiB"})
    EXPECT_THAT(text, HasSubstr(label));
  const auto ends = marks_of(chart_of(text), "┊");
  ASSERT_THAT(ends, Not(IsEmpty()));
  for (const Mark& end : ends)
    EXPECT_EQ(end.column, 35U) << "three fifths of the way";
  // A cache beyond the sizes has no place.
  report.machine.cache_bytes = {gib(1).count()};
  EXPECT_THAT(terminal_curve(report, 67), Not(HasSubstr("┊")));
}

TEST(ProbeCurve, StaysWithinItsColumns) {
  Report report = residency_report();
  report.arms[1].name = std::string(100, 'x');
  report.machine.cache_bytes = {mib(2).count(), mib(3).count(), mib(4).count(), mib(300).count()};
  for (unsigned columns = kLeastCurveColumns; columns <= 200; ++columns) {
    const std::string text = terminal_curve(report, columns);
    EXPECT_TRUE(is_utf8(text));
    std::istringstream stream(text);
    std::size_t widest = 0;
    for (std::string line; std::getline(stream, line);)
      widest = std::max(widest, width(line));
    EXPECT_LE(widest, columns);
    EXPECT_GE(widest, std::min(columns, 120U) - 5) << "it uses them, too";
  }
}

TEST(ProbeCurve, IsNothingWithoutRatesOverSizes) {
  EXPECT_EQ(terminal_curve(bandwidth_report(), 80), "") << "one size";
  EXPECT_EQ(terminal_curve(latency_report(), 80), "");
  EXPECT_EQ(terminal_curve(Report{}, 80), "");
  EXPECT_EQ(terminal_curve(residency_report(), kLeastCurveColumns - 1), "");
  EXPECT_EQ(terminal_curve(report_of({{0, 0, 0}}), 80), "") << "no rate";
  EXPECT_NE(terminal_curve(residency_report(), kLeastCurveColumns), "");
}

TEST(ProbeCurve, LabelsPowersOfTwoWhereItCan) {
  RereadCurve curve;
  curve.sizes = {kib(256), kib(384), kib(512), kib(768), mib(1)};
  EXPECT_THAT(sizes_to_label(curve, kib(512)), ElementsAre(kib(256), kib(512), mib(1)));
  EXPECT_THAT(sizes_to_label(curve, mib(8)), SizeIs(3)) << "not one of the sizes";
  EXPECT_EQ(sizes_to_label(curve, kib(384)), curve.sizes) << "it would be left out";
  curve.sizes = {kib(384), kib(512), kib(768)};
  EXPECT_EQ(sizes_to_label(curve, kib(512)), curve.sizes) << "one is too few";
}

TEST(ProbeCurve, SaysAtHowManySizesArmsAreAlike) {
  // One rate within the other's spread, the other way round, neither, and what only one has.
  Report report = report_of({{100, 200, 300}, {104, 206, 310, 400}});
  const auto spread = [&report](std::size_t arm, std::size_t size, double least, double most) {
    for (Series& series : report.series) {
      if (series.arm != arm || series.size != mib(std::uint64_t{1} << size)) continue;
      series.batches[0].median = least;
      series.batches[1].median = most;
    }
  };
  spread(0, 0, 95, 104);
  spread(1, 1, 200, 210);
  spread(0, 2, 290, 309.9);
  spread(1, 2, 300.1, 320);
  EXPECT_THAT(likenesses(report, reread_curve(report)),
              ElementsAre(cat(arm_name(report, 1), ": at 2 of 3 sizes its median or that of ",
                              "ordinary lies within the other's least and most.")));
  EXPECT_THAT(terminal_curve(report, 200), HasSubstr("at 2 of 3 sizes its median"));
  report.arms[0].source = "memfd";
  EXPECT_THAT(likenesses(report, reread_curve(report)), IsEmpty()) << "there is nothing to be like";
}

TEST(ProbeCurve, IsLikeNothingThatWasNotMeasured) {
  Report report = report_of({{100, 200}, {100, 200}});
  std::erase_if(report.series, [](const Series& series) { return series.arm == 0; });
  EXPECT_THAT(likenesses(report, reread_curve(report)), IsEmpty());
}

TEST(ProbeCurve, StepsByRoundNumbers) {
  EXPECT_EQ(round_step(811, 4), 200);
  EXPECT_EQ(round_step(1000, 4), 200);
  EXPECT_EQ(round_step(30, 4), 10);
  EXPECT_EQ(round_step(0.9, 4), 0.2);
  EXPECT_EQ(tick_label(100, 50), "100");
  EXPECT_EQ(tick_label(0.4, 0.2), "0.4");
  EXPECT_EQ(tick_label(1, 0.5), "1.0");
  EXPECT_EQ(tick_label(0.05, 0.01), "0.05");
  EXPECT_EQ(label_stride({0, 1, 2, 3}), 1U);
  EXPECT_EQ(label_stride({0, 0.6, 1.2, 1.8}), 2U);
  EXPECT_EQ(label_stride({0, 0.01}), 2U) << "one label, then";
}

}  // namespace
}  // namespace carveout::probe
