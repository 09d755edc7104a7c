// The page's curve of rereading: its places, its names, and what tells the arms apart.

#include "svg_curve.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "probe_reports.hpp"
#include "well_formed.hpp"

namespace carveout::probe {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

using Points = std::vector<std::pair<double, double>>;

// Those of the element with that class.
Points points_of(const std::string& svg, const std::string& classes) {
  std::smatch found;
  if (!std::regex_search(svg, found, std::regex("class=\"" + classes + "\" points=\"([^\"]*)\""))) {
    return {};
  }
  std::istringstream stream(found[1]);
  Points points;
  char comma = 0;
  for (double x = 0, y = 0; stream >> x >> comma >> y;)
    points.emplace_back(x, y);
  return points;
}

double number_of(const std::string& svg, const std::string& pattern) {
  std::smatch found;
  return std::regex_search(svg, found, std::regex(pattern)) ? std::stod(found[1]) : -1;
}

// Where the label of a rate stands, without the baseline's offset.
double height_of(const std::string& svg, const std::string& rate) {
  return number_of(svg, "y=\"([0-9.]+)\" text-anchor=\"end\">" + rate + "<") - 4.5;
}

TEST(ProbeSvgCurve, PutsRatesAndSizesWhereTheAxesSay) {
  const std::string svg = svg_curve(residency_report(), SvgShape::kWide);
  const Points line = points_of(svg, "line a0");
  ASSERT_THAT(line, SizeIs(11));
  const double zero = height_of(svg, "0"), most = height_of(svg, "1000");
  ASSERT_GT(zero, most);
  // 811 GB/s of 1000.
  EXPECT_NEAR((zero - line.front().second) / (zero - most), 0.811, 0.003);
  EXPECT_NEAR((zero - line.back().second) / (zero - most), 0.245, 0.003);
  // Sizes double by even steps, and 24 MiB is between 16 and 32.
  const double step = line[1].first - line[0].first;
  for (std::size_t i = 1; i < line.size(); ++i)
    EXPECT_NEAR(line[i].first - line[i - 1].first, step, 0.11);
  const double end = number_of(svg, "class=\"end\" d=\"M([0-9.]+) ");
  EXPECT_NEAR((end - line[6].first) / step, 0.585, 0.01);
  EXPECT_THAT(svg, HasSubstr("L2 ends: 24 MiB"));
}

TEST(ProbeSvgCurve, HasABandFromTheLeastToTheMost) {
  const std::string svg = svg_curve(residency_report(), SvgShape::kWide);
  const Points line = points_of(svg, "line a1"), band = points_of(svg, "band a1");
  ASSERT_EQ(band.size(), 2 * line.size());
  for (std::size_t i = 0; i < line.size(); ++i) {
    const auto& above = band[i];
    const auto& below = band[band.size() - 1 - i];
    EXPECT_EQ(above.first, line[i].first);
    EXPECT_EQ(below.first, line[i].first);
    EXPECT_LT(above.second, line[i].second);
    EXPECT_GT(below.second, line[i].second);
  }
}

TEST(ProbeSvgCurve, TellsArmsApartWithoutColour) {
  std::set<std::string> markers, dashes;
  for (std::size_t arm = 0; arm < 8; ++arm)
    markers.insert(std::regex_replace(svg_swatch(arm), std::regex("mark a[0-9]"), ""));
  EXPECT_THAT(markers, SizeIs(8));
  const std::string svg = svg_curve(residency_report(), SvgShape::kWide);
  const std::regex dash(
      "class=\"line a[0-9]\" points=\"[^\"]*\" [^>]*stroke-dasharray=\"([^\"]*)\"");
  for (std::sregex_iterator one(svg.begin(), svg.end(), dash), end; one != end; ++one)
    dashes.insert((*one)[1]);
  EXPECT_THAT(dashes, SizeIs(3));
}

TEST(ProbeSvgCurve, NamesEachArmAndNoTwoInOnePlace) {
  for (const SvgShape shape : {SvgShape::kWide, SvgShape::kNarrow}) {
    const std::string svg = svg_curve(residency_report(), shape);
    std::vector<double> heights;
    const std::regex name("class=\"name a[0-9]\" x=\"[0-9.]+\" y=\"([0-9.]+)\">([^<]*)<");
    std::string names;
    for (std::sregex_iterator one(svg.begin(), svg.end(), name), end; one != end; ++one) {
      heights.push_back(std::stod((*one)[1]));
      names += (*one)[2].str() + ' ';
    }
    // All three lines end at about one rate.
    EXPECT_THAT(names, AllOf(HasSubstr("ordinary "), HasSubstr("daemon/vmm "),
                             HasSubstr("daemon/register ")));
    std::sort(heights.begin(), heights.end());
    for (std::size_t i = 1; i < heights.size(); ++i)
      EXPECT_GE(heights[i] - heights[i - 1], 17.9);
  }
}

TEST(ProbeSvgCurve, SaysInWordsWhatItShows) {
  const std::string svg = svg_curve(residency_report(), SvgShape::kNarrow);
  EXPECT_THAT(svg, AllOf(HasSubstr("role=\"img\""),
                         HasSubstr("aria-labelledby=\"narrow-title narrow-desc\"")));
  const std::string text = text_of_html(svg);
  EXPECT_THAT(text, HasSubstr("daemon/vmm: 209 GB/s at 256 KiB, 244 GB/s at 256 MiB."));
  EXPECT_THAT(text, HasSubstr("L2 ends at 24 MiB."));
  EXPECT_THAT(text, HasSubstr("ordinary, 8 MiB: 811 GB/s (804–820)"));
}

TEST(ProbeSvgCurve, LabelsTheJudgedSizeInAnyCase) {
  for (const Bytes judged : {kib(256), kib(512), mib(1), mib(2), mib(4)}) {
    Report report = residency_report();
    report.reread_size = judged;
    EXPECT_THAT(svg_curve(report, SvgShape::kNarrow),
                HasSubstr("font-weight=\"700\">" + format_bytes(judged) + "<"));
  }
}

TEST(ProbeSvgCurve, KeepsLabelsOfCachesApart) {
  Report report = residency_report();
  report.machine.cache_bytes = {mib(16).count(), mib(17).count(), mib(18).count()};
  const std::string svg = svg_curve(report, SvgShape::kNarrow);
  std::set<std::string> heights;
  const std::regex label("y=\"([0-9.]+)\" text-anchor=\"middle\">L[0-9] ends");
  for (std::sregex_iterator one(svg.begin(), svg.end(), label), end; one != end; ++one)
    heights.insert((*one)[1]);
  EXPECT_THAT(heights, SizeIs(3));
}

TEST(ProbeSvgCurve, IsWellFormedWhateverItHolds) {
  Report report = residency_report();
  report.arms[1].name = "<svg>\"&" + std::string(100, 'x');
  for (const SvgShape shape : {SvgShape::kWide, SvgShape::kNarrow}) {
    const std::string svg = svg_curve(report, shape);
    EXPECT_EQ(fault_of_html(svg), "");
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
  }
  EXPECT_EQ(svg_curve(bandwidth_report(), SvgShape::kWide), "") << "one size";
  EXPECT_EQ(svg_curve(Report{}, SvgShape::kWide), "");
}

}  // namespace
}  // namespace carveout::probe
