// The page of a report: what it says, and that it is one sound file that needs nothing else.

#include "show/page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "findings.hpp"
#include "probe_reports.hpp"
#include "show/markup.hpp"
#include "well_formed.hpp"

namespace carveout::probe {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<Report> all_reports() {
  Report empty;
  empty.command = "residency";
  Report unavailable = residency_report();
  unavailable.series.clear();
  for (ArmRecord& arm : unavailable.arms)
    arm.unavailable = kHostileReason;
  return {residency_report(), bandwidth_report(), latency_report(), empty, unavailable};
}

// The text between the first of each.
std::string part(const std::string& text, const std::string& from, const std::string& to) {
  const std::size_t start = text.find(from);
  if (start == std::string::npos) return {};
  return text.substr(start, text.find(to, start) - start);
}

// --- the check itself ---

TEST(WellFormed, TakesWhatIsAndFindsWhatIsNot) {
  EXPECT_EQ(fault_of_html("<!DOCTYPE html><html><head><meta charset=\"utf-8\"><style>a > b {}"
                          "</style></head><body><p hidden>1 &lt; 2 &amp; 3</p><svg><path d=\"M0\"/>"
                          "</svg></body></html>"),
            "");
  EXPECT_EQ(fault_of_html("<p><b>x</p></b>"), "</p> closes <b>");
  EXPECT_EQ(fault_of_html("<div><p>x</p>"), "<div> is not closed");
  EXPECT_EQ(fault_of_html("x</div>"), "</div> closes <>");
  EXPECT_EQ(fault_of_html("<div/>"), "<div/> does not close itself");
  EXPECT_THAT(fault_of_html("<p>AT&T</p>"), HasSubstr("an & that begins nothing"));
  EXPECT_THAT(fault_of_html("<p>1 < 2</p>"), HasSubstr("a < that begins no element"));
  EXPECT_THAT(fault_of_html("<p>1 > 2</p>"), HasSubstr("a > in text"));
  EXPECT_THAT(fault_of_html("<p title=\"a>b"), HasSubstr("quote is not closed"));
  EXPECT_THAT(fault_of_html("<p title=a>b</p>"), Not(testing::IsEmpty()));
  EXPECT_THAT(fault_of_html("<p id=\"a\"></p><p id=\"a\"></p>"), HasSubstr("comes twice"));
  EXPECT_THAT(fault_of_html("<p class=\"a\" class=\"b\"></p>"), HasSubstr("class twice"));
  EXPECT_THAT(fault_of_html("<p aria-labelledby=\"b\"></p>"), HasSubstr("no id b"));
  EXPECT_EQ(fault_of_html("\xff"), "not UTF-8");
  const auto elements = elements_of_html("<p id=\"a\">x &amp;<b>y</b>z</p>");
  ASSERT_EQ(elements.size(), 2U);
  EXPECT_EQ(elements[0].attributes.at("id") + elements[0].text + elements[1].text, "ax &y");
  EXPECT_EQ(text_of_html("<style>x</style><p>1 &lt;\n <b>2</b></p>"), "1 < 2");
}

TEST(ProbePage, IsWellFormed) {
  for (const Report& report : all_reports())
    EXPECT_EQ(fault_of_html(html_page(report)), "");
  // Were one tag of it lost, the check would say so.
  std::string page = html_page(residency_report());
  page.erase(page.find("</section>"), std::string("</section>").size());
  EXPECT_NE(fault_of_html(page), "");
}

TEST(ProbePage, NeedsNothingElse) {
  for (const Report& report : all_reports()) {
    const std::string page = html_page(report);
    for (const char* what : {"http:", "https:", "<script", "url(", "@import", "<link", "<img",
                             "src=", "href=", "javascript:", "onload=", "onclick="})
      EXPECT_THAT(page, Not(HasSubstr(what)));
    EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  }
}

TEST(ProbePage, EscapesWhatOthersWrote) {
  EXPECT_EQ(escaped("<b>&\"'\n"), "&lt;b&gt;&amp;&quot;&#39;\\x0a");
  Report report = residency_report();
  report.version = report.machine.kernel = report.machine.lender = kHostileReason;
  report.arms[1].name = "<i>\"a\"</i>&";
  report.series[0].moments[0].governor = "<u>";
  const std::string page = html_page(report);
  EXPECT_EQ(fault_of_html(page), "");
  for (const char* raw :
       {"<b>GB10", "<i>", "<u>", "<script", "</title>, 48", "<device>", "<by>", "\033"})
    EXPECT_THAT(page, Not(HasSubstr(raw)));
  // A reader sees what was written.
  EXPECT_THAT(text_of_html(page),
              AllOf(HasSubstr("NVIDIA <b>GB10</b> & \"Sons'\\x1b[31m</title>, 48 SMs"),
                    HasSubstr("<i>\"a\"</i>&"), HasSubstr("no such <device>; load nvidia_drm")));
}

TEST(ProbePage, DoesNotBreakOptionsAtTheirHyphens) {
  EXPECT_EQ(prose("take --key-file <f>, (--map auto) or --size."),
            "take <span class=\"option\">--key-file</span> &lt;f&gt;, (<span class=\"option\">"
            "--map</span> auto) or <span class=\"option\">--size</span>.");
  EXPECT_EQ(prose("--a"), "<span class=\"option\">--a</span>");
  for (const char* plain : {"a--b", "--", "a - b -c", "1 -- 2", "", "--&"})
    EXPECT_EQ(prose(plain), escaped(plain));
  Report report = residency_report();
  report.arms.resize(1);
  report.machine.lender = "not known: is this its --control?";
  EXPECT_THAT(html_page(report), HasSubstr("its <span class=\"option\">--control</span>?</dd>"));
  EXPECT_THAT(html_page(report),
              AllOf(HasSubstr("<span class=\"option\">--source</span> daemon does that."),
                    HasSubstr(", .option { white-space: nowrap; }")));
}

// --- what it says ---

TEST(ProbePage, BeginsWithTheVerdicts) {
  const std::string page = html_page(residency_report());
  const std::string verdicts = text_of_html(part(page, "<section class=\"verdicts\"", "<section>"));
  EXPECT_LT(page.find("class=\"verdicts\""), page.find("<svg"));
  EXPECT_THAT(verdicts,
              HasSubstr("daemon/vmm Not resident The GPU's L2 does not keep it. Read "
                        "again it is slower than streamed: −14 % where ordinary memory has "
                        "×3.31. reread"));
  EXPECT_THAT(verdicts, HasSubstr("reread 8 MiB 209 GB/s 207–211"));
  EXPECT_THAT(verdicts, HasSubstr("streamed 256 MiB 244 GB/s 242–246"));
  EXPECT_THAT(verdicts, HasSubstr("gain of ordinary ×3.31"));
  EXPECT_THAT(verdicts, HasSubstr("daemon/register Inconclusive This run cannot tell"));
  EXPECT_THAT(verdicts,
              HasSubstr("It ended before the last block: " + std::string(kHostileReason)));
  EXPECT_THAT(verdicts, HasSubstr("Decide nothing yet: "));
}

TEST(ProbePage, HasNoCardForWhatWasNotMeasured) {
  const std::string page = html_page(residency_report());
  EXPECT_THAT(part(page, "<section class=\"verdicts\"", "</section>"),
              AllOf(HasSubstr("daemon/register"), Not(HasSubstr("drm/external"))));
  EXPECT_THAT(text_of_html(part(page, "<div class=\"missing", "<section>")),
              HasSubstr("Not measured: drm/external : /dev/dri/card1: no such <device>; load "
                        "nvidia_drm with modeset=1"));
}

TEST(ProbePage, SaysWhatToDoAfterTheVerdicts) {
  Report report = residency_report();
  EXPECT_THAT(part(html_page(report), "</section>", "<section>"),
              HasSubstr("<p class=\"decision\">" + prose(decision(report)) + "</p>"));
  report.command = "bandwidth";
  EXPECT_THAT(html_page(report), Not(HasSubstr("class=\"decision\"")));
}

TEST(ProbePage, CountsOneBlockAndOneRowInTheSingular) {
  Report report = latency_report();
  report.blocks = 1;
  report.series.resize(2);
  EXPECT_THAT(text_of_html(html_page(report)),
              AllOf(HasSubstr("memory, 1 block, 2026"), HasSubstr("took turns in 1 block."),
                    HasSubstr("daemon/host Slower in 1 of 1 row"), Not(HasSubstr("1 blocks"))));
}

TEST(ProbePage, SaysResidentAndPartlyInWords) {
  Report report = residency_report();
  for (Series& series : report.series) {
    if (series.arm != 1 || series.size != report.reread_size) continue;
    series = series_of(1, Row::kReread, series.size, 790);
  }
  EXPECT_THAT(text_of_html(html_page(report)),
              HasSubstr("daemon/vmm Resident The GPU's L2 keeps it. A gain of"));
  for (Series& series : report.series) {
    if (series.arm != 1 || series.size != report.reread_size) continue;
    series = series_of(1, Row::kReread, series.size, 400);
  }
  report.engine = EngineKind::kCpu;
  EXPECT_THAT(text_of_html(html_page(report)),
              HasSubstr("daemon/vmm Partly resident The processor's L1 keeps a part of it."));
}

TEST(ProbePage, TellsWhichRowsAreSlowerAndWhichFaster) {
  const std::string text = text_of_html(html_page(bandwidth_report()));
  EXPECT_THAT(text, HasSubstr("memfd/host Slower in 2, faster in 1 of 7 rows"));
  EXPECT_THAT(text, HasSubstr("slower: read, one pass −17 %; dependent load +33 %"));
  EXPECT_THAT(text, HasSubstr("faster: write, one pass +26 %"));
  EXPECT_THAT(text, HasSubstr("cannot be told apart: reread 8 MiB; write past the caches; copy "
                              "into; copy out of"));
  // More milliseconds are worse.
  EXPECT_THAT(text_of_html(html_page(latency_report())),
              AllOf(HasSubstr("daemon/host Slower in 1, faster in 1 of 2 rows"),
                    HasSubstr("faster: unmap and give back −85 %")));
}

TEST(ProbePage, HasEachFigureWithItsSpreadAndWhatItCounts) {
  const std::string text = text_of_html(html_page(bandwidth_report()));
  EXPECT_THAT(text, HasSubstr("read, one pass GB/s; each byte once 24.5 24.3–24.7, cold 19.6 20.4 "
                              "−17 % 20.2–20.6, cold 16.3"));
  EXPECT_THAT(text, HasSubstr("copy into GB/s; one-way: each byte copied once, though it is read "
                              "and written 11.2"));
  EXPECT_THAT(text, HasSubstr("dependent load ns; less is better 98.6"));
  EXPECT_THAT(text, HasSubstr("To tell “=?” apart, a run would need"));
  const std::string curve = text_of_html(html_page(residency_report()));
  EXPECT_THAT(curve, HasSubstr("256 MiB 245 243–247 244 242–246 =? 239"))
      << "the curve's own figures";
}

TEST(ProbePage, HasTheConditionsAndTheReasons) {
  Report report = residency_report();
  report.series[0].moments[2].load_average = 1.75;
  const std::string text = text_of_html(html_page(report));
  for (const char* what :
       {"kernel Linux 6.18.44 aarch64", "processor Cortex-X925, 20 CPUs", "driver 580.82.07",
        "CUDA 13.0", "caches L2 24 MiB", "lender carveoutd 0.1.0, backend drm (card1)",
        "pages of the host 4 KiB", "began 2026-09-21T14:13:20Z",
        "ended 2026-09-21T14:14:58Z, after 98 s", "load average 0.50 0.50–1.75 0.50",
        "GPU clock (MHz) 2400", "frequency governor performance performance performance",
        "could not be had: /dev/dri/card1", "3 of 8 blocks, then ended: the lender: said",
        "order that mirrors itself from block to block", "within blocks only"})
    EXPECT_THAT(text, HasSubstr(what));
  EXPECT_THAT(text, Not(HasSubstr("To be known")));
  report.arms[1].page_bytes = 4096;
  EXPECT_THAT(text_of_html(html_page(report)),
              HasSubstr("To be known The arms have pages of different sizes"));
}

TEST(ProbePage, SaysNothingOfAVerdictWhereThereIsNone) {
  Report report = residency_report();
  EXPECT_THAT(text_of_html(html_page(report)),
              AllOf(HasSubstr("The verdict is on 8 MiB, in bold."),
                    HasSubstr("The verdict is about the GPU's L2")));
  report.arms.resize(2);
  report.arms[1] = {"ordinary#2", "ordinary", "", "", 0, "", ""};
  std::erase_if(report.series, [](const Series& series) { return series.arm > 1; });
  EXPECT_THAT(
      text_of_html(html_page(report)),
      AllOf(HasSubstr("The figures are of 8 MiB, in bold."), Not(HasSubstr("The verdict"))));
}

TEST(ProbePage, SaysThatNothingWasMeasuredAndNotHow) {
  Report report = residency_report();
  EXPECT_THAT(text_of_html(html_page(report)),
              AllOf(Not(HasSubstr("Nothing was measured")), HasSubstr("How it was measured")));
  report.series.clear();
  for (const char* command : {"residency", "bandwidth", "latency"}) {
    report.command = command;
    EXPECT_THAT(text_of_html(html_page(report)),
                AllOf(HasSubstr("Nothing was measured."), Not(HasSubstr("How it was measured")),
                      Not(HasSubstr("took turns"))));
  }
}

TEST(ProbePage, SaysSoWhereThereIsNothing) {
  Report alone = latency_report();
  std::erase_if(alone.series, [](const Series& series) { return series.arm == 0; });
  EXPECT_THAT(text_of_html(html_page(alone)),
              HasSubstr("daemon/host Nothing to compare with claim and map: 41.6 ms (41.1–41.9)"));
  Report silent = latency_report();
  silent.series.clear();
  EXPECT_THAT(text_of_html(html_page(silent)),
              HasSubstr("Not measured: daemon/host : it has no batches"));
  EXPECT_THAT(text_of_html(html_page(Report{})),
              HasSubstr("There was no memory to compare with ordinary memory."));
}

// WCAG's relative luminance of a colour "#rrggbb".
double luminance(const std::string& colour) {
  double all = 0;
  constexpr std::array<double, 3> kWeights{0.2126, 0.7152, 0.0722};
  for (std::size_t i = 0; i < kWeights.size(); ++i) {
    const double part = std::stoi(colour.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    all += kWeights[i] * (part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4));
  }
  return all;
}

double contrast(const std::string& a, const std::string& b) {
  const double one = luminance(a), other = luminance(b);
  return (std::max(one, other) + 0.05) / (std::min(one, other) + 0.05);
}

TEST(ProbePage, HasColoursThatCanBeReadOnBothGrounds) {
  EXPECT_NEAR(contrast("#000000", "#ffffff"), 21, 0.01);
  EXPECT_NEAR(contrast("#777777", "#ffffff"), 4.48, 0.01) << "just too little";
  const std::string page = html_page(residency_report());
  const std::string dark = part(page, "(prefers-color-scheme: dark)", "* {");
  for (const std::string& scheme : {part(page, "<style>", "@media"), dark}) {
    std::map<std::string, std::string> colours;
    // "--name: #rrggbb;"
    for (std::size_t at = scheme.find("--"); at != std::string::npos;
         at = scheme.find("--", at + 2)) {
      const std::size_t colon = scheme.find(": #", at);
      colours[scheme.substr(at + 2, colon - at - 2)] = scheme.substr(colon + 2, 7);
    }
    EXPECT_THAT(colours, testing::SizeIs(17));
    for (const auto& [name, colour] : colours) {
      if (name == "paper" || name == "panel" || name == "line") continue;
      EXPECT_GE(contrast(colour, colours["paper"]), 4.5) << name;
      EXPECT_GE(contrast(colour, colours["panel"]), 4.5) << name;
    }
  }
}

TEST(ProbePage, IsDarkOnScreensOnlyAndCutsNothingOnPaper) {
  const std::string page = html_page(residency_report());
  EXPECT_THAT(page, HasSubstr("@media screen and (prefers-color-scheme: dark)"));
  const std::string print = part(page, "@media print", "</style>");
  EXPECT_THAT(print, AllOf(HasSubstr("color-scheme: light"), HasSubstr("overflow: visible"),
                           HasSubstr("break-inside: avoid")));
}

}  // namespace
}  // namespace carveout::probe
