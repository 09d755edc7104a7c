// What carveout-probe leaves on file, and what `compare` makes of two files.

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "probe_fixture.hpp"
#include "support/probe_schema.hpp"

namespace carveout::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// What reads the table is gone before it is there.
TEST_F(Probe, WritesItsFilesThoughNobodyReadsTheTable) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd output(ends[1]);
  { const UniqueFd closed(ends[0]); }
  const std::vector<std::string> all = words({"bandwidth", "--size", "2MiB", "--repetitions", "1",
                                              "--json", file("p.json"), "--html", file("p.html")});
  const pid_t pid = spawn(all, output.get(), output.get());
  output.reset();
  EXPECT_EQ(wait_for(pid), 1) << "the table was not written";
  EXPECT_EQ(validate_against_schema(read_file(file("p.json"))), "");
  EXPECT_THAT(read_file(file("p.html")), HasSubstr("</html>"));
}

// A shell has opened the file for standard output: both are in it, one after the other.
TEST_F(Probe, WritesItsJsonBehindTheTable) {
  write_file(file("both"), "", 0600);
  const UniqueFd output(::open(file("both").c_str(), O_WRONLY | O_CLOEXEC));
  const pid_t pid =
      spawn(words({"bandwidth", "--size", "2MiB", "--repetitions", "1", "--json", "/dev/stdout"}),
            output.get(), -1);
  EXPECT_EQ(wait_for(pid), 0);
  const std::string both = read_file(file("both"));
  EXPECT_THAT(both, StartsWith("carveout-probe "));
  const auto begin = both.find("\n{");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(validate_against_schema(both.substr(begin)), "");
}

TEST_F(Probe, SaysWhereNothingCanBePrinted) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  for (const std::vector<std::string>& what :
       {std::vector<std::string>{"--help"}, {"--version"}, {"info"}}) {
    write_file(file("said"), "", 0600);
    const UniqueFd said(::open(file("said").c_str(), O_WRONLY | O_CLOEXEC));
    EXPECT_EQ(wait_for(spawn(words(what), full.get(), said.get())), 1) << what.front();
    EXPECT_THAT(read_file(file("said")), HasSubstr("cannot be written to standard output"));
  }
}

TEST_F(Probe, LosesNoGoodResultToARunThatFails) {
  const std::string result = measured("good.json"), page = file("good.html");
  const std::string text = read_file(result);
  write_file(page, "its page", 0600);
  daemon_.kill();
  const Outcome failed = probe(
      {"bandwidth", "--size", "4MiB", "--repetitions", "1", "--json", result, "--html", page});
  EXPECT_EQ(failed.code, 1);
  for (const char* left : {"good.json", "good.html"}) {
    EXPECT_THAT(failed.error,
                HasSubstr(std::string(left) + " is left as it was: what this run found is in "));
  }
  EXPECT_EQ(read_file(result), text);
  EXPECT_EQ(read_file(page), "its page");
  EXPECT_EQ(validate_against_schema(read_file(result + ".incomplete")), "");
  EXPECT_THAT(read_file(page + ".incomplete"), HasSubstr("</html>"));
}

// Behind the descriptor is a regular file, beside which nothing is to appear.
TEST_F(Probe, WritesToADescriptorThoughTheRunFails) {
  daemon_.kill();
  write_file(file("both"), "", 0600);
  const UniqueFd output(::open(file("both").c_str(), O_WRONLY | O_CLOEXEC));
  const pid_t pid = spawn(words({"bandwidth", "--size", "2MiB", "--json", "/dev/stdout"}),
                          output.get(), output.get());
  EXPECT_EQ(wait_for(pid), 1);
  const std::string both = read_file(file("both"));
  EXPECT_THAT(both, HasSubstr("Nothing was measured"));
  EXPECT_THAT(both, HasSubstr("\"schema\": \"carveout-probe/1\""));
  EXPECT_THAT(both, Not(HasSubstr(".incomplete")));
  EXPECT_FALSE(std::filesystem::exists("/dev/stdout.incomplete"));
}

TEST_F(Probe, MeasuresNothingThatItCouldNotWrite) {
  const Outcome outcome = probe({"bandwidth", "--size", "4MiB", "--json", file("none/such.json")});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output, IsEmpty()) << "it has not begun";
  EXPECT_THAT(outcome.error, HasSubstr("none/such.json"));
}

TEST_F(Probe, ComparesResults) {
  const std::string first = measured("1.json"), second = measured("2.json");
  const Outcome outcome = probe({"compare", first, second});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("daemon/host"),
                                    HasSubstr("what drifted between them counts as difference")));
}

std::string with(std::string text, const std::string& what, const std::string& instead) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), instead);
}

TEST_F(Probe, RefusesToCompareWhatIsNotAlike) {
  const std::string first = measured("1.json");
  const std::string larger = measured("larger.json", "6MiB");
  const std::string latency = file("latency.json");
  ASSERT_EQ(probe({"latency", "--size", "4MiB", "--repetitions", "1", "--json", latency}).code, 0);
  const std::string text = read_file(first);
  write_file(file("gpu.json"), with(text, "\"cpu\"", "\"gpu\""), 0600);
  write_file(file("later.json"), with(text, "carveout-probe/1", "carveout-probe/2"), 0600);
  const std::map<std::string, std::string> cases{{larger, "4 MiB"},
                                                 {latency, "latency"},
                                                 {file("gpu.json"), "gpu"},
                                                 {file("later.json"), "carveout-probe/2"}};
  for (const auto& [other, reason] : cases) {
    const Outcome outcome = probe({"compare", first, other});
    EXPECT_EQ(outcome.code, 3) << outcome.error;
    EXPECT_THAT(outcome.error, AllOf(HasSubstr(other), HasSubstr(reason)));
    EXPECT_THAT(outcome.output, IsEmpty());
  }
  write_file(file("cut.json"), text.substr(0, text.size() / 2), 0600);
  const Outcome cut = probe({"compare", first, file("cut.json")});
  EXPECT_EQ(cut.code, 1);
  EXPECT_THAT(cut.error, HasSubstr("cut.json"));
}

}  // namespace
}  // namespace carveout::test