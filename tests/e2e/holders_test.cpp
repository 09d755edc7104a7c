// `carveoutctl holders` against the real daemon and real processes that hold on to its memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidjson/document.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <string>
#include <vector>

#include "support/daemon_process.hpp"

namespace carveout::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A process that borrows, and then keeps some of: the connection, the descriptor, a mapping.
struct Keeps {
  bool connection = false, descriptor = false, mapping = false;
};

class Borrower {
 public:
  Borrower(const DaemonProcess& daemon, std::uint64_t slices, Keeps keeps) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe(ends), 0);
    UniqueFd ready(ends[0]);
    UniqueFd tell(ends[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::prctl(PR_SET_NAME, "keeper");
      try {
        borrow(daemon, slices, keeps, tell.get());
      } catch (const std::exception&) {
        ::_exit(1);
      }
    }
    tell.reset();
    char byte = 0;
    EXPECT_EQ(::read(ready.get(), &byte, 1), 1);
  }
  Borrower(const Borrower&) = delete;
  Borrower& operator=(const Borrower&) = delete;
  Borrower(Borrower&&) = delete;
  Borrower& operator=(Borrower&&) = delete;
  ~Borrower() { end(); }

  void end() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    EXPECT_EQ(wait_for(pid_), 128 + SIGKILL);
    pid_ = -1;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  [[noreturn]] static void borrow(const DaemonProcess& daemon, std::uint64_t slices, Keeps keeps,
                                  int tell) {
    Peer peer = daemon.connect();
    UniqueFd memory = peer.alloc(slices * kSlice);
    if (keeps.mapping) {
      (void)::mmap(nullptr, slices * kSlice, PROT_READ, MAP_SHARED, memory.get(), 0);
    }
    if (!keeps.descriptor) memory.reset();
    if (!keeps.connection) peer.close();
    (void)!::write(tell, "r", 1);
    for (;;)
      ::pause();
  }

  pid_t pid_ = -1;
};

class Holders : public testing::Test {
 protected:
  explicit Holders(std::vector<std::string> options = {})
      : daemon_(CARVEOUTD, [&options] {
          options.insert(options.begin(), {"--size", "64MiB"});
          return options;
        }()) {}

  [[nodiscard]] Outcome ctl(std::vector<std::string> words) const {
    words.insert(words.begin(), {CARVEOUTCTL, "--control", daemon_.control(), "holders"});
    return run(words);
  }
  [[nodiscard]] rapidjson::Document json(std::vector<std::string> words = {}) const {
    words.emplace_back("--json");
    const Outcome outcome = ctl(words);
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    rapidjson::Document document;
    document.Parse(outcome.output.c_str());
    EXPECT_FALSE(document.HasParseError()) << outcome.output;
    EXPECT_TRUE(document["ok"].GetBool());
    return document;
  }
  // "LEASE STATE BYTES PID DESCRIPTORS+MAPPINGS", a holder a line.
  [[nodiscard]] std::string held(const std::vector<std::string>& words = {}) const {
    std::string all;
    const auto reply = json(words);
    for (const auto& holder : reply["holders"].GetArray()) {
      if (holder["lease"].IsNull()) continue;  // this machine's, not this daemon's
      const auto number = [&holder](const char* name) {
        return std::to_string(holder[name].GetUint64());
      };
      all += number("lease") + " " + holder["state"].GetString() + " " + number("bytes") + " " +
             number("pid") + " " + number("descriptors") + "+" + number("mappings") + "\n";
    }
    return all;
  }
  static std::string row(int lease, const char* state, std::uint64_t slices,
                         const Borrower& borrower, const char* holds) {
    return std::to_string(lease) + " " + state + " " + std::to_string(slices * kSlice) + " " +
           std::to_string(borrower.pid()) + " " + holds + "\n";
  }
  [[nodiscard]] bool all_is_free() const {
    return eventually([&] { return daemon_.connect().info().free == 32 * kSlice; });
  }
  [[nodiscard]] std::string ledger() const { return daemon_.directory().file("ledger.jsonl"); }

  DaemonProcess daemon_;
};

TEST_F(Holders, AreNobodyAtFirst) {
  const Outcome outcome = ctl({});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(held(), "");
  const auto reply = json();
  EXPECT_TRUE(reply["unexamined"].IsUint64());
  EXPECT_TRUE(reply["notes"].IsArray());
}

TEST_F(Holders, OfALeaseThatHasEnded) {
  Borrower keeper(daemon_, 3, {.descriptor = true});
  ASSERT_TRUE(all_is_free());
  const Outcome all = ctl({});
  EXPECT_EQ(all.code, 0) << all.error;
  EXPECT_THAT(all.output,
              AllOf(StartsWith("LEASE"), HasSubstr("ended"), HasSubstr("6 MiB"),
                    HasSubstr(std::to_string(keeper.pid())), HasSubstr("keeper   1 descriptor\n")));
  EXPECT_EQ(held(), row(1, "ended", 3, keeper, "1+0"));
  EXPECT_EQ(held({"1"}), row(1, "ended", 3, keeper, "1+0"));
  keeper.end();
  EXPECT_EQ(held(), "");
  const Outcome nobody = ctl({"1"});
  EXPECT_EQ(nobody.code, 0) << nobody.error;
  EXPECT_THAT(nobody.output, StartsWith("nobody holds lease 1\n"));
}

TEST_F(Holders, ByAMappingAlone) {
  const Borrower keeper(daemon_, 1, {.mapping = true});
  ASSERT_TRUE(all_is_free());
  EXPECT_EQ(held(), row(1, "ended", 1, keeper, "0+1"));
  EXPECT_THAT(ctl({"1"}).output, HasSubstr("keeper   1 mapping\n"));
}

TEST_F(Holders, OfALeaseThatIsOpen) {
  const Borrower open(daemon_, 2, {.connection = true, .descriptor = true, .mapping = true});
  const Borrower closed(daemon_, 1, {.descriptor = true});
  const Borrower lease_only(daemon_, 1, {.connection = true});
  ASSERT_TRUE(eventually([&] { return daemon_.connect().info().free == 29 * kSlice; }));
  EXPECT_EQ(held(), row(1, "lent", 2, open, "1+1") + row(2, "ended", 1, closed, "1+0"));
  EXPECT_EQ(held({"2"}), row(2, "ended", 1, closed, "1+0"));
  EXPECT_THAT(ctl({"3"}).output, StartsWith("nobody holds lease 3\n"));
  const auto reply = json({"1"});
  ASSERT_EQ(reply["holders"].Size(), 1U);
  const auto& holder = reply["holders"][0];
  EXPECT_STREQ(holder["command"].GetString(), "keeper");
  EXPECT_EQ(holder["uid"].GetUint(), ::geteuid());
  EXPECT_GT(holder["inode"].GetUint64(), 0U);
}

TEST_F(Holders, AreAllThatHaveIt) {
  const pid_t shell =
      spawn({CARVEOUTCTL, "--socket", daemon_.socket(), "--key-file", daemon_.key_file(), "claim",
             "2MiB", "--", "/bin/sh", "-c", "sleep 1000 & sleep 1000"},
            -1, -1);
  EXPECT_TRUE(eventually([&] { return json()["holders"].Size() >= 3; }));
  const auto reply = json({"1"});
  EXPECT_EQ(reply["holders"].Size(), 3U) << "the shell and what it has started";
  for (const auto& holder : reply["holders"].GetArray()) {
    EXPECT_STREQ(holder["state"].GetString(), "lent");
    if (const pid_t pid = holder["pid"].GetInt(); pid != shell) ::kill(pid, SIGKILL);
  }
  ::kill(shell, SIGKILL);
  wait_for(shell);
}

TEST_F(Holders, OfNoLease) {
  const Outcome outcome = ctl({"7"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.output, "");
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("lease 7: no such lease"), HasSubstr("leases")));
  for (const char* word : {"0", "-1", "x", "1x", "1.5", "", "99999999999999999999"})
    EXPECT_EQ(ctl({word}).code, 2) << word;
  EXPECT_EQ(ctl({"1", "2"}).code, 2);
}

TEST_F(Holders, ByALedgerWithoutADaemon) {
  Borrower keeper(daemon_, 2, {.descriptor = true});
  const Borrower open(daemon_, 1, {.connection = true, .descriptor = true});
  ASSERT_TRUE(eventually([&] { return daemon_.connect().info().free == 31 * kSlice; }));
  const std::string rows = row(1, "ended", 2, keeper, "1+0");
  EXPECT_EQ(held({"--ledger", ledger()}), rows + row(2, "lent", 1, open, "1+0"));
  EXPECT_EQ(daemon_.stop(), 0);
  EXPECT_EQ(held({"--ledger", ledger()}), rows + row(2, "ended", 1, open, "1+0"));
  EXPECT_EQ(held({"1", "--ledger", ledger()}), rows);
  // The last line cut short.
  std::string text = read_file(ledger());
  text.resize(text.size() - 5);
  write_file(ledger(), text, 0600);
  EXPECT_EQ(held({"1", "--ledger", ledger()}), rows);
  EXPECT_EQ(ctl({"7", "--ledger", ledger()}).code, 1);
  keeper.end();
  EXPECT_EQ(held({"1", "--ledger", ledger()}), "");
}

TEST_F(Holders, ByADamagedLedger) {
  const Borrower keeper(daemon_, 2, {.descriptor = true});
  ASSERT_TRUE(all_is_free());
  daemon_.kill();
  std::string text = read_file(ledger());
  text[30] ^= 1;
  write_file(ledger(), text, 0600);
  EXPECT_EQ(held({"--ledger", ledger()}), row(1, "ended", 2, keeper, "1+0"));
  EXPECT_THAT(ctl({"--ledger", ledger()}).output, HasSubstr("note: 1 line of "));
}

TEST_F(Holders, WithoutDaemonOrLedger) {
  daemon_.kill();
  const Outcome outcome = ctl({});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr(daemon_.control()), HasSubstr("is it running")));
  const Outcome missing = ctl({"--ledger", "/nowhere/ledger.jsonl"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.error, HasSubstr("/nowhere/ledger.jsonl"));
  EXPECT_EQ(ctl({"--ledger", "/dev/null"}).code, 1);
}

TEST_F(Holders, WhenTheDaemonsLedgerHasGone) {
  const Borrower open(daemon_, 1, {.connection = true, .descriptor = true});
  // The last record of the grant: with another the ledger would be begun anew.
  ASSERT_TRUE(eventually(
      [&] { return read_file(ledger()).find(R"("event":"answered")") != std::string::npos; }));
  ::unlink(ledger().c_str());
  EXPECT_EQ(held(), row(1, "lent", 1, open, "1+0"));
  EXPECT_THAT(ctl({}).output, HasSubstr("note: only leases that are open are known: "));
}

class HoldersWithoutALedger : public Holders {
 protected:
  HoldersWithoutALedger() : Holders({"--ledger", "none"}) {}
};

TEST_F(HoldersWithoutALedger, AreThoseOfOpenLeases) {
  const Borrower closed(daemon_, 1, {.descriptor = true});
  const Borrower open(daemon_, 2, {.connection = true, .descriptor = true});
  ASSERT_TRUE(eventually([&] { return daemon_.connect().info().free == 30 * kSlice; }));
  EXPECT_EQ(held(), row(2, "lent", 2, open, "1+0"));
  EXPECT_THAT(ctl({}).output, HasSubstr("note: the daemon keeps no ledger"));
  const Outcome ended = ctl({"1"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.error, AllOf(HasSubstr("no such lease"), HasSubstr("keeps no ledger")));
}

TEST(HoldersHelp, IsThere) {
  EXPECT_THAT(run({CARVEOUTCTL, "--help"}).output, HasSubstr("holders"));
  EXPECT_THAT(run({CARVEOUTCTL, "holders", "--help"}).output,
              AllOf(HasSubstr("NVIDIA"), HasSubstr("--ledger"), Not(HasSubstr("UINT"))));
  EXPECT_THAT(run({CARVEOUTCTL}).error, HasSubstr("holders"));
}

}  // namespace
}  // namespace carveout::test
