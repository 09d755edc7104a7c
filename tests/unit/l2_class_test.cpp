// What carveout-probe has left of the L2 is read, and said by `carveoutctl status`; what is no such
// file is an error that says what to do.

#include "client/l2_class.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidjson/document.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <string>
#include <utility>

#include "base/json.hpp"
#include "base/text.hpp"
#include "l2.hpp"
#include "lender_text.hpp"
#include "tables.hpp"
#include "unit/helpers.hpp"

namespace carveout::client {
namespace {

using test::TemporaryDirectory;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// As the probe has it, with what is not looked at left out.
constexpr const char* kMeasured = R"json({
  "schema": "carveout-probe/1",
  "command": "residency",
  "engine": "gpu",
  "started_unix_s": 1796000000.5,
  "ended_unix_s": 1796032800.25,
  "machine": {"host": "spark-1", "kernel": "Linux 6.17.0 aarch64", "gpu": "NVIDIA GB10",
              "driver": "580.82.07", "cache_bytes": [25165824],
              "lender": "carveoutd 0.1.0, backend drm (dumb buffers of /dev/dri/card1)"},
  "arms": [
    {"name": "ordinary", "source": "ordinary"},
    {"name": "cuda/vmm", "source": "cuda", "map": "vmm"},
    {"name": "daemon/vmm", "source": "daemon", "map": "vmm"},
    {"name": "daemon/register", "source": "daemon", "map": "register"}
  ],
  "residency": [
    {"arm": "cuda/vmm", "residency": "resident", "why": "a gain of 61 %"},
    {"arm": "daemon/vmm", "residency": "not_resident", "why": "a gain of 1 %"},
    {"arm": "daemon/register", "residency": "resident", "why": "a gain of 60 %"}
  ]
})json";

// The first occurrence changed.
std::string with(const std::string& from, const std::string& to) {
  std::string text = kMeasured;
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(L2Class, IsWhatTheProbeHasFound) {
  const auto found = parse_l2_class(kMeasured, "r.json");
  ASSERT_TRUE(found) << found.error().describe();
  EXPECT_EQ(found->engine, "gpu");
  EXPECT_EQ(found->gpu, "NVIDIA GB10");
  EXPECT_EQ(found->driver, "580.82.07");
  EXPECT_EQ(found->lender, "carveoutd 0.1.0, backend drm (dumb buffers of /dev/dri/card1)");
  EXPECT_EQ(found->host, "spark-1");
  EXPECT_EQ(found->kernel, "Linux 6.17.0 aarch64");
  EXPECT_EQ(found->measured_unix_s, 1796032800.25);
  ASSERT_EQ(found->arms.size(), 3U);
  EXPECT_EQ(found->arms[0].source, "cuda");
  EXPECT_EQ(found->arms[1].name, "daemon/vmm");
  EXPECT_EQ(found->arms[1].source, "daemon");
  EXPECT_EQ(found->arms[1].map, "vmm");
  EXPECT_EQ(found->arms[1].residency, "not_resident");
  EXPECT_EQ(found->arms[1].why, "a gain of 1 %");
  EXPECT_EQ(found->arms[2].map, "register");
  EXPECT_EQ(found->arms[2].residency, "resident");
}

TEST(L2Class, RefusesWhatIsNoSuchResult) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "is not JSON"},
      {"{", "is not JSON"},
      {"[]", "is not JSON"},
      {std::string(1'000'000, '['), "is not JSON"},
      {"{}", "is no result of carveout-probe's"},
      {R"({"schema": 1})", "is no result of carveout-probe's"},
      {with("probe/1", "probe/2"), "is of schema carveout-probe/2, this reads carveout-probe/1"},
      {with("\"residency\"", "\"bandwidth\""), "is of carveout-probe bandwidth"},
      {with("\"gpu\"", "\"npu\""), "is no whole result"},
      {with("1796032800.25", "\"today\""), "is no whole result"},
      {with("\"machine\"", "\"else\""), "is no whole result"},
      {with("\"arms\"", "\"legs\""), "is no whole result"},
      {with("\"residency\": [", "\"else\": ["), "is no whole result"},
      {with("not_resident", "cached"), "has a verdict that is none"},
      {with("\"arm\": \"daemon/vmm\"", "\"arm\": \"drm/vmm\""), "has a verdict that is none"},
      {with("\"arm\": \"daemon/vmm\"", "\"arm\": 3"), "has a verdict that is none"},
      {with("{\"arm\": \"daemon/vmm\"", "7, {\"arm\": \"daemon/vmm\""),
       "has a verdict that is none"},
      {kMeasured + std::string(kMaxL2ClassBytes, ' '), "is larger than 16 MiB"},
  };
  for (const auto& [text, said] : cases) {
    const auto found = parse_l2_class(text, "/some/r.json");
    ASSERT_FALSE(found) << said;
    EXPECT_EQ(found.error().code, Code::kInvalid);
    EXPECT_EQ(found.error().context, "/some/r.json");
    EXPECT_THAT(found.error().message, HasSubstr(said));
    EXPECT_THAT(found.error().message, HasSubstr("--json /some/r.json")) << "what to do";
  }
}

TEST(L2Class, IsNothingWithoutAFile) {
  const TemporaryDirectory directory;
  for (const std::string& path : {directory.path("r.json"), directory.path("none/r.json")}) {
    const auto found = read_l2_class(path);
    ASSERT_TRUE(found) << found.error().describe();
    EXPECT_FALSE(found->has_value());
  }
}

TEST(L2Class, IsReadFromItsFile) {
  const TemporaryDirectory directory;
  const auto found = read_l2_class(directory.file("r.json", kMeasured));
  ASSERT_TRUE(found) << found.error().describe();
  ASSERT_TRUE(found->has_value());
  EXPECT_EQ((*found)->arms.size(), 3U);
}

TEST(L2Class, IsAnErrorWhereTheFileCannotBeUsed) {
  const TemporaryDirectory directory;
  ASSERT_EQ(::mkfifo(directory.path("fifo").c_str(), 0600), 0);
  for (const std::string& path : {directory.path(), directory.path("fifo"),
                                  directory.file("empty", ""), std::string("/dev/zero")}) {
    const auto found = read_l2_class(path);
    ASSERT_FALSE(found) << path;
    EXPECT_EQ(found.error().context, path);
  }
}

TEST(L2Class, KnowsADriversVersionByWhatItSays) {
  EXPECT_EQ(nvidia_driver_in("580.82.07\n"), "580.82.07");
  EXPECT_EQ(nvidia_driver_in("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.82.07  "
                             "Release Build  (x@y)  Thu Aug 28 10:00:00 UTC 2025\n"
                             "GCC version:  gcc version 13.3.0\n"),
            "580.82.07");
  EXPECT_EQ(nvidia_driver_in("NVRM version: none\nGCC version:  gcc version 13.3.0\n"), "");
  EXPECT_EQ(nvidia_driver_in(""), "");
  EXPECT_EQ(nvidia_driver_in("12 . .. ..5"), "");
}

TEST(L2Class, KnowsWhatItIsOn) {
  utsname name{};
  ASSERT_EQ(::uname(&name), 0);
  EXPECT_EQ(here().host, name.nodename);
  EXPECT_THAT(here().kernel, AllOf(StartsWith(name.sysname), HasSubstr(name.release)));
}

// --- what carveoutctl makes of it ---

// As the daemon has it that was measured.
constexpr const char* kStatus = R"({"version": "0.1.0", "free_bytes": 4096, "backend": "drm",
    "backend_detail": "dumb buffers of /dev/dri/card1"})";

constexpr const char* kHost = "spark-1";
constexpr const char* kKernel = "Linux 6.17.0 aarch64";

rapidjson::Document status_with(const std::string& file, const std::string& driver_now,
                                const char* answer = kStatus) {
  rapidjson::Document status;
  status.Parse(answer);
  ctl::add_l2(status, file, {.driver = driver_now, .host = kHost, .kernel = kKernel});
  return status;
}

std::string lender_of(const char* answer) {
  rapidjson::Document status;
  status.Parse(answer);
  return ctl::lender_text(status);
}

TEST(LenderText, IsWhatTheDaemonAnswers) {
  const std::string lender = lender_of(kStatus);
  EXPECT_EQ(lender, "carveoutd 0.1.0, backend drm (dumb buffers of /dev/dri/card1)");
  EXPECT_EQ(ctl::backend_in(lender), "backend drm (dumb buffers of /dev/dri/card1)");
  EXPECT_EQ(lender_of(R"({"backend": "x\u001b"})"), "carveoutd ?, backend x\\x1b (?)");
  for (const char* answer : {"{}", R"({"version": "0.1.0"})", R"({"backend": 3})"})
    EXPECT_EQ(lender_of(answer), "") << answer;
}

TEST(LenderText, SaysWhatItIsLentAs) {
  const std::string lender =
      lender_of(R"({"version": "0.1.0", "backend": "cuda", "backend_detail": "GPU 0",
                    "descriptor": "nvidia"})");
  EXPECT_EQ(lender, "carveoutd 0.1.0, backend cuda (GPU 0), lent as nvidia");
  EXPECT_EQ(ctl::backend_in(lender), "backend cuda (GPU 0), lent as nvidia");
}

TEST(LenderText, HasABackendOnlyWhereItNamesOne) {
  for (const char* text : {"", "carveoutd 0.1.0", "carveoutd 0.1.0, else",
                           "not known: no carveoutd answers there, backend drm (x)"})
    EXPECT_EQ(ctl::backend_in(text), "") << text;
}

class L2Status : public testing::Test {
 protected:
  [[nodiscard]] std::string line(const std::string& text, const std::string& now = "") const {
    return ctl::l2_line(status_with(directory_.file("r.json", text), now));
  }
  [[nodiscard]] std::string line_now(const char* answer, const std::string& text = kMeasured,
                                     const std::string& driver = "") const {
    return ctl::l2_line(status_with(directory_.file("r.json", text), driver, answer));
  }
  TemporaryDirectory directory_;
};

TEST_F(L2Status, SaysWhatWasMeasured) {
  EXPECT_EQ(line(kMeasured),
            "daemon/vmm not resident, daemon/register resident (NVIDIA GB10, driver 580.82.07, "
            "measured 2026-11-30; carveout-probe)");
  EXPECT_EQ(line(kMeasured, "580.82.07"), line(kMeasured));
}

TEST_F(L2Status, SaysThatTheDriverIsAnother) {
  EXPECT_THAT(line(kMeasured, "590.10"),
              HasSubstr("; measured with driver 580.82.07, now 590.10: measure again"));
}

TEST_F(L2Status, SaysThatTheLenderIsAnother) {
  EXPECT_THAT(line_now(R"({"version": "0.1.0", "backend": "memfd", "backend_detail": "ordinary"})"),
              EndsWith("; carveout-probe); measured with backend drm (dumb buffers of "
                       "/dev/dri/card1), now backend memfd (ordinary): measure again"));
  EXPECT_THAT(line_now(R"({"version": "0.1.0", "backend": "drm",
                           "backend_detail": "dumb buffers of /dev/dri/card0"})"),
              HasSubstr("now backend drm (dumb buffers of /dev/dri/card0): measure again"));
  EXPECT_THAT(line_now(R"({"backend": "memfd"})", kMeasured, "590.10"),
              EndsWith("; measured with driver 580.82.07, now 590.10, and with backend drm (dumb "
                       "buffers of /dev/dri/card1), now backend memfd (?): measure again"));
}

TEST_F(L2Status, SaysNothingOfALenderThatIsAlikeOrNotKnown) {
  EXPECT_THAT(line_now(R"({"version": "9", "backend": "drm",
                           "backend_detail": "dumb buffers of /dev/dri/card1"})"),
              Not(HasSubstr("measure again")))
      << "another version lends the same";
  EXPECT_THAT(line_now(R"({"version": "0.1.0"})"), Not(HasSubstr("measure again")));
  const char* other = R"({"version": "0.1.0", "backend": "memfd"})";
  EXPECT_THAT(line_now(other), HasSubstr("measure again"));
  const char* unknown = R"({"version": "0.1.0"})";
  EXPECT_THAT(line_now(unknown, with("\"lender\"", "\"else\"")), Not(HasSubstr("measure again")));
}

TEST_F(L2Status, SaysThatItIsNotKnownWhoseMemoryWasMeasured) {
  for (const std::string& text :
       {with("carveoutd 0.1.0, ", "not known: no answer, "), with("\"lender\"", "\"else\"")}) {
    EXPECT_THAT(line(text), EndsWith("; measured with a backend that the result does not know (as "
                                     "root the probe asks for it): measure again"));
  }
  std::string nothing_lent = with("\"lender\"", "\"else\"");
  for (auto at = nothing_lent.find("\"daemon\""); at != std::string::npos;
       at = nothing_lent.find("\"daemon\""))
    nothing_lent.replace(at, 8, "\"drm\"");
  EXPECT_THAT(line(nothing_lent), Not(HasSubstr("measure again"))) << "no daemon has lent it";
}

TEST_F(L2Status, SaysThatTheHostOrItsKernelIsAnother) {
  EXPECT_THAT(line(with("spark-1", "spark-2")),
              EndsWith("; measured on spark-2, now spark-1: measure again"));
  EXPECT_THAT(line(with("6.17.0", "6.11.0"), "590.10"),
              EndsWith("; measured with driver 580.82.07, now 590.10, and with Linux 6.11.0 "
                       "aarch64, now Linux 6.17.0 aarch64: measure again"));
  EXPECT_EQ(line(with("\"kernel\"", "\"else\"")), line(kMeasured)) << "where it is not known";
}

// The GPU's own memory is what it was held against: its verdict is in the JSON.
TEST_F(L2Status, IsAboutWhatIsLent) {
  EXPECT_THAT(line(kMeasured), Not(HasSubstr("cuda")));
  for (const char* source : {"drm", "dma-heap", "memfd"}) {
    EXPECT_THAT(line(with("\"source\": \"cuda\"", cat("\"source\": \"", source, "\""))),
                StartsWith("cuda/vmm resident, daemon/vmm not resident, "));
  }
  std::string none = kMeasured;
  for (auto at = none.find("\"daemon\""); at != std::string::npos; at = none.find("\"daemon\""))
    none.replace(at, 8, "\"cuda\"");
  EXPECT_THAT(line(none), StartsWith("no lent memory was measured (NVIDIA GB10, "));
}

TEST_F(L2Status, SaysThatTheProcessorsCachesAreNotTheL2) {
  const std::string said = line(with("\"gpu\"", "\"cpu\""), "590.10");
  EXPECT_THAT(said, HasSubstr("is about the processor's caches"));
  EXPECT_THAT(said, HasSubstr("not the L2"));
  EXPECT_THAT(said, Not(HasSubstr("measure again")));
}

TEST_F(L2Status, SaysWhatToDoWithoutAFile) {
  const std::string path = directory_.path("none.json");
  EXPECT_EQ(ctl::l2_line(status_with(path, "590.10")),
            "not measured: carveout-probe residency --engine gpu --json " + path);
}

TEST_F(L2Status, SaysWhyAFileCannotBeUsed) {
  EXPECT_THAT(line("{"), HasSubstr("not known: " + directory_.path("r.json") + ": is not JSON"));
  EXPECT_THAT(ctl::l2_line(status_with(directory_.path(), "")), HasSubstr("Is a directory"));
}

TEST_F(L2Status, CountsWhatItHasNoRoomFor) {
  std::string many;
  for (int i = 0; i < 9; ++i)
    many += R"({"arm": "daemon/register", "residency": "partly", "why": ""}, )";
  EXPECT_THAT(line(with("{\"arm\": \"daemon/vmm\"", many + "{\"arm\": \"daemon/vmm\"")),
              HasSubstr("daemon/register partly and 3 more ("));
  EXPECT_THAT(line(with("\"residency\": [", "\"residency\": [], \"else\": [")),
              HasSubstr("no lent memory was measured (NVIDIA GB10"));
}

TEST_F(L2Status, MakesTextPrintable) {
  EXPECT_THAT(line(with("NVIDIA GB10", "bad\\u001b[31m")), HasSubstr("(bad\\x1b[31m, driver"));
}

TEST_F(L2Status, KnowsNoDayBeyondTheCalendar) {
  EXPECT_THAT(line(with("1796032800.25", "1e300")), HasSubstr("measured 9999-12-31"));
  EXPECT_THAT(line(with("1796032800.25", "-5")), HasSubstr("measured 1970-01-01"));
}

TEST_F(L2Status, IsARowAndAnObject) {
  const auto status = status_with(directory_.file("r.json", kMeasured), "590.10");
  const std::string table = ctl::status_table(status);
  EXPECT_THAT(table, HasSubstr("\nL2             daemon/vmm not resident, "));
  EXPECT_LT(table.find("\nfree "), table.find("\nL2 "));
  const auto& l2 = status["l2"];
  EXPECT_EQ(l2["file"].GetString(), directory_.path("r.json"));
  EXPECT_TRUE(l2["measured"].GetBool());
  EXPECT_STREQ(l2["driver_now"].GetString(), "590.10");
  EXPECT_EQ(l2["measured_unix_s"].GetDouble(), 1796032800.25);
  EXPECT_STREQ(l2["lender"].GetString(),
               "carveoutd 0.1.0, backend drm (dumb buffers of /dev/dri/card1)");
  EXPECT_STREQ(l2["lender_now"].GetString(), l2["lender"].GetString());
  EXPECT_STREQ(l2["arms"][0]["arm"].GetString(), "cuda/vmm");
  EXPECT_STREQ(l2["arms"][1]["residency"].GetString(), "not_resident");
  EXPECT_STREQ(l2["arms"][1]["why"].GetString(), "a gain of 1 %");
  EXPECT_FALSE(l2.HasMember("problem"));
  const auto broken = status_with(directory_.file("b.json", "{"), "");
  EXPECT_FALSE(broken["l2"]["measured"].GetBool());
  EXPECT_TRUE(broken["l2"].HasMember("problem"));
  EXPECT_FALSE(broken["l2"].HasMember("driver_now"));
  EXPECT_FALSE(broken["l2"].HasMember("lender"));
  EXPECT_TRUE(broken["l2"].HasMember("lender_now"));
}

}  // namespace
}  // namespace carveout::client
