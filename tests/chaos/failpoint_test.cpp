// Each step of a grant and of a release made to fail, and the daemon killed, before and after it:
// on one lease, while others hold and others ask. Nobody else notices, nothing is left behind, and
// the ledger says what became of it.

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/memory.hpp"
#include "support/service_manager.hpp"

namespace carveout::test {
namespace {

constexpr std::uint64_t kSlice = 2097152;
constexpr std::uint64_t kReservation = 32 * kSlice;
constexpr std::uint64_t kVictim = 5 * kSlice;  // nobody else asks for as much
constexpr std::size_t kHolders = 3;

struct Row {
  const char* point;   // STEP.SIDE
  const char* action;  // fail or die
  const char* got;     // what the victim gets
  const char* ledger;  // the events of its lease, in order
};

// "silence": the reply may have left, so it is not sent again; the client's own time limit ends it.
const std::vector<Row>& rows() {
  static const std::vector<Row> kRows{
      {"store.before", "fail", "refused", "refused"},
      {"store.after", "fail", "refused", "refused"},
      {"requested.before", "fail", "refused", "refused"},
      {"requested.after", "fail", "refused", "requested refused"},
      {"allocate.before", "fail", "refused", "requested refused"},
      {"allocate.after", "fail", "refused", "requested refused"},
      {"share.before", "fail", "refused", "requested refused"},
      {"share.after", "fail", "refused", "requested refused"},
      {"granted.before", "fail", "refused", "requested refused"},
      {"granted.after", "fail", "refused", "requested granted refused"},
      {"send.before", "fail", "end", "requested granted released"},
      {"send.after", "fail", "grant, end", "requested granted released"},
      {"answered.before", "fail", "grant", "requested granted answered released"},
      {"answered.after", "fail", "grant", "requested granted answered released"},
      {"released.before", "fail", "grant", "requested granted answered released"},
      {"released.after", "fail", "grant", "requested granted answered released"},
      {"unstore.before", "fail", "grant", "requested granted answered released"},
      {"unstore.after", "fail", "grant", "requested granted answered released"},
      {"store.before", "die", "end", ""},
      {"store.after", "die", "end", "lost"},
      {"requested.before", "die", "end", "lost"},
      {"requested.after", "die", "grant", "requested granted answered released"},
      {"allocate.before", "die", "grant", "requested granted answered released"},
      {"allocate.after", "die", "grant", "requested granted answered released"},
      {"share.before", "die", "grant", "requested granted answered released"},
      {"share.after", "die", "grant", "requested granted answered released"},
      {"granted.before", "die", "grant", "requested granted answered released"},
      {"granted.after", "die", "silence", "requested granted adopted released"},
      {"send.before", "die", "silence", "requested granted adopted released"},
      {"send.after", "die", "grant", "requested granted adopted released"},
      {"answered.before", "die", "grant", "requested granted adopted released"},
      {"answered.after", "die", "grant", "requested granted answered adopted released"},
      {"released.before", "die", "grant", "requested granted answered adopted released"},
      {"released.after", "die", "grant", "requested granted answered released lost"},
      {"unstore.before", "die", "grant", "requested granted answered released lost"},
      {"unstore.after", "die", "grant", "requested granted answered released"}};
  return kRows;
}

void PrintTo(const Row& row, std::ostream* stream) {
  *stream << row.point << ' ' << row.action;
}

bool is_readable(const Peer& peer, int within_ms) {
  pollfd item{peer.socket(), POLLIN, 0};
  return ::poll(&item, 1, within_ms) == 1;
}

// The members "event" of the records of the victim's connection.
std::string events_of(const std::string& ledger, const std::string& connection) {
  std::istringstream lines(ledger);
  std::string events;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"connection\":" + connection + ",") == std::string::npos) continue;
    const std::size_t begin = line.find("\"event\":\"") + 9;
    events += (events.empty() ? "" : " ") + line.substr(begin, line.find('"', begin) - begin);
  }
  return events;
}

// The connection of the only request for that much; "" if none is recorded.
std::string connection_of_victim(const std::string& ledger) {
  std::istringstream lines(ledger);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"asked_bytes\":" + std::to_string(kVictim)) == std::string::npos) continue;
    const std::size_t begin = line.find("\"connection\":") + 13;
    return line.substr(begin, line.find(',', begin) - begin);
  }
  return {};
}

class Failpoint : public testing::TestWithParam<Row> {
 protected:
  void start() {
    manager_.start({std::string("CARVEOUT_FAILPOINT=") + GetParam().point + ":" +
                    GetParam().action + ":" + std::to_string(failing_size())});
    for (auto& holder : holders_) {
      holder = std::make_unique<Peer>(manager_.connect());
      memory_.push_back(holder->alloc(kSlice));
      mappings_.push_back(std::make_unique<Mapping>(memory_.back().get(), kSlice));
      mappings_.back()->fill(static_cast<std::uint8_t>(mappings_.size()));
    }
    busy_ = std::thread([this] { keep_busy(); });
  }

  // The store's steps do not know for whom they are: they are the victim's because all others that
  // close do so before it.
  [[nodiscard]] static std::uint64_t failing_size() {
    return std::string(GetParam().point).starts_with("unstore") ? 0 : kVictim;
  }
  [[nodiscard]] static bool dies() { return std::string(GetParam().action) == "die"; }

  // Others that ask and close all the time; not while the manager is being told of closings.
  void keep_busy() {
    while (!stop_) {
      try {
        const Peer peer = manager_.connect();
        for (int i = 0; i < 20 && !stop_; ++i)
          (void)peer.info();
        if (failing_size() != 0) (void)peer.alloc(kSlice);
      } catch (const std::exception&) {
        // Its daemon died before it had anything.
      }
    }
  }

  void bring_back() {
    ASSERT_EQ(manager_.wait_for_end(), 128 + SIGKILL) << manager_.log();
    manager_.start();
  }

  // What the victim sees, up to the end of its connection or its lease.
  std::string ask(Peer& victim) {
    EXPECT_TRUE(victim.send(victim.alloc_request(kVictim)));
    const std::string step = GetParam().point;
    const bool at_release = step.starts_with("released") || step.starts_with("unstore");
    if (dies() && !at_release) bring_back();
    if (!is_readable(victim, 1500)) return "silence";
    const Reply reply = victim.receive();
    if (reply.ended()) return "end";
    if (reply.descriptors.empty()) {
      EXPECT_NE(reply.bytes.find("not enough free carveout"), std::string::npos) << reply.bytes;
      EXPECT_TRUE(victim.receive().ended());
      return "refused";
    }
    EXPECT_TRUE(is_zeroed_memory(reply.descriptors[0].get(), kVictim));
    EXPECT_EQ(member(reply.bytes, "size"), kVictim);
    std::string got = "grant";
    if (is_readable(victim, 100)) got += victim.receive().ended() ? ", end" : ", and more";
    victim.close();
    if (dies() && at_release) bring_back();
    return got;
  }

  // Once what the worker has to close is closed.
  [[nodiscard]] std::size_t settled_descriptors() const {
    std::size_t count = 0;
    for (int same = 0; same < 10; ++same) {
      (void)holders_[0]->info();
      if (const std::size_t now = count_descriptors(manager_.pid()); now != count) {
        count = now;
        same = 0;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return count;
  }

  void stop_others() {
    stop_ = true;
    if (busy_.joinable()) busy_.join();
  }

  void TearDown() override { stop_others(); }

  ServiceManager manager_{CARVEOUTD_FAILPOINTS, {"--size", "64MiB"}};
  std::array<std::unique_ptr<Peer>, kHolders> holders_;
  std::vector<UniqueFd> memory_;
  std::vector<std::unique_ptr<Mapping>> mappings_;
  std::atomic<bool> stop_ = false;
  std::thread busy_;
};

TEST_P(Failpoint, LeavesEverybodyElseAloneAndNothingBehind) {
  start();
  Peer victim = manager_.connect();
  const std::string got = ask(victim);
  victim.close();
  stop_others();

  for (std::size_t i = 0; i < kHolders; ++i) {
    EXPECT_FALSE(is_readable(*holders_.at(i), 0)) << "holder " << i << " was answered or closed";
    EXPECT_TRUE(mappings_[i]->all(static_cast<std::uint8_t>(i + 1)));
  }
  const Peer& watcher = *holders_[0];
  const std::uint64_t rest = kReservation - kHolders * kSlice;
  EXPECT_TRUE(eventually([&] { return watcher.info().free == rest; })) << watcher.info().free;
  // What fails to be taken out of the store is, with the next thing that the manager is told.
  // (A failure to lend lowers what is promised to anybody for a second.)
  EXPECT_TRUE(eventually([&] { return watcher.info().largest == rest; }));
  (void)manager_.connect().alloc(kSlice);
  EXPECT_TRUE(eventually([&] { return manager_.stored().size() == kHolders; }))
      << testing::PrintToString(manager_.stored());
  // As many as a daemon has that has adopted the same leases, and to which nothing else happened.
  const std::size_t before = settled_descriptors();
  manager_.end(SIGTERM);
  manager_.set_binary(CARVEOUTD);
  const std::string ledger = read_file(manager_.ledger());
  manager_.start();
  EXPECT_EQ(settled_descriptors(), before);
  EXPECT_EQ(manager_.dropped(), 0U);

  const std::string connection = connection_of_victim(ledger);
  std::string events = connection.empty() ? "" : events_of(ledger, connection);
  if (connection.empty() && ledger.find("\"event\":\"lost\"") != std::string::npos) events = "lost";
  EXPECT_EQ(got, GetParam().got);
  EXPECT_EQ(events, GetParam().ledger);
  const Outcome audited = run({CARVEOUTCTL, "audit", manager_.ledger()});
  EXPECT_EQ(audited.code, 0) << audited.output << audited.error;
  std::printf("| %s | %s | %s | %s |\n", GetParam().point, GetParam().action, got.c_str(),
              events.c_str());
}

std::string name_of(const testing::TestParamInfo<Row>& row) {
  std::string name = row.param.point;
  name[name.find('.')] = '_';
  return name + "_" + row.param.action;
}

INSTANTIATE_TEST_SUITE_P(At, Failpoint, testing::ValuesIn(rows()), name_of);

}  // namespace
}  // namespace carveout::test
