// Reading a ledger: `carveoutctl audit` and `carveoutctl leases --ledger`, with ledgers that the
// real daemon has written.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidjson/document.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/daemon_process.hpp"
#include "support/service_manager.hpp"

namespace carveout::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

Outcome audit(std::vector<std::string> words) {
  words.insert(words.begin(), {CARVEOUTCTL, "audit"});
  return run(words);
}

rapidjson::Document parsed(const Outcome& outcome) {
  rapidjson::Document document;
  document.Parse(outcome.output.c_str());
  EXPECT_FALSE(document.HasParseError()) << outcome.output << outcome.error;
  return document;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at) + 1;
    lines.push_back(text.substr(at, end - at));
    at = end;
  }
  return lines;
}

std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines)
    text += line;
  return text;
}

class Audit : public testing::Test {
 protected:
  // Three starts, one of them killed: leases that end, that are lost and that are refused.
  static void SetUpTestSuite() {
    DaemonProcess daemon(CARVEOUTD, {"--size", "64MiB"});
    for (int start = 0; start < 3; ++start) {
      std::vector<Peer> borrowers;
      std::vector<UniqueFd> memory;
      for (std::uint64_t slices = 1; slices <= 5; ++slices) {
        borrowers.push_back(daemon.connect());
        memory.push_back(borrowers.back().alloc(slices * kSlice));
      }
      (void)daemon.connect().ask(borrowers[0].alloc_request(30 * kSlice));
      (void)daemon.connect().ask(borrowers[0].alloc_request(99 * kSlice));
      borrowers.pop_back();
      EXPECT_TRUE(eventually([&] { return daemon.connect().info().free == 22 * kSlice; }));
      if (start == 2) break;
      start == 0 ? daemon.kill() : static_cast<void>(daemon.stop());
      daemon.start();
    }
    EXPECT_EQ(daemon.stop(), 0) << daemon.log();
    ledger_ = read_file(daemon.directory().file("ledger.jsonl"));
  }

  // The text as a file of its own.
  [[nodiscard]] std::string file(const std::string& text) const {
    const std::string path = directory_.file("copy.jsonl");
    write_file(path, text, 0600);
    return path;
  }
  void expect_bad(const std::string& text, std::size_t line) const {
    const std::string path = file(text);
    const Outcome outcome = audit({path});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.output, StartsWith(path + ": line " + std::to_string(line) + ": "));
    EXPECT_THAT(outcome.output, HasSubstr("bad: " + std::to_string(line - 1) + " records"));
    EXPECT_EQ(outcome.error, "");
  }

  inline static std::string ledger_;
  const TempDir directory_;
};

TEST_F(Audit, OfAGoodLedger) {
  const std::string path = file(ledger_);
  const std::size_t records = lines_of(ledger_).size();
  EXPECT_GT(records, 50U);
  const Outcome outcome = audit({path});
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "good: " + std::to_string(records) +
                                " records up to start 3; 0 leases open, 0 B lent\n");
  const Outcome json = audit({path, "--json"});
  EXPECT_EQ(json.code, 0);
  const auto answer = parsed(json);
  EXPECT_TRUE(answer["ok"].GetBool());
  EXPECT_EQ(answer["records"].GetUint64(), records);
  EXPECT_EQ(answer["starts"].GetUint64(), 3U);
  EXPECT_EQ(answer["open"].GetUint64(), 0U);
  EXPECT_EQ(answer["lent_bytes"].GetUint64(), 0U);
}

TEST_F(Audit, KnowsEveryKindOfEnd) {
  for (const char* event :
       {"started", "requested", "granted", "answered", "refused", "released", "lost", "stopped"}) {
    EXPECT_THAT(ledger_, HasSubstr(std::string(R"("event":")") + event + '"'));
  }
}

TEST_F(Audit, AThousandOfAThousandFlippedBitsAreCaught) {
  std::mt19937_64 random(20240607);
  int caught = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::size_t at = random() % ledger_.size();
    std::string text = ledger_;
    text[at] = static_cast<char>(text[at] ^ static_cast<char>(1U << (random() % 8)));
    const std::string path = file(text);
    const Outcome outcome = audit({path});
    const auto line =
        1 + std::count(ledger_.begin(), ledger_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    const bool named = outcome.output.starts_with(path + ": line " + std::to_string(line) + ": ");
    EXPECT_TRUE(outcome.code == 1 && named) << "byte " << at << ": " << outcome.output;
    caught += outcome.code == 1 && named ? 1 : 0;
  }
  EXPECT_EQ(caught, 1000);
}

TEST_F(Audit, LinesThatAreMissingDoubledOrExchangedAreCaught) {
  const auto lines = lines_of(ledger_);
  for (std::size_t at = 0; at + 1 < lines.size(); at += 7) {
    const auto place = static_cast<std::ptrdiff_t>(at);
    auto changed = lines;
    changed.erase(changed.begin() + place);
    expect_bad(text_of(changed), at + 1);
    changed = lines;
    changed.insert(changed.begin() + place, lines[at]);
    expect_bad(text_of(changed), at + 2);
    changed = lines;
    std::swap(changed[at], changed[at + 1]);
    expect_bad(text_of(changed), at + 1);
  }
}

TEST_F(Audit, ATornEndIsCaught) {
  const std::size_t lines = lines_of(ledger_).size();
  const std::size_t last = lines_of(ledger_).back().size();
  for (const std::size_t missing : {std::size_t{1}, last / 2, last - 1})
    expect_bad(ledger_.substr(0, ledger_.size() - missing), lines);
}

TEST_F(Audit, SaysInJsonWhatIsWrong) {
  auto lines = lines_of(ledger_);
  lines[4][30] ^= 1;
  const std::string path = file(text_of(lines));
  const Outcome outcome = audit({"--json", path});
  EXPECT_EQ(outcome.code, 1);
  const auto answer = parsed(outcome);
  EXPECT_FALSE(answer["ok"].GetBool());
  EXPECT_EQ(answer["records"].GetUint64(), 4U);
  EXPECT_EQ(answer["file"].GetString(), path);
  EXPECT_EQ(answer["line"].GetUint64(), 5U);
  EXPECT_THAT(answer["problem"].GetString(), HasSubstr("has been changed"));
}

TEST_F(Audit, OfWhatIsNotThere) {
  const Outcome outcome = audit({directory_.file("missing")});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.output, "");
  EXPECT_THAT(outcome.error, HasSubstr(directory_.file("missing")));
  EXPECT_EQ(audit({directory_.file("")}).code, 1) << "a directory";
  EXPECT_EQ(audit({"--no-such-option"}).code, 2);
  write_file(directory_.file("empty"), "", 0600);
  EXPECT_EQ(audit({directory_.file("empty")}).code, 1) << "nothing was verified";
}

TEST(AuditWithoutAFile, IsOfTheLedgersBesideTheControlSocket) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "64MiB"});
  (void)daemon.connect().alloc(1);
  const Outcome outcome = run({CARVEOUTCTL, "--control", daemon.control(), "audit"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_THAT(outcome.output, HasSubstr("good: "));
}

TEST_F(Audit, TheSameFileTwiceIsOneFile) {
  const std::string path = file(ledger_);
  write_file(directory_.file("same"), ledger_, 0600);
  EXPECT_EQ(audit({path, directory_.file("same")}).code, 0);
}

// --- over a rotation ---

TEST(AuditOfTwoFiles, InAnyOrder) {
  ServiceManager manager(CARVEOUTD, {"--size", "64MiB"});
  manager.start();
  const Peer borrower = manager.connect();
  const UniqueFd memory = borrower.alloc(3 * kSlice);
  // Until the file is so large that the next start begins a new one.
  while (read_file(manager.ledger()).size() <= (2U << 20U)) {
    for (int i = 0; i < 100; ++i) {
      const Peer peer = manager.connect();
      (void)peer.alloc(1);
    }
  }
  manager.end(SIGKILL);
  manager.start();
  const std::string previous = manager.ledger() + ".1";
  ASSERT_EQ(::access(previous.c_str(), F_OK), 0);

  for (const auto& files : {std::vector<std::string>{previous, manager.ledger()},
                            {manager.ledger(), previous},
                            {manager.ledger()},
                            {previous}}) {
    auto words = files;
    words.emplace_back("--json");
    const Outcome outcome = audit(words);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    const auto answer = parsed(outcome);
    EXPECT_GE(answer["open"].GetUint64(), 1U);
    if (files.size() == 1) continue;
    EXPECT_EQ(answer["lent_bytes"].GetUint64(), 3 * kSlice);
    EXPECT_EQ(answer["starts"].GetUint64(), 2U);
  }

  // What is damaged in one of them is found in that one.
  for (const std::string& path : {previous, manager.ledger()}) {
    const std::string whole = read_file(path);
    std::string damaged = whole;
    damaged[damaged.size() / 2] ^= 4;
    write_file(path + ".bad", damaged, 0600);
    const std::string& other = path == previous ? manager.ledger() : previous;
    const Outcome outcome = audit({other, path + ".bad"});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.output, StartsWith(path + ".bad: line "));
  }
}

// --- leases --ledger ---

class LeasesOfALedger : public testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return daemon_.directory().file("ledger.jsonl"); }
  [[nodiscard]] Outcome leases(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {CARVEOUTCTL, "--control", "/nowhere", "leases", "--ledger", path()});
    return run(more);
  }

  DaemonProcess daemon_{CARVEOUTD, {"--size", "64MiB"}};
};

TEST_F(LeasesOfALedger, AreThoseOfTheDaemon) {
  EXPECT_EQ(leases().output, "no leases\n");
  const Peer a = daemon_.connect();
  const Peer b = daemon_.connect();
  const UniqueFd first = a.alloc(2 * kSlice);
  const UniqueFd second = b.alloc(3 * kSlice + 1);
  const UniqueFd third = a.alloc(1);
  auto of_daemon = parsed(run({CARVEOUTCTL, "--control", daemon_.control(), "leases", "--json"}));
  auto of_ledger = parsed(leases({"--json"}));
  ASSERT_EQ(of_ledger["leases"].Size(), 3U);
  for (auto* answer : {&of_daemon, &of_ledger}) {
    for (auto& lease : (*answer)["leases"].GetArray()) {
      EXPECT_NEAR(lease["since_unix_s"].GetDouble(), static_cast<double>(::time(nullptr)), 60.0);
      lease.RemoveMember("since_unix_s");  // not to the microsecond
    }
  }
  for (rapidjson::SizeType i = 0; i < 3; ++i)
    EXPECT_TRUE(of_daemon["leases"][i] == of_ledger["leases"][i]) << "lease " << i;
  EXPECT_THAT(leases().output, AllOf(HasSubstr("4 MiB"), HasSubstr("8 MiB"), HasSubstr("2 MiB")));
}

TEST_F(LeasesOfALedger, AreKnownWhenTheDaemonIsGone) {
  const Peer borrower = daemon_.connect();
  const UniqueFd memory = borrower.alloc(5 * kSlice);
  daemon_.kill();
  const Outcome outcome = leases();
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_THAT(outcome.output, HasSubstr("10 MiB"));
}

TEST_F(LeasesOfALedger, AreNotReadFromADamagedOne) {
  daemon_.stop();
  std::string text = read_file(path());
  text[30] ^= 1;
  write_file(path(), text, 0600);
  const Outcome damaged = leases();
  EXPECT_EQ(damaged.code, 1);
  EXPECT_EQ(damaged.output, "");
  EXPECT_THAT(damaged.error, AllOf(HasSubstr(path() + ": line 1"), HasSubstr("carveoutctl audit")));
  ::unlink(path().c_str());
  EXPECT_EQ(leases().code, 1);
}

}  // namespace
}  // namespace carveout::test
