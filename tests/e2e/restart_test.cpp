// A daemon that dies or is restarted comes back with every lease: the design's table, row by row,
// with the real binary and a service manager's part played over the real protocol.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/daemon_process.hpp"
#include "support/memory.hpp"
#include "support/service_manager.hpp"

namespace carveout::test {
namespace {

constexpr std::uint64_t kReservation = 64 * (std::uint64_t{1} << 20U);

bool has_ended(const Peer& peer) {
  char byte = 0;
  return ::recv(peer.socket(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0 || errno != EAGAIN;
}

std::string audit(const ServiceManager& manager) {
  const Outcome outcome = run({CARVEOUTCTL, "audit", manager.ledger()});
  return outcome.code == 0 ? "good" : outcome.output + outcome.error;
}

class Restart : public testing::TestWithParam<int> {
 protected:
  Restart() { manager_.start(); }
  // As the parameter says: kill -9, abort (as the watchdog does), or a clean restart.
  void restart() {
    const int code = manager_.end(GetParam());
    EXPECT_EQ(code, GetParam() == SIGTERM ? 0 : 128 + GetParam()) << manager_.log();
    manager_.start();
  }
  [[nodiscard]] std::uint64_t free() const { return manager_.connect().info().free; }

  ServiceManager manager_{CARVEOUTD, {"--size", "64MiB"}};
};

TEST_P(Restart, KeepsALeaseItsMemoryAndItsConnection) {
  const Peer peer = manager_.connect();
  const UniqueFd memory = peer.alloc(3 * kSlice);
  Mapping mapping(memory.get(), 3 * kSlice);
  mapping.fill(0x5a);
  for (int i = 0; i < 3; ++i) {
    restart();
    EXPECT_FALSE(has_ended(peer));
    EXPECT_TRUE(mapping.all(0x5a));
    EXPECT_EQ(free(), kReservation - 3 * kSlice);
    EXPECT_EQ(peer.info().free, kReservation - 3 * kSlice) << "on the same connection";
  }
  const UniqueFd more = peer.alloc(kSlice);
  EXPECT_TRUE(is_zeroed_memory(more.get(), kSlice));
  EXPECT_EQ(free(), kReservation - 4 * kSlice);
  EXPECT_EQ(audit(manager_), "good");
}

TEST_P(Restart, KeepsSeveralLeasesOnOneConnection) {
  auto peer = std::make_unique<Peer>(manager_.connect());
  std::vector<UniqueFd> memory;
  for (std::uint64_t slices = 1; slices <= 4; ++slices)
    memory.push_back(peer->alloc(slices * kSlice));
  restart();
  EXPECT_EQ(free(), kReservation - 10 * kSlice);
  EXPECT_EQ(manager_.stored().size(), 1U) << "a connection is stored once";
  peer.reset();
  EXPECT_TRUE(eventually([this] { return free() == kReservation; }));
  EXPECT_TRUE(eventually([this] { return manager_.stored().empty(); }));
  EXPECT_EQ(audit(manager_), "good");
}

TEST_P(Restart, ReleasesWhatWasClosedMeanwhile) {
  auto gone = std::make_unique<Peer>(manager_.connect());
  const Peer stays = manager_.connect();
  const UniqueFd memory = gone->alloc(2 * kSlice);
  const UniqueFd other = stays.alloc(kSlice);
  manager_.end(GetParam());
  gone.reset();
  manager_.start();
  EXPECT_TRUE(eventually([this] { return free() == kReservation - kSlice; }));
  EXPECT_TRUE(eventually([this] { return manager_.stored().size() == 1; }));
  EXPECT_FALSE(has_ended(stays));
  EXPECT_EQ(audit(manager_), "good");
}

TEST_P(Restart, AnswersWhatWasSentWhileItWasDown) {
  const Peer holder = manager_.connect();
  const UniqueFd memory = holder.alloc(kSlice);
  manager_.end(GetParam());
  ASSERT_TRUE(holder.send(holder.alloc_request(2 * kSlice)));
  const Peer newcomer = manager_.connect();  // the listening socket is the manager's
  ASSERT_TRUE(newcomer.send(newcomer.info_request()));
  manager_.start();
  const Reply granted = holder.receive();
  ASSERT_EQ(granted.descriptors.size(), 1U) << granted.bytes;
  EXPECT_TRUE(is_zeroed_memory(granted.descriptors[0].get(), 2 * kSlice));
  EXPECT_EQ(member(newcomer.receive().bytes, "size"), kReservation);
  EXPECT_EQ(audit(manager_), "good");
}

TEST_P(Restart, ManyTimesInARow) {
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 8; ++i) {
    peers.push_back(std::make_unique<Peer>(manager_.connect()));
    (void)peers.back()->alloc(kSlice);
    restart();
    EXPECT_EQ(free(), kReservation - peers.size() * kSlice);
  }
  for (const auto& peer : peers)
    EXPECT_FALSE(has_ended(*peer));
  peers.clear();
  EXPECT_TRUE(eventually([this] { return free() == kReservation; }));
  EXPECT_EQ(audit(manager_), "good");
}

std::string name_of_end(const testing::TestParamInfo<int>& end) {
  if (end.param == SIGKILL) return "Kill";
  return end.param == SIGABRT ? "Abort" : "Restart";
}

INSTANTIATE_TEST_SUITE_P(By, Restart, testing::Values(SIGKILL, SIGABRT, SIGTERM), name_of_end);

TEST(RestartWithSurprises, ClosesWhatItCannotUseAndSaysSo) {
  ServiceManager manager(CARVEOUTD, {"--size", "64MiB"});
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd other_end(ends[0]);
  manager.put("conn-77", UniqueFd(ends[1]));
  manager.put("somebody-else", UniqueFd(::dup(STDIN_FILENO)));
  manager.start();
  char byte = 0;
  EXPECT_EQ(::recv(other_end.get(), &byte, 1, 0), 0)
      << "a connection that nothing is known of ends";
  EXPECT_TRUE(eventually([&] { return manager.stored().size() == 1; }));
  EXPECT_EQ(manager.stored(), std::vector<std::string>{"somebody-else"}) << "not ours to remove";
  EXPECT_NE(manager.log().find("conn-77"), std::string::npos);
  // Its number is not used again.
  const Peer peer = manager.connect();
  const UniqueFd memory = peer.alloc(kSlice);
  for (const std::string& name : manager.stored()) {
    if (name.starts_with("conn-")) {
      EXPECT_GT(std::stoul(name.substr(5)), 77U);
    }
  }
  EXPECT_EQ(audit(manager), "good");
}

TEST(RestartWithSurprises, RecordsAsLostWhatTheManagerDidNotKeep) {
  ServiceManager manager(CARVEOUTD, {"--size", "64MiB"}, 0);  // FileDescriptorStoreMax=0
  manager.start();
  const Peer peer = manager.connect();
  const UniqueFd memory = peer.alloc(kSlice);
  manager.end(SIGKILL);
  manager.start();
  EXPECT_TRUE(has_ended(peer));
  EXPECT_EQ(manager.connect().info().free, kReservation);
  EXPECT_NE(read_file(manager.ledger()).find("\"event\":\"lost\""), std::string::npos);
  EXPECT_EQ(audit(manager), "good");
}

TEST(RestartWithSurprises, RefusesWhatTheStoreHasNoRoomFor) {
  ServiceManager manager(CARVEOUTD, {"--size", "64MiB", "--store-max", "2"}, 2);
  manager.start();
  const Peer first = manager.connect();
  auto second = std::make_unique<Peer>(manager.connect());
  const UniqueFd a = first.alloc(kSlice);
  const UniqueFd b = second->alloc(kSlice);
  const Peer third = manager.connect();
  EXPECT_EQ(third.info().largest, 0U) << "what this connection would be granted";
  EXPECT_EQ(first.info().largest, kReservation - 2 * kSlice);
  EXPECT_NE(third.ask(third.alloc_request(kSlice)).bytes.find("not enough free carveout"),
            std::string::npos);
  EXPECT_EQ(manager.dropped(), 0U) << "nothing was given to a manager that would drop it";
  const UniqueFd more = first.alloc(kSlice);  // no place of its own
  second.reset();                             // and its place is free at once
  const UniqueFd c = manager.connect().alloc(kSlice);
  EXPECT_EQ(audit(manager), "good");
}

TEST(RestartWithSurprises, ARefusalEndsAKeptConnectionForItsPeer) {
  // The manager has a copy of the connection, so that closing ours is not its end.
  ServiceManager manager(CARVEOUTD, {"--size", "64MiB"});
  manager.start();
  const Peer peer = manager.connect();
  const UniqueFd memory = peer.alloc(kSlice);
  const Peer other = manager.connect();
  const UniqueFd more = other.alloc(kSlice);
  EXPECT_NE(other.ask("{}").bytes.find("missing or unknown key"), std::string::npos);
  EXPECT_TRUE(other.receive().ended());
  EXPECT_TRUE(eventually([&] { return manager.stored().size() == 1; }));
  EXPECT_FALSE(has_ended(peer));
  EXPECT_EQ(manager.connect().info().free, kReservation - kSlice);
}

TEST(RestartWithSurprises, WithASmallerReservationNothingIsFreeUntilEnoughCameBack) {
  ServiceManager large(CARVEOUTD, {"--size", "64MiB"});
  large.start();
  auto peer = std::make_unique<Peer>(large.connect());
  const UniqueFd memory = peer->alloc(16 * kSlice);
  large.end(SIGTERM);
  large.set_options({"--size", "16MiB"});
  large.start();
  EXPECT_EQ(large.connect().info().free, 0U);
  EXPECT_EQ(large.connect().info().size, 8 * kSlice);
  peer.reset();
  EXPECT_TRUE(eventually([&] { return large.connect().info().free == 8 * kSlice; }));
  EXPECT_EQ(audit(large), "good");
}

// The daemon behind a shell's ulimit.
std::string limited(const ServiceManager& manager, const std::string& limit) {
  const std::string path = manager.directory().file("limited");
  write_file(path, "#!/bin/sh\nulimit " + limit + "\nexec " CARVEOUTD " \"$@\"\n", 0755);
  return path;
}

TEST(RestartWithSurprises, AStartThatFailsForWantOfDescriptorsLosesNothing) {
  ServiceManager manager(CARVEOUTD, {"--size", "64MiB"});
  manager.start();
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 12; ++i) {
    peers.push_back(std::make_unique<Peer>(manager.connect()));
    (void)peers.back()->alloc(kSlice);
  }
  manager.end(SIGKILL);
  // From too few to begin with, over too few at each of its steps, to enough.
  int failed = 0;
  for (int limit = 16; limit < 44; ++limit) {
    manager.set_binary(limited(manager, "-n " + std::to_string(limit)));
    try {
      manager.start();
      manager.end(SIGKILL);
    } catch (const std::runtime_error&) {
      ++failed;
    }
  }
  EXPECT_GT(failed, 3);
  EXPECT_LT(failed, 28);
  manager.set_binary(CARVEOUTD);
  manager.start();
  EXPECT_EQ(manager.connect().info().free, kReservation - 12 * kSlice) << manager.log();
  for (const auto& peer : peers)
    EXPECT_FALSE(has_ended(*peer));
  EXPECT_EQ(audit(manager), "good");
}

TEST(RestartWithSurprises, AHostWithoutMemoryToSpareIsNoReasonNotToGoOn) {
  ServiceManager manager(CARVEOUTD, {"--size", "64MiB"});
  manager.start();
  const Peer peer = manager.connect();
  const UniqueFd memory = peer.alloc(kSlice);
  manager.end(SIGKILL);
  manager.set_binary(limited(manager, "-f 1024"));  // no file of a slice's size
  manager.start();
  EXPECT_FALSE(has_ended(peer));
  EXPECT_EQ(peer.info().free, kReservation - kSlice);
  EXPECT_NE(peer.ask(peer.alloc_request(kSlice)).bytes.find("not enough free carveout"),
            std::string::npos);
}

TEST(RestartWithSurprises, AStoreFullOfOthersDescriptorsIsAStoreStill) {
  ServiceManager manager(CARVEOUTD, {"--size", "64MiB", "--store-max", "4"}, 100);
  manager.start();
  const Peer peer = manager.connect();
  const UniqueFd memory = peer.alloc(kSlice);
  for (int i = 0; i < 4; ++i)
    manager.put("foreign", UniqueFd(::dup(STDIN_FILENO)));
  for (int i = 0; i < 3; ++i) {
    manager.end(SIGTERM);
    manager.start();
    EXPECT_FALSE(has_ended(peer));
    EXPECT_EQ(peer.info().free, kReservation - kSlice);
    const Peer another = manager.connect();
    EXPECT_NE(another.ask(another.alloc_request(kSlice)).bytes.find("not enough free carveout"),
              std::string::npos);
  }
  EXPECT_EQ(audit(manager), "good");
}

TEST(RestartWithSurprises, WithoutALedgerWhatWasKeptEnds) {
  ServiceManager manager(CARVEOUTD, {"--size", "64MiB"});
  manager.start();
  const Peer peer = manager.connect();
  const UniqueFd memory = peer.alloc(kSlice);
  manager.end(SIGTERM);
  manager.set_options({"--size", "64MiB", "--ledger", "none"});
  manager.start();
  EXPECT_TRUE(has_ended(peer));
  EXPECT_TRUE(eventually([&] { return manager.stored().empty(); }));
}

TEST(RestartWithSurprises, MakesTheBestOfADamagedLedger) {
  ServiceManager manager(CARVEOUTD, {"--size", "64MiB"});
  manager.start();
  const Peer first = manager.connect();
  const UniqueFd a = first.alloc(kSlice);
  const Peer second = manager.connect();
  const UniqueFd b = second.alloc(2 * kSlice);
  manager.end(SIGKILL);
  std::string text = read_file(manager.ledger());
  const std::size_t place = text.rfind("\"event\":\"granted\"");  // of the second one
  ASSERT_NE(place, std::string::npos);
  text[place + 10] ^= 1;
  write_file(manager.ledger(), text, 0600);
  manager.start();
  EXPECT_FALSE(has_ended(first)) << "what can be read goes on";
  EXPECT_EQ(manager.connect().info().free % kSlice, 0U);
  EXPECT_EQ(audit(manager), "good") << "the new file";
  EXPECT_EQ(read_file(manager.ledger() + ".1"), text) << "the damaged one is kept";
  EXPECT_NE(manager.log().find("going on with what can be read"), std::string::npos);
}

}  // namespace
}  // namespace carveout::test
