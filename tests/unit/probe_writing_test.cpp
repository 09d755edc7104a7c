// Figures and text as people read them.

#include "writing.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "probe_reports.hpp"

namespace carveout::probe {
namespace {

TEST(ProbeWriting, WritesThreeSignificantDigits) {
  EXPECT_EQ(figure(0), "0");
  EXPECT_EQ(figure(0.012345), "0.0123");
  EXPECT_EQ(figure(1), "1.00");
  EXPECT_EQ(figure(9.876), "9.88");
  EXPECT_EQ(figure(9.996), "10.0") << "rounding carries";
  EXPECT_EQ(figure(98.14), "98.1");
  EXPECT_EQ(figure(99.96), "100");
  EXPECT_EQ(figure(245.4), "245");
  EXPECT_EQ(figure(1234), "1230");
  EXPECT_EQ(figure(999.6), "1000");
  EXPECT_EQ(figure(-2.345), "-2.35");
  EXPECT_EQ(figure(std::nan("")), "?");
  EXPECT_EQ(figure(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(figure(1.234e15), "1230000000000000");
  EXPECT_GE(figure(1e300).size(), 300U) << "there is room for it";
}

TEST(ProbeWriting, WritesChangesWithTheirSign) {
  EXPECT_EQ(change(0.12), "+12 %");
  EXPECT_EQ(change(-0.3), "-30 %");
  EXPECT_EQ(change(-0.0532), "-5.3 %");
  EXPECT_EQ(change(0.0004), "+0.04 %");
  EXPECT_EQ(change(0.994), "+99 %");
  EXPECT_EQ(change(0.996), "x2.00") << "and never +100 %";
  EXPECT_EQ(change(2.5), "x3.50");
  EXPECT_EQ(change(11.8), "x12.8");
  EXPECT_EQ(change(24), "x25.0");
  EXPECT_EQ(change(-0.85), "-85 %");
  EXPECT_EQ(change(0.1 - 1), "-90 %");
  EXPECT_EQ(change(0.09996 - 1), "-90 %") << "and never x0.1";
  EXPECT_EQ(change(0.0999 - 1), "x0.0999");
  EXPECT_EQ(change(0.05 - 1), "x0.05");
  EXPECT_EQ(change(1.0 / 308 - 1), "x0.00325") << "and never -100 %";
  EXPECT_EQ(change(-1), "x0");
  EXPECT_EQ(typographic(change(0.05 - 1)), "×0.05");
  EXPECT_EQ(typographic("-5.3 %"), "−5.3 %");
  EXPECT_EQ(typographic("x25.0"), "×25.0");
  EXPECT_EQ(typographic("+12 %"), "+12 %");
}

TEST(ProbeWriting, CountsInTheSingularAndThePlural) {
  EXPECT_EQ(how_many(0, "block"), "0 blocks");
  EXPECT_EQ(how_many(1, "block"), "1 block");
  EXPECT_EQ(how_many(8, "block"), "8 blocks");
}

TEST(ProbeWriting, NamesTheCacheThatTheVerdictIsAbout) {
  Report report = residency_report();
  EXPECT_EQ(with_size(judged_cache(report)), "the GPU's L2 (24 MiB)");
  report.machine.cache_bytes.clear();
  EXPECT_EQ(with_size(judged_cache(report)), "the GPU's L2");
  report.engine = EngineKind::kCpu;
  EXPECT_EQ(with_size(judged_cache(report)), "the processor's cache");
  report.machine.cache_bytes = {kib(48).count()};
  EXPECT_EQ(with_size(judged_cache(report)), "the processor's L1 (48 KiB)");
  report.machine.cache_bytes = {kib(48).count(), mib(2).count(), mib(480).count()};
  EXPECT_EQ(with_size(judged_cache(report)), "the processor's L2 (2 MiB)");
}

TEST(ProbeWriting, WritesTimesAsUtc) {
  EXPECT_EQ(utc(1790000000), "2026-09-21T14:13:20Z");
  EXPECT_EQ(utc(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(utc(1e300), "?");
  EXPECT_EQ(utc(std::nan("")), "?");
}

TEST(ProbeWriting, BreaksLinesAtSpacesAndWordsThatAreTooLong) {
  EXPECT_EQ(wrapped("one two three", 7, "- "), "- one\n  two\n  three\n");
  EXPECT_EQ(wrapped("one two three", 80), "one two three\n");
  EXPECT_EQ(wrapped("abcdefghij k", 4), "abcd\nefgh\nij k\n");
  EXPECT_EQ(wrapped("by 12 % of", 5), "by\n12 %\nof\n") << "a percentage stays whole";
  // Characters are counted, not bytes, and none is cut.
  EXPECT_EQ(wrapped("äöüß", 2), "äö\nüß\n");
  EXPECT_EQ(width("äöüß"), 4U);
}

TEST(ProbeWriting, NamesCachesAndRows) {
  const Report gpu = residency_report(), cpu = bandwidth_report();
  EXPECT_EQ(caches(gpu), "L2 24 MiB");
  EXPECT_EQ(caches(cpu), "L1 64 KiB, L2 2 MiB, L3 16 MiB");
  EXPECT_EQ(label(cpu, {Row::kRead, cpu.size}), "read, one pass");
  EXPECT_EQ(label(cpu, {Row::kReread, mib(8)}), "reread 8 MiB");
  EXPECT_EQ(rows_at(gpu).size(), 12U);
  EXPECT_EQ(table_rows(gpu).size(), 2U) << "the curve is not in the tables";
  EXPECT_EQ(table_rows(cpu).size(), 7U);
}

}  // namespace
}  // namespace carveout::probe
