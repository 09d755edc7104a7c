// The page's curve of rereading: its places, its names, and what tells the arms apart.

#include "show/svg_curve.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

// Those whose class begins so.
std::vector<HtmlElement> of_class(const std::string& svg, const std::string& begin) {
  std::vector<HtmlElement> elements = elements_of_html(svg);
  std::erase_if(elements, [&begin](const HtmlElement& element) {
    const auto found = element.attributes.find("class");
    return found == element.attributes.end() || !found->second.starts_with(begin);
  });
  return elements;
}

double number_of(const HtmlElement& element, const std::string& attribute) {
  return std::stod(element.attributes.at(attribute));
}

Points points_of(const std::string& svg, const std::string& classes) {
  const auto elements = of_class(svg, classes);
  if (elements.empty()) return {};
  std::istringstream stream(elements.front().attributes.at("points"));
  Points points;
  char comma = 0;
  for (double x = 0, y = 0; stream >> x >> comma >> y;)
    points.emplace_back(x, y);
  return points;
}

// Where the label of a rate stands, without the baseline's offset.
double height_of(const std::string& svg, const std::string& rate) {
  for (const HtmlElement& label : of_class(svg, "tick"))
    if (label.text == rate) return number_of(label, "y") - 4.5;
  return -1;
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
  const double end = std::stod(of_class(svg, "end").at(0).attributes.at("d").substr(1));
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
    markers.insert(of_class(svg_swatch(arm), "mark").at(0).attributes.at("d"));
  EXPECT_THAT(markers, SizeIs(8));
  for (const HtmlElement& line : of_class(svg_curve(residency_report(), SvgShape::kWide), "line"))
    dashes.insert(line.attributes.at("stroke-dasharray"));
  EXPECT_THAT(dashes, SizeIs(3));
}

TEST(ProbeSvgCurve, NamesEachArmAndNoTwoInOnePlace) {
  for (const SvgShape shape : {SvgShape::kWide, SvgShape::kNarrow}) {
    const std::string svg = svg_curve(residency_report(), shape);
    std::vector<double> heights;
    std::string names;
    for (const HtmlElement& name : of_class(svg, "name")) {
      heights.push_back(number_of(name, "y"));
      names += name.text + ' ';
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
  for (const HtmlElement& label : of_class(svg, "tick"))
    if (label.text.find(" ends: ") != std::string::npos) heights.insert(label.attributes.at("y"));
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
