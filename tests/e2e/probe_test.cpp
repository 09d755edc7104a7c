// carveout-probe against the real daemon, by the CPU engine. What it measures here is this machine:
// no test looks at a rate, beyond that it is one.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "probe_fixture.hpp"
#include "support/probe_schema.hpp"
#include "support/scripted_lender.hpp"

namespace carveout::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Lt;
using testing::StartsWith;

TEST_F(Probe, ShowsWhatCanBeMeasuredAndWhatCannot) {
  const Outcome outcome = probe({"info", "--source", "daemon", "--source", "dma-heap", "--heap",
                                 "no-such-heap", "--source", "memfd"});
  EXPECT_EQ(outcome.code, 1) << "a source that was asked for gave nothing";
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("daemon/host"), HasSubstr("memfd/host"), HasSubstr("dma-heap/host"),
                    HasSubstr("--heap: "), HasSubstr("backend memfd"), HasSubstr("Linux")));
  EXPECT_THAT(outcome.error, HasSubstr("no memory of dma-heap could be had"));
  EXPECT_EQ(probe({"info"}).code, 0);
}

TEST_F(Probe, MeasuresBandwidth) {
  const Outcome outcome =
      probe({"bandwidth", "--size", "4MiB", "--repetitions", "2", "--json", file("b.json")});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("ordinary"), HasSubstr("daemon/host"),
                                    HasSubstr("gather"), HasSubstr("dependent load")));
  const std::string text = read_file(file("b.json"));
  EXPECT_EQ(validate_against_schema(text), "");
  const auto result = parse(text);
  char name[256] = {};
  ASSERT_EQ(::gethostname(name, sizeof name - 1), 0);
  EXPECT_STREQ(result["machine"]["host"].GetString(), name);
  EXPECT_THAT(batches_of(result, "daemon/host"), Each(8));
  EXPECT_EQ(batches_of(result, "daemon/host").size(), 8U) << "the rows of the CPU engine";
  EXPECT_EQ(arm_of(result, "ordinary")["page_bytes"].GetUint64(),
            arm_of(result, "daemon/host")["page_bytes"].GetUint64());
  EXPECT_TRUE(eventually([&] { return daemon_.connect().info().free == 32 * kSlice; }))
      << "all is given back";
}

// Otherwise it would compare pages, not memories. (The name is what tools/test runs with some set
// aside.)
TEST_F(Probe, ComparesHugePagesWithHugePages) {
  const std::string result = measured("h.json");
  const auto lent = arm_of(parse(read_file(result)), "daemon/host")["page_bytes"].GetUint64();
  if (lent < kSlice) GTEST_SKIP() << "waived: no huge pages have been set aside";
  EXPECT_EQ(arm_of(parse(read_file(result)), "ordinary")["page_bytes"].GetUint64(), lent);
}

TEST_F(Probe, MeasuresResidency) {
  const Outcome outcome = probe({"residency", "--size", "8MiB", "--repetitions", "1", "--json",
                                 file("r.json"), "--html", file("r.html")});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(validate_against_schema(read_file(file("r.json"))), "");
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("Residency in"), HasSubstr("MiB"), HasSubstr("GB/s")));
  EXPECT_THAT(read_file(file("r.html")),
              AllOf(HasSubstr("<svg"), HasSubstr("daemon/host"), HasSubstr("</html>")));
  struct stat status {};
  ASSERT_EQ(::stat(file("r.json").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0644U) << "others are to read it";
}

TEST_F(Probe, MeasuresTheLatencyOfClaims) {
  const Outcome outcome =
      probe({"latency", "--size", "4MiB", "--repetitions", "2", "--json", file("l.json")});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(validate_against_schema(read_file(file("l.json"))), "");
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("ms"), HasSubstr("claim and map")));
}

// In the background, with what it prints in that file.
class Running {
 public:
  Running(const std::vector<std::string>& words, const std::string& log) : log_(log) {
    write_file(log, "", 0600);
    const UniqueFd output(::open(log.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    pid_ = spawn(words, output.get(), output.get());
  }
  // Until it has memory of the lender's mapped, which is when it begins to measure.
  void wait_until_it_has_memory() const {
    const std::string maps = "/proc/" + std::to_string(pid_) + "/maps";
    ASSERT_TRUE(eventually([&] { return read_file(maps).find("/memfd:") != std::string::npos; }));
  }
  void signal(int number) const { ASSERT_EQ(::kill(pid_, number), 0); }
  [[nodiscard]] int wait() const { return wait_for(pid_); }
  [[nodiscard]] std::string printed() const { return read_file(log_); }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  std::string log_;
  pid_t pid_ = -1;
};

// By the line SigIgn of /proc/PID/status: hexadecimal, signal 1 lowest.
bool is_ignored(int number, const std::string& status) {
  const auto at = status.find("SigIgn:");
  if (at == std::string::npos) return false;
  const auto set = std::stoull(status.substr(at + 7), nullptr, 16);
  return (set >> static_cast<unsigned>(number - 1) & 1U) != 0;
}

// What is mapped stays usable, so only the connection tells.
TEST_F(Probe, EndsTheArmWhoseLenderIsKilledAndReportsTheRest) {
  const Running running(words({"bandwidth", "--size", "4MiB", "--repetitions", "3", "--blocks",
                               "60", "--json", file("k.json")}),
                        file("probe.log"));
  running.wait_until_it_has_memory();
  daemon_.kill();
  EXPECT_EQ(running.wait(), 1) << running.printed();
  EXPECT_THAT(running.printed(), HasSubstr("k.json is not written: what this run found is in "));
  EXPECT_FALSE(std::filesystem::exists(file("k.json"))) << "a file is of a whole run";
  const std::string text = read_file(file("k.json.incomplete"));
  EXPECT_EQ(validate_against_schema(text), "");
  const auto result = parse(text);
  EXPECT_THAT(result["machine"]["lender"].GetString(), StartsWith("carveoutd "))
      << "asked before it was killed";
  EXPECT_THAT(arm_of(result, "daemon/host")["ended"].GetString(),
              HasSubstr("the lender has closed the connection or was killed"));
  EXPECT_THAT(batches_of(result, "ordinary"), Each(60)) << "the rest is whole";
  EXPECT_THAT(batches_of(result, "daemon/host"), Each(Lt(60U)));
  EXPECT_THAT(running.printed(), AllOf(HasSubstr("daemon/host ended early"), HasSubstr("gather")));
}

// A lender of another make that lends what it has not sealed, and takes it away.
TEST_F(Probe, EndsTheArmWhoseMemoryIsCutShortAndReportsTheRest) {
  const UniqueFd memory(::memfd_create("unsealed", MFD_CLOEXEC));
  constexpr std::uint64_t kLent = 2 * kSlice;
  ASSERT_EQ(::ftruncate(memory.get(), kLent), 0);
  const ScriptedLender lender(
      file("other.sock"),
      std::vector<Answer>{{{{R"({"ok": true, "base": 0, "size": 4194304})", {memory.get()}}}}});
  const Running running(words({"bandwidth", "--size", "4MiB", "--repetitions", "3", "--blocks",
                               "60", "--json", file("c.json")},
                              file("other.sock")),
                        file("probe.log"));
  running.wait_until_it_has_memory();
  ASSERT_EQ(::ftruncate(memory.get(), 0), 0);
  EXPECT_EQ(running.wait(), 1) << running.printed();
  const auto result = parse(read_file(file("c.json.incomplete")));
  EXPECT_THAT(arm_of(result, "daemon/host")["ended"].GetString(),
              HasSubstr("was taken away while it was measured"));
  EXPECT_THAT(batches_of(result, "ordinary"), Each(60)) << "the rest is whole";
}

TEST_F(Probe, ReportsWhatItHasWhenInterrupted) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    ASSERT_NE(::signal(number, SIG_DFL), SIG_ERR) << "whatever these tests were started with";
    const std::string result = file("i" + std::to_string(number) + ".json");
    const Running running(
        words({"bandwidth", "--size", "4MiB", "--blocks", "9999", "--json", result}),
        file("probe.log"));
    running.wait_until_it_has_memory();
    running.signal(number);
    EXPECT_EQ(running.wait(), 1) << running.printed();
    const std::string text = read_file(result + ".incomplete");
    EXPECT_EQ(validate_against_schema(text), "");
    EXPECT_THAT(arm_of(parse(text), "ordinary")["ended"].GetString(), StartsWith("interrupted"));
  }
}

// nohup, and what a script has in its background.
TEST_F(Probe, IgnoresWhatItWasStartedToIgnore) {
  for (const int number : {SIGHUP, SIGINT}) {
    ASSERT_NE(::signal(number, SIG_IGN), SIG_ERR);
    const Running running(
        words({"bandwidth", "--size", "4MiB", "--blocks", "9999", "--json", file("n.json")}),
        file("probe.log"));
    ASSERT_NE(::signal(number, SIG_DFL), SIG_ERR);
    running.wait_until_it_has_memory();
    running.signal(number);
    const std::string status = "/proc/" + std::to_string(running.pid()) + "/status";
    EXPECT_TRUE(is_ignored(number, read_file(status)));
    ASSERT_NE(::signal(SIGTERM, SIG_DFL), SIG_ERR);
    running.signal(SIGTERM);
    EXPECT_EQ(running.wait(), 1) << running.printed();
  }
}

// Minutes of ordinary memory alone would answer nothing.
TEST_F(Probe, MeasuresNothingWithoutALenderAndSaysWhy) {
  daemon_.kill();
  for (const char* command : {"bandwidth", "residency", "latency"}) {
    const Outcome outcome = probe({command, "--size", "8MiB", "--blocks", "10000", "--json",
                                   file("none.json"), "--html", file("none.html")});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("Nothing was measured"), HasSubstr("daemon/host"),
                                      HasSubstr("--socket: ")));
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("no memory of daemon could be had"),
                                     HasSubstr("--source ordinary measures it against itself")));
    EXPECT_FALSE(std::filesystem::exists(file("none.json")));
    const std::string text = read_file(file("none.json.incomplete"));
    EXPECT_EQ(validate_against_schema(text), "");
    const auto result = parse(text);
    EXPECT_EQ(result["series"].Size(), 0U);
    EXPECT_THAT(arm_of(result, "daemon/host")["unavailable"].GetString(), HasSubstr("--socket: "));
    EXPECT_THAT(read_file(file("none.html.incomplete")), HasSubstr("</html>"));
  }
  EXPECT_EQ(
      probe({"bandwidth", "--size", "2MiB", "--repetitions", "1", "--source", "ordinary"}).code, 0)
      << "this needs no lender";
}

TEST_F(Probe, SaysThatASizeIsRoundedUp) {
  const std::vector<std::string> rest{"--repetitions", "1", "--json", file("s.json")};
  std::vector<std::string> all{"bandwidth", "--size", "512KiB"};
  all.insert(all.end(), rest.begin(), rest.end());
  const Outcome rounded = probe(all);
  EXPECT_EQ(rounded.code, 0) << rounded.error;
  EXPECT_THAT(rounded.error, HasSubstr("--size 512 KiB is rounded up to 2 MiB"));
  EXPECT_THAT(rounded.output, HasSubstr("2 MiB of each memory"));
  EXPECT_EQ(parse(read_file(file("s.json")))["size_bytes"].GetUint64(), kSlice);
  all[2] = "2MiB";
  EXPECT_THAT(probe(all).error, IsEmpty());
}

TEST_F(Probe, SaysHowMuchThereIsToALargerSize) {
  const Outcome outcome = probe({"latency", "--size", "128MiB"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("64 MiB"), HasSubstr("128 MiB")));
}

TEST_F(Probe, WaivesAnEngineThatThisMachineHasNot) {
  // A driver that is none comes before any other.
  const TempDir directory;
  write_file(directory.file("libcuda.so.1"), "not a library", 0644);
  std::vector<std::string> all = words({"bandwidth"});
  all[2] = "gpu";
  all.insert(all.begin(), {"env", "LD_LIBRARY_PATH=" + directory.file(".")});
  const Outcome outcome = run(all);
  EXPECT_EQ(outcome.code, 77);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("waived"), HasSubstr("libcuda.so.1")));
}

}  // namespace
}  // namespace carveout::test
