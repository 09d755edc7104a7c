// A report becomes a file and is the same report when it is read; what is no report is refused.

#include "files/result_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidjson/document.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "client/l2_class.hpp"
#include "files/result_check.hpp"
#include "unit/helpers.hpp"
#include "unit/probe_reports.hpp"

namespace carveout::probe {
namespace {

using carveout::test::TemporaryDirectory;
using testing::HasSubstr;
using testing::StartsWith;

std::string json_of(const Report& report, const Findings& findings = {}) {
  const auto text = to_json(report, findings);
  EXPECT_TRUE(text) << text.error().describe();
  return text ? *text : "";
}

rapidjson::Document parsed(const std::string& text) {
  rapidjson::Document document;
  document.Parse<rapidjson::kParseFullPrecisionFlag>(text.c_str());
  EXPECT_FALSE(document.HasParseError()) << text;
  return document;
}

TEST(ProbeResultFile, IsReadBackAsItWas) {
  for (const Report& report : {made_bandwidth(), made_residency(), made_latency(), made_empty()}) {
    SCOPED_TRACE(report.command);
    const std::string text = json_of(report);
    const auto read = from_json(text, "a.json");
    ASSERT_TRUE(read) << read.error().describe();
    expect_same(*read, report);
    EXPECT_EQ(json_of(*read), text);
  }
}

TEST(ProbeResultFile, KeepsTheSmallestAndTheLargestFigures) {
  Report report = made_bandwidth();
  report.size = Bytes(std::numeric_limits<std::uint64_t>::max());
  Batch& batch = report.series[0].batches[0];
  batch.median = std::numeric_limits<double>::denorm_min();
  batch.cold = std::numeric_limits<double>::max();
  batch.count = std::numeric_limits<std::uint64_t>::max();
  batch.autocorrelation = -1;
  report.series[0].moments[0].celsius = std::numeric_limits<unsigned>::max();
  const auto read = from_json(json_of(report), "a.json");
  ASSERT_TRUE(read) << read.error().describe();
  expect_same(*read, report);
}

TEST(ProbeResultFile, HasNumbersWithTheirUnitsInTheNames) {
  const Report report = made_residency();
  const auto file = parsed(json_of(report, made_findings()));
  EXPECT_STREQ(file["schema"].GetString(), "carveout-probe/1");
  EXPECT_EQ(file["size_bytes"].GetUint64(), 64U << 20U);
  EXPECT_EQ(file["reread_size_bytes"].GetUint64(), 8U << 20U);
  EXPECT_EQ(file["started_unix_s"].GetDouble(), 1796000000.125);
  const auto& series = file["series"][2];
  EXPECT_STREQ(series["arm"].GetString(), "daemon/register");
  EXPECT_STREQ(series["row"].GetString(), "reread");
  EXPECT_EQ(series["batches"].Size(), 3U);
  const auto& batch = series["batches"][1];
  EXPECT_EQ(batch["median_gb_per_s"].GetDouble(), report.series[2].batches[1].median);
  EXPECT_EQ(batch["cold_gb_per_s"].GetDouble(), report.series[2].batches[1].cold);
  EXPECT_EQ(batch["conditions"]["sm_mhz"].GetUint(), 2401U);
  const Arm arm = summarize_arm(report.series[2].batches);
  EXPECT_EQ(series["median_gb_per_s"].GetDouble(), arm.median);
  EXPECT_EQ(series["least_gb_per_s"].GetDouble(), arm.least);
  EXPECT_EQ(series["most_gb_per_s"].GetDouble(), arm.most);
  EXPECT_EQ(series["spread_gb_per_s"].GetDouble(), arm.spread());
  const auto times = parsed(json_of(made_latency()));
  EXPECT_TRUE(times["series"][0]["batches"][0].HasMember("median_ns"));
  EXPECT_TRUE(times["series"][2]["batches"][0].HasMember("median_ms"));
}

TEST(ProbeResultFile, HasWhatFollows) {
  const auto file = parsed(json_of(made_residency(), made_findings()));
  const auto& against = file["against_ordinary"];
  ASSERT_EQ(against.Size(), 3U);
  EXPECT_STREQ(against[0]["arm"].GetString(), "daemon/vmm");
  EXPECT_STREQ(against[0]["row"].GetString(), "reread");
  EXPECT_STREQ(against[0]["verdict"].GetString(), "less");
  EXPECT_EQ(against[0]["difference_fraction"].GetDouble(), -0.25);
  EXPECT_EQ(against[0]["least_fraction"].GetDouble(), -0.5);
  EXPECT_EQ(against[0]["most_fraction"].GetDouble(), -0.125);
  EXPECT_EQ(against[0]["blocks"].GetUint(), 8U);
  EXPECT_FALSE(against[0].HasMember("wanting"));
  EXPECT_THAT(against[1]["wanting"].GetString(),
              HasSubstr("blocks whose differences lie within 1.0 %, not 22 %"));
  const auto& residency = file["residency"];
  ASSERT_EQ(residency.Size(), 2U);
  EXPECT_STREQ(residency[0]["residency"].GetString(), "not_resident");
  EXPECT_STREQ(residency[0]["why"].GetString(), "slower than streamed");
  EXPECT_STREQ(residency[0]["lent"]["verdict"].GetString(), "less");
  EXPECT_STREQ(residency[0]["ordinary"]["verdict"].GetString(), "more");
  EXPECT_STREQ(residency[1]["residency"].GetString(), "resident");
  ASSERT_EQ(file["remarks"].Size(), 2U);
  EXPECT_STREQ(file["remarks"][1].GetString(), "a second remark");
}

TEST(ProbeResultFile, LeavesOutWhatIsNotKnown) {
  const auto file = parsed(json_of(made_bandwidth()));
  for (const char* name : {"host", "gpu", "driver", "cuda", "lender"})
    EXPECT_FALSE(file["machine"].HasMember(name)) << name;
  EXPECT_FALSE(file.HasMember("reread_size_bytes"));
  EXPECT_FALSE(file["arms"][0].HasMember("map"));
  EXPECT_FALSE(file["arms"][1].HasMember("unavailable"));
  const auto& conditions = file["series"][0]["batches"][0]["conditions"];
  EXPECT_EQ(conditions.MemberCount(), 2U) << "its time and the load average";
}

TEST(ProbeResultFile, MakesTextPrintable) {
  Report report = made_bandwidth();
  report.machine.processor = "bad\x1b[31m\xff";
  const auto read = from_json(json_of(report), "a.json");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->machine.processor, "bad\\x1b[31m\\xff");
}

// Reports that no file can hold, and what is said of them.
TEST(ProbeResultFile, RefusesWhatNoFileCanHold) {
  const double not_a_number = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  struct Case {
    std::function<void(Report&, Findings&)> spoil;
    const char* said;
  };
  const Case cases[] = {
      {[&](Report& r, Findings&) { r.series[0].batches[2].median = not_a_number; },
       "median_gb_per_s is not a finite number"},
      {[&](Report& r, Findings&) { r.series[0].batches[2].cold = infinity; },
       "reread of ordinary at 8 MiB: cold_gb_per_s is not a finite number"},
      {[&](Report& r, Findings&) { r.series[1].batches[7].autocorrelation = not_a_number; },
       "reread of daemon/vmm at 8 MiB: autocorrelation is not a finite number"},
      {[](Report& r, Findings&) { r.series[0].batches[2].cold = -1; }, "cold_gb_per_s is negative"},
      {[&](Report& r, Findings&) { r.series[0].moments[1].unix_s = -infinity; }, "unix_s is not"},
      {[&](Report& r, Findings&) { r.ended_unix_s = not_a_number; },
       "the run: ended_unix_s is not a finite number"},
      {[&](Report&, Findings& f) { f.against_ordinary[0].comparison.most = infinity; },
       "most_fraction is not a finite number"},
      {[&](Report&, Findings& f) { f.residencies[0].verdict.lent.difference = not_a_number; },
       "the residency of daemon/vmm: difference_fraction is not"},
      {[](Report& r, Findings&) { r.series[3].arm = 4; }, "there is no arm 4"},
      {[](Report&, Findings& f) { f.residencies[0].arm = 9; }, "there is no arm 9"},
      {[](Report& r, Findings&) { r.arms[3].name = "ordinary"; }, "two arms are named ordinary"},
      {[](Report& r, Findings&) { r.series[0].moments.pop_back(); }, "8 batches, but 7 moments"},
  };
  for (const Case& one : cases) {
    Report report = made_residency();
    Findings findings = made_findings();
    one.spoil(report, findings);
    const auto text = to_json(report, findings);
    ASSERT_FALSE(text) << one.said;
    EXPECT_EQ(text.error().code, Code::kInvalid);
    EXPECT_THAT(text.error().describe(), HasSubstr(one.said));
  }
}

TEST(ProbeResultFile, RefusesWhatIsNoResult) {
  const std::string good = json_of(made_bandwidth());
  const auto without = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "line 1: is not JSON"},
      {"{\n\"schema\": 1,\n}", "line 3: is not JSON"},
      {good.substr(0, good.size() / 2), "is not JSON"},
      {good + "x", "is not JSON"},
      {"[]", "names no schema"},
      {R"({"a": {"schema": "carveout-probe/1"}})", "names no schema"},
      {R"({"schema": 1})", "names no schema"},
      {without("carveout-probe/1", "carveout-probe/2"),
       R"(is of schema "carveout-probe/2", this reads "carveout-probe/1")"},
      {R"({"unknown": 1, "schema": "else"})", "is of schema \"else\""},
      {std::string(100'000, '['), "nested more than 16 deep"},
      {R"({"schema": "carveout-probe/1", "series": )" + std::string(17, '['), "nested more than"},
      {"[" +
           [] {
             std::string zeros;
             for (std::size_t i = 0; i < kMaxResultValues; ++i)
               zeros += "0,";
             return zeros;
           }() +
           "0]",
       "holds more than 8000000 values"},
      {good + std::string(kMaxResultBytes, ' '), "is larger than 64 MiB"},
  };
  for (const auto& [text, said] : cases) {
    const auto report = from_json(text, "some/file.json");
    ASSERT_FALSE(report) << said;
    // A file of another schema is a good one, for another program.
    const bool is_other = std::string_view(said).starts_with("is of schema");
    EXPECT_EQ(report.error().code, is_other ? Code::kRefused : Code::kInvalid) << said;
    EXPECT_THAT(report.error().describe(), StartsWith("some/file.json: ")) << said;
    EXPECT_THAT(report.error().describe(), HasSubstr(said));
  }
}

// The client library reads the same file with a reader of its own.
TEST(ProbeResultFile, IsTheMachinesL2Class) {
  const auto l2 = client::parse_l2_class(json_of(made_residency(), made_findings()), "r.json");
  ASSERT_TRUE(l2) << l2.error().describe();
  EXPECT_EQ(l2->engine, "gpu");
  EXPECT_EQ(l2->driver, "580.82.07");
  EXPECT_EQ(l2->measured_unix_s, made_residency().ended_unix_s);
  ASSERT_EQ(l2->arms.size(), 2U);
  EXPECT_EQ(l2->arms[0].name, "daemon/vmm");
  EXPECT_EQ(l2->arms[0].map, "vmm");
  EXPECT_EQ(l2->arms[0].residency, "not_resident");
  EXPECT_EQ(l2->arms[1].residency, "resident");
  for (const Residency word : {Residency::kInconclusive, Residency::kPartly}) {
    Findings findings = made_findings();
    findings.residencies[0].verdict.residency = word;
    EXPECT_TRUE(client::parse_l2_class(json_of(made_residency(), findings), "r.json"));
  }
  EXPECT_FALSE(client::parse_l2_class(json_of(made_bandwidth()), "r.json"));
}

TEST(ProbeResultFile, IsReadFromItsPath) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.json", json_of(made_latency()));
  const auto read = read_report(path);
  ASSERT_TRUE(read) << read.error().describe();
  expect_same(*read, made_latency());
  const auto missing = read_report(directory.path("none.json"));
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().describe(), HasSubstr(directory.path("none.json")));
  ASSERT_EQ(::mkfifo(directory.path("fifo").c_str(), 0600), 0);
  const auto fifo = read_report(directory.path("fifo"));
  ASSERT_FALSE(fifo) << "and nobody was waited for";
  EXPECT_THAT(fifo.error().describe(), HasSubstr("is not JSON"));
  // As a shell's <(...): open, and nothing in it yet.
  carveout::test::Pipe pipe = carveout::test::make_pipe();
  std::thread writer([&pipe] {
    const std::string text = json_of(made_latency());
    for (std::size_t at = 0; at < text.size(); at += 1000) {
      const std::string part = text.substr(at, 1000);
      EXPECT_EQ(::write(pipe.write_end.get(), part.data(), part.size()),
                static_cast<ssize_t>(part.size()));
      std::this_thread::yield();
    }
    pipe.write_end.reset();
  });
  const auto piped = read_report(cat("/proc/self/fd/", pipe.read_end.get()));
  writer.join();
  ASSERT_TRUE(piped) << piped.error().describe();
  expect_same(*piped, made_latency());
  const auto endless = read_report("/dev/zero");
  ASSERT_FALSE(endless);
  EXPECT_THAT(endless.error().describe(), HasSubstr("/dev/zero: is larger than 64 MiB"));
}

}  // namespace
}  // namespace carveout::probe
