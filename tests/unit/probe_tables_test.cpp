// The tables of a terminal, from made reports.

#include "show/tables.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "findings.hpp"
#include "probe_reports.hpp"
#include "writing.hpp"

namespace carveout::probe {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

// The first line too wide, or "".
std::string too_wide(const std::string& text) {
  for (const std::string& line : lines_of(text))
    if (width(line) > 80) return line;
  return {};
}

// Words apart by one space, so that a test need not know where lines break.
std::string words(const std::string& text) {
  std::istringstream stream(text);
  std::string all, word;
  while (stream >> word)
    all += (all.empty() ? "" : " ") + word;
  return all;
}

// That line and the one beneath it, in words.
std::string row_that_begins(const std::string& text, const std::string& begin) {
  const auto lines = lines_of(text);
  for (std::size_t i = 0; i + 1 < lines.size(); ++i)
    if (lines[i].starts_with(begin)) return words(lines[i]) + " | " + words(lines[i + 1]);
  return {};
}

TEST(ProbeTables, ShowEachRowWithMedianSpreadColdAndTheDifference) {
  const std::string text = table(bandwidth_report());
  EXPECT_EQ(row_that_begins(text, "read, one pass"),
            "read, one pass 24.5 20.4 -17 % | GB/s (24.3-24.7) / 19.6 (20.2-20.6) / 16.3");
  EXPECT_EQ(row_that_begins(text, "copy into"),
            "copy into 11.2 11.2 =? | GB/s (11.1-11.3) / 8.96 (11.1-11.3) / 8.96");
  EXPECT_THAT(row_that_begins(text, "write, one pass"), HasSubstr("12.3 +26 %"));
  EXPECT_THAT(row_that_begins(text, "dependent load"), AllOf(HasSubstr("131 +33 % | ns")));
  EXPECT_THAT(row_that_begins(text, "reread 8 MiB"), HasSubstr("=?"));
  EXPECT_THAT(
      words(text),
      AllOf(HasSubstr("=?: cannot be told apart"),
            HasSubstr("x25, x0.05: so much more or less than ordinary, or so many times as much "
                      "(from twice on, and below a tenth)"),
            HasSubstr("To tell \"=?\" apart (longer batches and a quieter machine help):")));
}

TEST(ProbeTables, BeginWithWhatWasRun) {
  const std::string text = words(table(bandwidth_report()));
  EXPECT_THAT(text, testing::StartsWith(
                        "carveout-probe 0.1.0 bandwidth: cpu engine (processor, 1 thread, 128 "
                        "bits) 256 MiB of each memory, 8 blocks, 2026-09-21T14:13:20Z, 98 s"));
}

TEST(ProbeTables, GiveTheVerdictOnResidencyAndWhy) {
  const std::string text = words(table(residency_report()));
  EXPECT_THAT(text, HasSubstr("Residency in the GPU's L2 (24 MiB), judged at 8 MiB: "
                              "daemon/vmm: not resident read again it is slower than streamed"));
  EXPECT_THAT(text, HasSubstr("daemon/register: inconclusive rereading and streaming cannot be "
                              "told apart: it would need 8 blocks, of which there are 3"));
  EXPECT_THAT(row_that_begins(table(residency_report()), "reread 8 MiB"),
              HasSubstr("811 209 -74 % 797 =?"));
  EXPECT_THAT(row_that_begins(table(residency_report()), "read, one pass"), HasSubstr("245 244"));
  EXPECT_THAT(text, Not(HasSubstr("reread 16 MiB"))) << "that is the curve's";
  Report none = residency_report();
  none.series.clear();
  EXPECT_THAT(table(none),
              AllOf(HasSubstr("no arm could be judged"), HasSubstr("Nothing was measured")));
}

TEST(ProbeTables, SayThatOrdinaryMemoryAloneIsNotJudged) {
  Report report = residency_report();
  report.arms.resize(2);
  report.arms[1] = {"ordinary#2", "ordinary", "", "", 0, "", ""};
  std::erase_if(report.series, [](const Series& series) { return series.arm > 1; });
  EXPECT_THAT(words(table(report)),
              AllOf(HasSubstr("nothing but ordinary memory was asked for: there is nothing to "
                              "judge"),
                    Not(HasSubstr("no arm could be judged"))));
}

TEST(ProbeTables, SayWhatToDoAfterTheVerdicts) {
  Report report = residency_report();
  report.arms.pop_back();
  report.arms.pop_back();
  std::erase_if(report.series, [](const Series& series) { return series.arm > 1; });
  EXPECT_THAT(words(table(report)),
              HasSubstr("-14 % where ordinary memory has x3.31 " + decision(report) + " ordinary"));
  EXPECT_THAT(decision(report), HasSubstr("No way of mapping that was measured is kept"));
}

TEST(ProbeTables, CountOneBlockInTheSingular) {
  Report report = bandwidth_report();
  report.blocks = 1;
  for (Series& series : report.series)
    series.batches.resize(1);
  EXPECT_THAT(words(table(report)), AllOf(HasSubstr("256 MiB of each memory, 1 block, 2026"),
                                          HasSubstr(": 8 blocks, of which there is 1")));
}

TEST(ProbeTables, ShowTimesInMilliseconds) {
  EXPECT_EQ(row_that_begins(table(latency_report()), "unmap and give back"),
            "unmap and give back 8.19 1.25 -85 % | ms (8.12-8.28) / 6.56 (1.24-1.26) / 1.00");
}

TEST(ProbeTables, WriteWhatIsLessThanATenthAsAFactor) {
  Report report = latency_report();
  report.series[3] = series_of(1, Row::kGiveBack, report.size, 8.2 / 308);
  EXPECT_THAT(row_that_begins(table(report), "unmap and give back"),
              AllOf(HasSubstr(" x0.0032"), Not(HasSubstr("%"))));
}

TEST(ProbeTables, NameWhatCouldNotBeHadAndWhatEndedWithTheReason) {
  const std::string text = words(table(residency_report()));
  EXPECT_THAT(text, HasSubstr("drm/external: not to be had: /dev/dri/card1: no such <device>; "
                              "load nvidia_drm with modeset=1"));
  EXPECT_THAT(text, HasSubstr("daemon/register: ended before the last block: " +
                              std::string(kHostileReason)));
}

TEST(ProbeTables, EndWithTheRemarks) {
  Report report = bandwidth_report();
  report.arms[1].page_bytes = mib(2).count();
  EXPECT_THAT(words(table(report)), HasSubstr("To be known: - The arms have pages of different"));
  EXPECT_THAT(table(bandwidth_report()), Not(HasSubstr("To be known")));
}

TEST(ProbeTables, StayWithinEightyColumnsWhateverTheyHold) {
  for (const Report& report : {residency_report(), bandwidth_report(), latency_report()})
    EXPECT_EQ(too_wide(table(report)), "");
  Report many = bandwidth_report();
  for (std::size_t arm = 2; arm < 7; ++arm) {
    many.arms.push_back(many.arms[1]);
    many.arms[arm].name = cat("dma-heap/external-", arm);
    for (const RowAt& row : rows_at(bandwidth_report()))
      many.series.push_back(series_of(arm, row.row, row.size, 1234));
  }
  many.arms[6].name = std::string(200, 'x');
  many.arms[5].ended = std::string(300, 'y');
  const std::string text = table(many);
  EXPECT_EQ(too_wide(text), "");
  for (std::size_t arm = 2; arm < 6; ++arm)
    EXPECT_THAT(text, HasSubstr(many.arms[arm].name));
  // Ordinary memory stands in each of the tables.
  std::size_t heads = 0;
  for (const std::string& line : lines_of(text))
    if (words(line).starts_with("ordinary ")) ++heads;
  EXPECT_GE(heads, 3U);
  EXPECT_NE(too_wide(std::string(81, 'x')), "") << "the check itself";
}

TEST(ProbeTables, SendNoControlCharactersToTheTerminal) {
  const std::string text = table(residency_report());
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_THAT(text, HasSubstr("\\x1b[31m"));
}

}  // namespace
}  // namespace carveout::probe
