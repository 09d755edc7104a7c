// Two made runs: what was planted is found, and nothing else.

#include "files/compare.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidjson/document.h>

#include <functional>
#include <limits>
#include <string>

#include "support/probe_schema.hpp"
#include "unit/probe_reports.hpp"

namespace carveout::probe {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

Differences compared(const Report& a, const Report& b) {
  auto result = compare_reports(a, "a.json", b, "b.json");
  EXPECT_TRUE(result) << result.error().describe();
  return result ? *result : Differences{};
}

Report with_more(Report report, Row row, double factor) {
  for (Series& series : report.series) {
    if (series.row != row) continue;
    for (Batch& batch : series.batches)
      batch.median *= factor;
  }
  return report;
}

std::string json_of(const Differences& differences) {
  const auto text = differences_json(differences);
  EXPECT_TRUE(text) << text.error().describe();
  return text ? *text : "";
}

TEST(ProbeCompare, EqualRunsCannotBeToldApart) {
  const Differences same = compared(made_residency(), made_residency());
  EXPECT_EQ(same.found.size(), 12U);
  for (const Difference& one : same.found)
    EXPECT_EQ(one.comparison.verdict, Verdict::kInconclusive);
  EXPECT_TRUE(same.only_in_first.empty());
  EXPECT_TRUE(same.only_in_second.empty());
  ASSERT_EQ(same.remarks.size(), 1U) << "of the time, always";
  EXPECT_THAT(same.remarks[0], HasSubstr("what drifted between them counts as difference"));
  EXPECT_THAT(differences_table(same),
              AllOf(HasSubstr("inconclusive: no difference that is larger than its range over the "
                              "blocks, of which there must be 8"),
                    Not(HasSubstr("faster\n")), Not(HasSubstr("slower\n"))));
}

TEST(ProbeCompare, FindsARateThatIsATenthMore) {
  const Differences more = compared(made_bandwidth(), with_more(made_bandwidth(), Row::kRead, 1.1));
  std::size_t found = 0;
  for (const Difference& one : more.found) {
    const bool planted = one.of.row == Row::kRead;
    EXPECT_EQ(one.comparison.verdict, planted ? Verdict::kMore : Verdict::kInconclusive);
    EXPECT_NEAR(one.comparison.difference, planted ? 0.1 : 0, 1e-9);
    EXPECT_DOUBLE_EQ(one.second.median, one.first.median * (planted ? 1.1 : 1));
    found += planted ? 1 : 0;
  }
  EXPECT_EQ(found, 2U) << "both arms";
  EXPECT_THAT(differences_table(more), AllOf(HasSubstr("+10.0 %"), HasSubstr("more: faster\n")));
  const Differences less = compared(with_more(made_bandwidth(), Row::kRead, 1.1), made_bandwidth());
  EXPECT_EQ(less.found[2].comparison.verdict, Verdict::kLess);
  EXPECT_THAT(differences_table(less), AllOf(HasSubstr("-9.1 %"), HasSubstr("less: slower\n")));
}

TEST(ProbeCompare, CallsMoreTimeSlower) {
  const Differences more = compared(made_latency(), with_more(made_latency(), Row::kClaim, 1.5));
  EXPECT_THAT(differences_table(more),
              AllOf(HasSubstr("+50.0 %"), HasSubstr("more: slower\n"), Not(HasSubstr("faster\n"))));
  const Differences less = compared(made_latency(), with_more(made_latency(), Row::kLoad, 0.5));
  EXPECT_THAT(differences_table(less),
              AllOf(HasSubstr("-50.0 %"), HasSubstr("less: faster\n"), Not(HasSubstr("slower\n"))));
}

TEST(ProbeCompare, KnowsArmsByTheirNames) {
  Report turned = made_residency();
  std::swap(turned.arms[1], turned.arms[2]);
  for (Series& series : turned.series)
    if (series.arm == 1 || series.arm == 2) series.arm = 3 - series.arm;
  const Differences same = compared(made_residency(), turned);
  ASSERT_EQ(same.found.size(), 12U);
  for (const Difference& one : same.found)
    EXPECT_EQ(one.comparison.difference, 0) << one.of.arm;
}

TEST(ProbeCompare, RefusesWhereThereIsNothingToCompare) {
  Report nothing = made_bandwidth();
  for (Series& series : nothing.series)
    series.batches.clear();
  Report others = made_bandwidth();
  for (ArmRecord& arm : others.arms)
    arm.name += "2";
  struct Case {
    Report first, second;
    const char* said;
  };
  const Case cases[] = {
      {made_bandwidth(), nothing, "b.json: nothing was measured in that run"},
      {nothing, made_bandwidth(), "a.json: nothing was measured in that run"},
      {made_bandwidth(), others, "a.json and b.json: have no row of a memory in common"}};
  for (const auto& [first, second, said] : cases) {
    const auto refused = compare_reports(first, "a.json", second, "b.json");
    ASSERT_FALSE(refused) << said;
    EXPECT_EQ(refused.error().code, Code::kRefused);
    EXPECT_THAT(refused.error().describe(), HasSubstr(said));
  }
}

TEST(ProbeCompare, ListsWhatOnlyOneHas) {
  Report first = made_residency();
  first.series[0].batches.clear();  // never got to its first
  Report second = made_residency();
  second.arms[2].name = "memfd/register";
  const Differences lists = compared(first, second);
  EXPECT_EQ(lists.found.size(), 7U);
  const Measured reread{"ordinary", Row::kReread, mib(8)};
  EXPECT_THAT(lists.only_in_second, Contains(reread));
  EXPECT_THAT(lists.only_in_second, Contains(Measured{"memfd/register", Row::kRead, mib(64)}));
  EXPECT_EQ(lists.only_in_second.size(), 5U);
  EXPECT_THAT(lists.only_in_first, Contains(Measured{"daemon/register", Row::kRead, mib(64)}));
  EXPECT_EQ(lists.only_in_first.size(), 4U);
  EXPECT_THAT(differences_table(lists),
              AllOf(HasSubstr("only in a.json: read, one pass (daemon/register) at 64 MiB\n"),
                    HasSubstr("only in b.json: reread (ordinary) at 8 MiB\n")));
}

TEST(ProbeCompare, RefusesRunsThatAreNotOfTheSame) {
  Report gpu = made_bandwidth();
  gpu.engine = EngineKind::kGpu;
  Report large = made_bandwidth();
  large.size = gib(1);
  struct Case {
    Report other;
    const char* said;
  };
  const Case cases[] = {
      {made_latency(), "the command of a.json is bandwidth, of b.json it is latency"},
      {gpu, "the engine of a.json is cpu, of b.json it is gpu"},
      {large, "the size of a.json is 64 MiB, of b.json it is 1 GiB"},
  };
  for (const Case& one : cases) {
    const auto refused = compare_reports(made_bandwidth(), "a.json", one.other, "b.json");
    ASSERT_FALSE(refused) << one.said;
    EXPECT_EQ(refused.error().code, Code::kRefused);
    EXPECT_THAT(refused.error().describe(), HasSubstr(one.said));
  }
}

TEST(ProbeCompare, RemarksOnEachConditionThatDiffers) {
  struct Case {
    std::function<void(Report&)> change;
    const char* said;
  };
  const Case cases[] = {
      {[](Report& r) { r.machine.kernel = "Linux 7"; },
       "unlike in the kernel: Linux 6.18.44 x86_64 in a.json, Linux 7 in b.json"},
      {[](Report& r) { r.machine.host = "spark-2"; },
       "unlike in the host: spark-1 in a.json, spark-2 in b.json"},
      {[](Report& r) { r.machine.processor = "Else"; }, "unlike in the processor"},
      {[](Report& r) { r.machine.gpu = "Else"; }, "unlike in the GPU: NVIDIA GB10 in a.json, Else"},
      {[](Report& r) { r.machine.driver.clear(); },
       "unlike in the driver: 580.82.07 in a.json, not known in b.json"},
      {[](Report& r) { r.machine.cuda = "14.0"; }, "unlike in CUDA: 13.0"},
      {[](Report& r) { r.machine.lender = "Else"; }, "unlike in the lender"},
      {[](Report& r) { r.machine.page_bytes = 65536; },
       "unlike in the host's page size: 4 KiB in a.json, 64 KiB in b.json"},
      {[](Report& r) { r.machine.cache_bytes.push_back(1U << 20U); },
       "unlike in the caches: 24 MiB in a.json, 24 MiB, 1 MiB in b.json"},
      {[](Report& r) { r.series[3].moments[2].governor = "powersave"; },
       "unlike in the governor: performance in a.json, performance, powersave in b.json"},
      {[](Report& r) { r.version = "9"; }, "unlike in the probe: 0.1.0 in a.json, 9 in b.json"},
      {[](Report& r) { r.engine_detail = "Else"; }, "unlike in the engine"},
      {[](Report& r) { r.threads = 3; }, "unlike in the threads: 2 in a.json, 3 in b.json"},
      {[](Report& r) { r.blocks = 9; }, "unlike in the blocks: 8 in a.json, 9 in b.json"},
      {[](Report& r) { r.reread_size = mib(4); }, "unlike in the working set that is read again"},
      {[](Report& r) { r.arms[1].page_bytes = 4096; },
       "unlike in the page size of daemon/vmm: 2 MiB in a.json, 4 KiB in b.json"},
      {[](Report& r) { r.arms[1].memory = "Else"; }, "unlike in the memory of daemon/vmm"},
      {[](Report& r) { r.arms[1].map = "auto"; }, "unlike in the mapping of daemon/vmm"},
  };
  for (const Case& one : cases) {
    Report other = made_residency();
    one.change(other);
    const Differences result = compared(made_residency(), other);
    EXPECT_EQ(result.remarks.size(), 2U) << one.said;
    EXPECT_THAT(result.remarks, Contains(HasSubstr(one.said)));
    EXPECT_THAT(differences_table(result), HasSubstr(one.said));
  }
}

TEST(ProbeCompare, SaysHowFarApartTheRunsWere) {
  const std::pair<double, const char*> cases[] = {
      {0, "began 0 s apart"},          {119, "began 119 s apart"},
      {-120, "began 2 minutes apart"}, {7'200, "began 2 hours apart"},
      {259'200, "began 3 days apart"},
  };
  for (const auto& [seconds, said] : cases) {
    Report later = made_latency();
    later.started_unix_s += seconds;
    EXPECT_THAT(compared(made_latency(), later).remarks, Contains(HasSubstr(said)));
  }
  Report never = made_latency();
  never.started_unix_s = 1e300;
  EXPECT_THAT(compared(made_latency(), never).remarks, Contains(HasSubstr("days apart")));
}

TEST(ProbeCompare, WritesJsonAsItsSchemaHasIt) {
  Report other = with_more(made_latency(), Row::kLoad, 1.25);
  other.arms[1].name = "drm/host";
  const Differences result = compared(made_latency(), other);
  const std::string text = json_of(result);
  EXPECT_EQ(carveout::test::validate_against_schema(text, "comparison.schema.json"), "");
  rapidjson::Document json;
  json.Parse(text.c_str());
  EXPECT_STREQ(json["schema"].GetString(), "carveout-probe-comparison/1");
  EXPECT_STREQ(json["first"]["name"].GetString(), "a.json");
  EXPECT_STREQ(json["second"]["name"].GetString(), "b.json");
  ASSERT_EQ(json["differences"].Size(), 3U);
  const auto& load = json["differences"][0];
  EXPECT_STREQ(load["row"].GetString(), "load");
  EXPECT_STREQ(load["verdict"].GetString(), "more");
  EXPECT_NEAR(load["difference_fraction"].GetDouble(), 0.25, 1e-9);
  EXPECT_DOUBLE_EQ(load["second_median_ns"].GetDouble(),
                   load["first_median_ns"].GetDouble() * 1.25);
  EXPECT_TRUE(json["differences"][1].HasMember("first_median_ms"));
  EXPECT_EQ(json["only_in_first"].Size(), 3U);
  EXPECT_STREQ(json["only_in_second"][0]["arm"].GetString(), "drm/host");
  EXPECT_EQ(json["remarks"].Size(), 1U);
}

TEST(ProbeCompare, WritesNoFigureThatIsNotFinite) {
  Differences result = compared(made_latency(), made_latency());
  result.found[1].comparison.most = std::numeric_limits<double>::infinity();
  const auto text = differences_json(result);
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().describe(), HasSubstr("most_fraction is not a finite number"));
}

}  // namespace
}  // namespace carveout::probe
