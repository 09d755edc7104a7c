// The units of systemd/ under a real systemd: leases live through every way in which the daemon can
// end short of being stopped. Run by tests/guest/run-systemd, as root, in a system of its own.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/memory.hpp"
#include "support/peer.hpp"
#include "support/proc.hpp"

namespace carveout::test {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSlice = 2097152;
constexpr std::uint64_t kReservation = 32 * kSlice;
constexpr const char* kUnit = "carveoutd.service";
constexpr const char* kSocket = "/run/carveout/carveout.sock";
constexpr const char* kLedger = "/run/carveoutd/ledger.jsonl";

std::string must(const std::vector<std::string>& words) {
  const Outcome outcome = run(words);
  if (outcome.code != 0) throw std::runtime_error(words[0] + ": " + outcome.output + outcome.error);
  return outcome.output;
}

std::string property(const std::string& name) {
  const std::string value = must({"systemctl", "show", "--value", "-p", name, kUnit});
  return value.substr(0, value.find('\n'));
}

std::string journal() {
  return must({"journalctl", "-u", kUnit, "-o", "cat", "--no-pager"});
}

bool has_ended(const Peer& peer) {
  char byte = 0;
  return ::recv(peer.socket(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0 || errno != EAGAIN;
}

class UnderSystemd : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    must({std::string(CARVEOUT_SOURCE_DIR) + "/tests/guest/install-units", CARVEOUTD, "64MiB"});
    // The watchdog's ten seconds are long for a test.
    fs::create_directories("/etc/systemd/system/carveoutd.service.d");
    write_file("/etc/systemd/system/carveoutd.service.d/watchdog.conf",
               "[Service]\nWatchdogSec=1s\n", 0644);
    must({"systemctl", "daemon-reload"});
  }
  void SetUp() override { must({"systemctl", "start", "carveoutd.socket", kUnit}); }
  void TearDown() override {
    EXPECT_EQ(run({CARVEOUTCTL, "audit", kLedger}).code, 0)
        << run({CARVEOUTCTL, "audit", kLedger}).output;
    must({"systemctl", "stop", kUnit, "carveoutd.socket"});
  }

  static pid_t main_pid() { return std::stoi(property("MainPID")); }
  static void wait_for_another(pid_t before) {
    ASSERT_TRUE(eventually([&] {
      return main_pid() != before && main_pid() != 0 && property("ActiveState") == "active";
    })) << journal();
  }
  static void kill_and_wait() {
    const pid_t before = main_pid();
    ::kill(before, SIGKILL);
    wait_for_another(before);
  }
  static std::uint64_t free() { return Peer(kSocket).info().free; }
};

// A borrower with a mapped and stamped slice.
struct Borrower {
  Peer peer{kSocket};
  UniqueFd memory = peer.alloc(2 * kSlice);
  Mapping mapping{memory.get(), 2 * kSlice};
  Borrower() { mapping.fill(0x77); }
  void expect_untouched() const {
    EXPECT_FALSE(has_ended(peer)) << journal();
    EXPECT_TRUE(mapping.all(0x77));
    EXPECT_EQ(peer.info().free, kReservation - 2 * kSlice);
  }
};

TEST_F(UnderSystemd, ALeaseLivesThroughKill9) {
  const Borrower borrower;
  kill_and_wait();
  borrower.expect_untouched();
}

TEST_F(UnderSystemd, ALeaseLivesThroughTheWatchdog) {
  const Borrower borrower;
  const pid_t before = main_pid();
  ::kill(before, SIGSTOP);  // it does not tell the watchdog any more
  wait_for_another(before);
  EXPECT_NE(journal().find("atchdog"), std::string::npos) << journal();
  borrower.expect_untouched();
}

TEST_F(UnderSystemd, ALeaseLivesThroughARestart) {
  const Borrower borrower;
  const pid_t before = main_pid();
  must({"systemctl", "restart", kUnit});
  EXPECT_NE(main_pid(), before);
  borrower.expect_untouched();
}

TEST_F(UnderSystemd, ARequestThatWasSentWhileItWasDownIsAnswered) {
  const Borrower borrower;
  const pid_t before = main_pid();
  ::kill(before, SIGKILL);
  ASSERT_TRUE(borrower.peer.send(borrower.peer.alloc_request(kSlice)));
  const Peer newcomer(kSocket);
  ASSERT_TRUE(newcomer.send(newcomer.alloc_request(kSlice)));
  wait_for_another(before);
  for (const Peer* peer : {&borrower.peer, &newcomer}) {
    const Reply reply = peer->receive();
    ASSERT_EQ(reply.descriptors.size(), 1U) << reply.bytes << journal();
    EXPECT_TRUE(is_zeroed_memory(reply.descriptors[0].get(), kSlice));
  }
  EXPECT_TRUE(borrower.mapping.all(0x77));
  EXPECT_EQ(free(), kReservation - 4 * kSlice);
}

TEST_F(UnderSystemd, SixCrashesWithinTenSecondsLoseNothing) {
  const Borrower borrower;
  std::vector<std::unique_ptr<Peer>> others;
  std::vector<UniqueFd> memory;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 6; ++i) {
    others.push_back(std::make_unique<Peer>(kSocket));
    memory.push_back(others.back()->alloc(kSlice));
    kill_and_wait();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  for (const auto& other : others)
    EXPECT_FALSE(has_ended(*other));
  EXPECT_EQ(free(), kReservation - 8 * kSlice);
  others.clear();
  EXPECT_TRUE(eventually([] { return free() == kReservation - 2 * kSlice; }));
  borrower.expect_untouched();
  EXPECT_EQ(property("NFileDescriptorStore"), "1") << "what has ended is not kept";
}

TEST_F(UnderSystemd, TheSocketIsTheSameFileAfterACrash) {
  const auto before = fs::last_write_time(kSocket);
  const Peer idle(kSocket);
  kill_and_wait();
  EXPECT_EQ(fs::last_write_time(kSocket), before);
  EXPECT_EQ(free(), kReservation);
  const std::string mode = must({"stat", "-c", "%a %U %G", kSocket});
  EXPECT_EQ(mode, "660 root carveout\n");
}

TEST_F(UnderSystemd, TheJournalHasItsFields) {
  const Borrower borrower;
  std::string entries;
  EXPECT_TRUE(eventually([&] {
    entries = must({"journalctl", "-u", kUnit, "-o", "json", "--no-pager",
                    "MESSAGE_ID=e5511ed5cc4347b596f062ee3c2200e9"});  // granted
    return entries.find("\"CARVEOUT_BYTES\":\"4194304\"") != std::string::npos;
  })) << entries;
  EXPECT_NE(entries.find("\"CARVEOUT_LEASE\":"), std::string::npos);
  EXPECT_NE(entries.find("\"CARVEOUT_PEER_UID\":\"0\""), std::string::npos);
  EXPECT_NE(entries.find("\"CARVEOUT_PEER_PID\":\"" + std::to_string(::getpid()) + "\""),
            std::string::npos);
}

TEST_F(UnderSystemd, StoppingEndsAllLeases) {
  const Borrower borrower;
  must({"systemctl", "stop", kUnit});
  EXPECT_TRUE(eventually([&] { return has_ended(borrower.peer); }));
  EXPECT_TRUE(borrower.mapping.all(0x77)) << "nobody takes memory from a process";
  must({"systemctl", "start", kUnit});
  EXPECT_EQ(free(), kReservation);
}

}  // namespace
}  // namespace carveout::test
