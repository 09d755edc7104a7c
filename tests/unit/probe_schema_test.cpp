// What the probe writes passes the schema in the tree, and what does not is named by its place.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidjson/document.h>
#include <rapidjson/pointer.h>
#include <rapidjson/prettywriter.h>

#include <fstream>
#include <iterator>
#include <string>

#include "files/result_file.hpp"
#include "files/result_schema.hpp"
#include "support/probe_schema.hpp"
#include "unit/probe_reports.hpp"

namespace carveout::probe {
namespace {

using carveout::test::validate_against_schema;
using testing::HasSubstr;
using testing::StartsWith;

std::string json_of(const Report& report, const Findings& findings = {}) {
  const auto text = to_json(report, findings);
  EXPECT_TRUE(text) << text.error().describe();
  return text ? *text : "";
}

TEST(ProbeSchema, OfTheProgramIsTheFileInTheTree) {
  std::ifstream file(CARVEOUT_SOURCE_DIR "/tools/carveout-probe/files/result.schema.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_GT(text.size(), 10'000U);
  EXPECT_EQ(result_schema(), text);
}

TEST(ProbeSchema, PassesWhatTheProbeWrites) {
  EXPECT_EQ(validate_against_schema(json_of(made_bandwidth())), "");
  EXPECT_EQ(validate_against_schema(json_of(made_latency())), "");
  EXPECT_EQ(validate_against_schema(json_of(made_residency())), "");
  EXPECT_EQ(validate_against_schema(json_of(made_residency(), made_findings())), "");
  EXPECT_EQ(validate_against_schema(json_of(made_empty())), "");
}

// A file in which one place has been changed: set to a value, or (without one) removed.
struct Planted {
  const char* place;
  const char* value;  // JSON; null: there is nothing
  const char* where;
  const char* what;
};

constexpr Planted kPlanted[] = {
    {"/blocks", nullptr, "its top", "has no blocks"},
    {"/machine", nullptr, "its top", "has no machine"},
    {"/residency", nullptr, "its top", "has no residency"},
    {"/size_bytes", "\"64\"", "/size_bytes", "is a string, expected is integer"},
    {"/size_bytes", "1.5", "/size_bytes", "is a number that is not whole"},
    {"/started_unix_s", "\"now\"", "/started_unix_s", "is a string, expected is number"},
    {"/started_unix_s", "-1", "/started_unix_s", "is less than 0"},
    {"/threads", "-2", "/threads", "is less than 0"},
    {"/surprise", "1", "/surprise", "is not known here"},
    {"/machine/surprise", "null", "/machine/surprise", "is not known here"},
    {"/machine/page_bytes", "[]", "/machine/page_bytes", "is an array, expected is integer"},
    {"/machine/cache_bytes/0", "true", "/machine/cache_bytes/0", "is a truth value"},
    {"/command", "\"info\"", "/command",
     R"(is "info", expected is one of: bandwidth, residency, latency)"},
    {"/engine", "\"npu\"", "/engine", "is \"npu\", expected is one of: cpu, gpu"},
    {"/arms/1/name", nullptr, "/arms/1", "has no name"},
    {"/arms/1/name", "\"\"", "/arms/1/name", "is empty"},
    {"/arms/1/name", "\"ordinary\"", "/arms/1/name", "is another arm's, too: ordinary"},
    {"/arms/1/pages", "4", "/arms/1/pages", "is not known here"},
    {"/series", "{}", "/series", "is an object, expected is array"},
    {"/series/3", "7", "/series/3", "is a number, expected is object"},
    {"/series/3/row", nullptr, "/series/3", "has no row"},
    {"/series/3/row", "4", "/series/3/row", "is a number, expected is string"},
    {"/series/3/row", "\"rewrite\"", "/series/3/row", "is \"rewrite\", which is no row"},
    {"/series/3/row", "\"load\"", "/series/3/median_gb_per_s", "is not known here"},
    {"/series/3/arm", "\"drm/host\"", "/series/3/arm", "is none of /arms: drm/host"},
    {"/series/3/row", "\"reread\"", "/series/3", "is there twice"},
    {"/series/3/median_ns", "4", "/series/3/median_ns", "is not known here"},
    {"/series/3/spread_gb_per_s", nullptr, "/series/3", "has no spread_gb_per_s"},
    {"/series/3/batches/5/median_gb_per_s", nullptr, "/series/3/batches/5",
     "has no median_gb_per_s"},
    {"/series/3/batches/5/median_gb_per_s", "\"240\"", "/series/3/batches/5/median_gb_per_s",
     "is a string, expected is number"},
    {"/series/3/batches/5/median_gb_per_s", "null", "/series/3/batches/5/median_gb_per_s",
     "is null, expected is number"},
    {"/series/3/batches/5/count", "-1", "/series/3/batches/5/count", "is less than 0"},
    {"/series/3/batches/5/autocorrelation", "2", "/series/3/batches/5/autocorrelation",
     "is more than 1"},
    {"/series/3/batches/5/conditions", nullptr, "/series/3/batches/5", "has no conditions"},
    {"/series/3/batches/5/conditions/sm_mhz", "4294967296", "/series/3/batches/5/conditions/sm_mhz",
     "is more than 4294967295"},
    {"/series/3/batches/5/conditions/fan_rpm", "1", "/series/3/batches/5/conditions/fan_rpm",
     "is not known here"},
    {"/blocks", "7", "/series/0/batches", "has 8 elements, more than /blocks"},
    {"/against_ordinary/0/verdict", "\"better\"", "/against_ordinary/0/verdict",
     R"(is "better", expected is one of: inconclusive, less, more)"},
    {"/against_ordinary/0/row", "\"rewrite\"", "/against_ordinary/0/row", "expected is one of"},
    {"/residency/1/residency", "\"cached\"", "/residency/1/residency",
     R"(is "cached", expected is one of: inconclusive, not_resident, partly, resident)"},
    {"/residency/1/lent/verdict", "\"best\"", "/residency/1/lent/verdict", "expected is one of"},
    {"/remarks/0", "4", "/remarks/0", "is a number, expected is string"},
};

std::string planted(const Planted& bad) {
  rapidjson::Document document;
  document.Parse(json_of(made_residency(), made_findings()).c_str());
  const rapidjson::Pointer place(bad.place);
  if (bad.value == nullptr) {
    EXPECT_TRUE(place.Erase(document)) << bad.place;
  } else {
    rapidjson::Document value(&document.GetAllocator());
    value.Parse(bad.value);
    EXPECT_FALSE(value.HasParseError()) << bad.value;
    place.Set(document, value);
  }
  rapidjson::StringBuffer buffer;
  rapidjson::PrettyWriter<rapidjson::StringBuffer> writer(buffer);
  document.Accept(writer);
  return buffer.GetString();
}

TEST(ProbeSchema, NamesThePlaceOfEachFault) {
  for (const Planted& bad : kPlanted) {
    const auto report = from_json(planted(bad), "bad.json");
    ASSERT_FALSE(report) << bad.place;
    EXPECT_EQ(report.error().code, Code::kInvalid);
    EXPECT_THAT(report.error().describe(),
                StartsWith(std::string("bad.json: at ") + bad.where + ": "))
        << bad.place;
    EXPECT_THAT(report.error().describe(), HasSubstr(bad.what)) << bad.place;
  }
}

// What only a reader sees is not the schema's to find: names that refer to nothing.
TEST(ProbeSchema, AloneFindsFaultsToo) {
  std::size_t beyond_it = 0;
  for (const Planted& bad : kPlanted) {
    const bool found = !validate_against_schema(planted(bad)).empty();
    const std::string what = bad.what;
    const bool refers = what.starts_with("is another arm's") || what.starts_with("is none of") ||
                        what.starts_with("is there twice") || what.starts_with("has 8 elements");
    EXPECT_EQ(found, !refers) << bad.place;
    beyond_it += refers ? 1 : 0;
  }
  EXPECT_EQ(beyond_it, 4U);
}

}  // namespace
}  // namespace carveout::probe
