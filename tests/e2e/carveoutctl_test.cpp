// The operator's tool against the real daemon.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidjson/document.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "support/daemon_process.hpp"
#include "support/memory.hpp"

namespace carveout::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Carveoutctl : public testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> words(const std::vector<std::string>& more) const {
    std::vector<std::string> all{CARVEOUTCTL,      "--control",  daemon_.control(), "--socket",
                                 daemon_.socket(), "--key-file", daemon_.key_file()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  [[nodiscard]] Outcome ctl(const std::vector<std::string>& more) const { return run(words(more)); }
  [[nodiscard]] rapidjson::Document json(const std::vector<std::string>& more) const {
    const Outcome outcome = ctl(more);
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    rapidjson::Document document;
    document.Parse(outcome.output.c_str());
    EXPECT_FALSE(document.HasParseError()) << outcome.output;
    return document;
  }

  DaemonProcess daemon_{CARVEOUTD, {"--size", "64MiB"}};
};

TEST_F(Carveoutctl, Status) {
  const Peer borrower = daemon_.connect();
  const UniqueFd memory = borrower.alloc(3 * kSlice);
  const Outcome table = ctl({"status"});
  EXPECT_EQ(table.code, 0);
  EXPECT_THAT(table.output, AllOf(HasSubstr("64 MiB at 0x280200000"), HasSubstr("58 MiB"),
                                  HasSubstr("memfd"), HasSubstr(daemon_.socket())));
  const auto status = json({"status", "--json"});
  EXPECT_EQ(status["size_bytes"].GetUint64(), 32 * kSlice);
  EXPECT_EQ(status["free_bytes"].GetUint64(), 29 * kSlice);
  EXPECT_EQ(status["leases"].GetUint64(), 1U);
  EXPECT_EQ(status["borrowers"].GetUint64(), 1U);
  EXPECT_EQ(status["pid"].GetInt(), daemon_.pid());
  EXPECT_EQ(status["counters"]["granted"].GetUint64(), 1U);
}

TEST_F(Carveoutctl, StatusSaysWhatIsKnownOfTheL2) {
  const TempDir directory;
  const std::string file = directory.file("residency.json");
  const auto row = [&] { return ctl({"status", "--probe-result", file}); };
  EXPECT_THAT(
      row().output,
      HasSubstr("not measured: carveout-probe residency --engine gpu --json " + file + "\n"));
  EXPECT_FALSE(json({"status", "--probe-result", file, "--json"})["l2"]["measured"].GetBool());

  write_file(file, R"json({"schema": "carveout-probe/1", "command": "residency", "engine": "gpu",
      "ended_unix_s": 1796032800, "machine": {"gpu": "NVIDIA GB10",
          "lender": "carveoutd 0.1.0, backend drm (card1)"},
      "arms": [{"name": "daemon/vmm", "source": "daemon", "map": "vmm"}],
      "residency": [{"arm": "daemon/vmm", "residency": "not_resident", "why": "a gain of 1 %"}]})json",
             0644);
  EXPECT_THAT(row().output,
              AllOf(HasSubstr("daemon/vmm not resident (NVIDIA GB10, measured 2026-11-30; "),
                    HasSubstr("; measured with backend drm (card1), now backend memfd (ordinary "
                              "memory in sealed memfds")));
  const auto status = json({"status", "--probe-result", file, "--json"});
  EXPECT_EQ(status["free_bytes"].GetUint64(), 32 * kSlice);
  EXPECT_TRUE(status["l2"]["measured"].GetBool());
  EXPECT_STREQ(status["l2"]["arms"][0]["residency"].GetString(), "not_resident");
  EXPECT_STREQ(status["l2"]["lender"].GetString(), "carveoutd 0.1.0, backend drm (card1)");
  EXPECT_THAT(status["l2"]["lender_now"].GetString(), HasSubstr(", backend memfd ("));

  write_file(file, "{", 0644);
  const Outcome broken = row();
  EXPECT_EQ(broken.code, 0) << "of no matter to the rest";
  EXPECT_THAT(broken.output, AllOf(HasSubstr("not known: " + file + ": is not JSON"),
                                   HasSubstr("64 MiB at 0x280200000")));
  EXPECT_THAT(ctl({"status", "--help"}).output, HasSubstr("/var/lib/carveout/residency.json"));
  EXPECT_EQ(ctl({"leases", "--probe-result", file}).code, 2);
}

TEST_F(Carveoutctl, StatusCountsRefusalsByCause) {
  for (const char* request :
       {"junk", R"({"key": "secret", "op": "x"})", R"({"key": "secret", "op": "alloc"})",
        R"({"key": "secret", "op": "alloc", "size": 67108864})"}) {
    const Peer holder = daemon_.connect();
    const UniqueFd memory = holder.alloc(1);
    (void)daemon_.connect().ask(request);
  }
  const auto status = json({"--json", "status"});
  for (const char* cause : {"refused_key", "refused_op", "refused_size", "refused_not_enough"}) {
    EXPECT_EQ(status["counters"][cause].GetUint64(), 1U) << cause;
  }
}

TEST_F(Carveoutctl, LeasesKnowTheirBorrowers) {
  EXPECT_EQ(ctl({"leases"}).output, "no leases\n");
  const Peer borrower = daemon_.connect();
  const UniqueFd memory = borrower.alloc(2 * kSlice);
  struct stat file {};
  ASSERT_EQ(::fstat(memory.get(), &file), 0);
  const auto reply = json({"leases", "--json"});
  ASSERT_EQ(reply["leases"].Size(), 1U);
  const auto& lease = reply["leases"][0];
  EXPECT_EQ(lease["bytes"].GetUint64(), 2 * kSlice);
  EXPECT_EQ(lease["pid"].GetInt(), ::getpid());
  EXPECT_EQ(lease["uid"].GetUint(), ::getuid());
  EXPECT_EQ(lease["gid"].GetUint(), ::getgid());
  EXPECT_EQ(lease["inode"].GetUint64(), file.st_ino);
  std::string command = read_file("/proc/self/comm");
  command.pop_back();
  EXPECT_EQ(std::string(lease["command"].GetString()), command);
  const double since = lease["since_unix_s"].GetDouble();
  EXPECT_NEAR(since, static_cast<double>(::time(nullptr)), 60.0);
  EXPECT_THAT(ctl({"leases"}).output, AllOf(HasSubstr("4 MiB"), HasSubstr(command)));
}

TEST_F(Carveoutctl, ClaimRunsACommandThatHoldsTheLease) {
  const std::string inner = std::string(CARVEOUTCTL) + " --control " + daemon_.control();
  const Outcome outcome =
      ctl({"claim", "3MiB", "--", "/bin/sh", "-c",
           "echo bytes $CARVEOUT_BYTES; stat -L -c 'size %s' /proc/self/fd/$CARVEOUT_FD; " + inner +
               " leases; exit 42"});
  EXPECT_EQ(outcome.code, 42) << "the command's own";
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("bytes 4194304"), HasSubstr("size 4194304"),
                                    HasSubstr("4 MiB"), HasSubstr(" sh ")));
  EXPECT_TRUE(eventually([&] { return daemon_.connect().info().free == 32 * kSlice; }));
}

TEST_F(Carveoutctl, ClaimPassesOnWhatStandsBehindTheDashes) {
  const Outcome outcome = ctl({"claim", "1", "--", "/bin/echo", "--json", "--", "-x"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.output, "--json -- -x\n");
}

TEST_F(Carveoutctl, ClaimHoldsUntilInterrupted) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  const pid_t pid = spawn(words({"claim", "8MiB"}), in.get(), -1);
  in.reset();
  EXPECT_TRUE(eventually([&] { return daemon_.connect().info().free == 28 * kSlice; }));
  char text[64] = {};
  EXPECT_GT(::read(out.get(), text, sizeof text - 1), 0);
  EXPECT_STREQ(text, "holding 8 MiB until interrupted\n");
  ::kill(pid, SIGINT);
  EXPECT_EQ(wait_for(pid), 0);
  EXPECT_TRUE(eventually([&] { return daemon_.connect().info().free == 32 * kSlice; }));
}

TEST_F(Carveoutctl, ClaimEndsWhenTheLenderGoes) {
  const pid_t pid = spawn(words({"claim", "8MiB"}), -1, -1);
  EXPECT_TRUE(eventually([&] { return daemon_.connect().info().free == 28 * kSlice; }));
  daemon_.kill();
  EXPECT_EQ(wait_for(pid), 1);
}

TEST_F(Carveoutctl, ClaimIsRefused) {
  const Outcome full = ctl({"claim", "1GiB"});
  EXPECT_EQ(full.code, 3);
  EXPECT_THAT(full.error, HasSubstr("size must be an integer from 1 to 67108864"));
  const Peer holder = daemon_.connect();
  const UniqueFd memory = holder.alloc(31 * kSlice);
  const Outcome little = ctl({"claim", "4MiB"});
  EXPECT_EQ(little.code, 3);
  EXPECT_THAT(little.error, AllOf(HasSubstr("not enough free carveout"), HasSubstr("2 MiB")));
  EXPECT_EQ(ctl({"claim", "2MiB", "--", "true"}).code, 0) << "the last slice is to be had";
}

TEST_F(Carveoutctl, ClaimWithAWrongKey) {
  const TempDir directory;
  write_file(directory.file("key"), "guess\n", 0600);
  const Outcome wrong = run({CARVEOUTCTL, "--socket", daemon_.socket(), "--key-file",
                             directory.file("key"), "claim", "2MiB"});
  EXPECT_EQ(wrong.code, 3);
  EXPECT_THAT(wrong.error, HasSubstr("missing or unknown key"));
  EXPECT_EQ(wrong.error.find("guess"), std::string::npos);
}

TEST_F(Carveoutctl, ACommandThatDoesNotExist) {
  const Outcome outcome = ctl({"claim", "2MiB", "--", "/no/such/command"});
  EXPECT_EQ(outcome.code, 127);
  EXPECT_THAT(outcome.error, HasSubstr("/no/such/command"));
  EXPECT_TRUE(eventually([&] { return daemon_.connect().info().free == 32 * kSlice; }));
}

TEST_F(Carveoutctl, DrainAndUndo) {
  const Peer holder = daemon_.connect();
  const UniqueFd memory = holder.alloc(kSlice);
  EXPECT_EQ(ctl({"drain"}).output, "draining: nothing more is lent, 1 leases remain\n");
  const Figures draining = holder.info();
  EXPECT_EQ(draining.largest, 0U);
  EXPECT_EQ(draining.free, 31 * kSlice);
  const Outcome refused = ctl({"claim", "2MiB"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_TRUE(json({"status", "--json"})["draining"].GetBool());
  EXPECT_THAT(ctl({"status"}).output, HasSubstr("draining"));
  EXPECT_EQ(ctl({"drain", "--undo"}).output, "lending again\n");
  EXPECT_EQ(holder.info().largest, 31 * kSlice);
}

TEST_F(Carveoutctl, NobodyThere) {
  const TempDir directory;
  const std::string nowhere = directory.file("nowhere");
  const Outcome status = run({CARVEOUTCTL, "--control", nowhere, "status"});
  EXPECT_EQ(status.code, 1);
  EXPECT_THAT(status.error, AllOf(HasSubstr(nowhere), HasSubstr("is it running")));
  const Outcome claim =
      run({CARVEOUTCTL, "--socket", nowhere, "--key-file", daemon_.key_file(), "claim", "2MiB"});
  EXPECT_EQ(claim.code, 1);
  EXPECT_THAT(claim.error, AllOf(HasSubstr(nowhere), HasSubstr("running")));
}

TEST_F(Carveoutctl, UsageErrors) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{},
                                               {"no-such"},
                                               {"claim"},
                                               {"claim", "0"},
                                               {"claim", "lots"},
                                               {"status", "extra"},
                                               {"status", "--", "true"},
                                               {"claim", "2MiB", "--"}}) {
    EXPECT_EQ(ctl(more).code, 2) << (more.empty() ? "nothing" : more.front());
  }
  EXPECT_EQ(ctl({"--help"}).code, 0);
  EXPECT_EQ(ctl({"--version"}).code, 0);
}

}  // namespace
}  // namespace carveout::test
