// Limits of a user and in total, and who goes when there is no room.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <stdexcept>

#include "peer/bystander.hpp"

namespace carveout::test {
namespace {

// What `deed` answers, done by another user.
template <typename Deed>
std::string as_user(uid_t uid, const Deed& deed) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::string answer = "cannot become that user";
    if (::setgid(uid) == 0 && ::setuid(uid) == 0) {
      try {
        answer = deed();
      } catch (const std::exception& problem) {
        answer = problem.what();
      }
    }
    const bool written = ::write(in.get(), answer.data(), answer.size()) >= 0;
    ::_exit(written ? 0 : 1);
  }
  in.reset();
  std::string answer;
  std::array<char, 4096> part{};
  for (ssize_t n = 0; (n = ::read(out.get(), part.data(), part.size())) > 0;) {
    answer.append(part.data(), static_cast<std::size_t>(n));
  }
  ::waitpid(pid, nullptr, 0);
  return answer;
}

constexpr uid_t kOne = 54'321;
constexpr uid_t kOther = 54'322;

class TwoUsers : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "waived: only root can be two users";
  }
  // Lets everybody through to the lending socket.
  static void open_up(const DaemonProcess& daemon) {
    ASSERT_EQ(::chmod(daemon.directory().file("").c_str(), 0755), 0);
    ASSERT_EQ(::chmod(daemon.socket().c_str(), 0666), 0);
  }
};

TEST_F(TwoUsers, OneThatMayHave64MiBGetsThatAndNoMore) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "256MiB", "--max-bytes-per-uid", "64MiB"});
  open_up(daemon);
  const std::string of_one = as_user(kOne, [&] {
    std::vector<Peer> peers;
    std::vector<UniqueFd> memory;
    std::string account;
    const Figures before = daemon.connect().info();
    account +=
        std::to_string(before.largest / kSlice) + " of " + std::to_string(before.free / kSlice);
    // Over as many connections as it likes, an odd size among them.
    for (const std::uint64_t slices : {10U, 7U, 5U, 4U, 4U, 1U}) {
      peers.push_back(daemon.connect());
      const Reply reply = peers.back().ask(peers.back().alloc_request(slices * kSlice));
      account += reply.descriptors.empty() ? " no" : " yes";
      for (const UniqueFd& each : reply.descriptors)
        memory.emplace_back(::dup(each.get()));
    }
    account += ", " + std::to_string(daemon.connect().info().largest / kSlice) + "; ";
    // While it holds them, the other one is unaffected.
    return account + daemon.connect().ask(peers.back().alloc_request(7 * kSlice)).bytes;
  });
  // 10 + 7 + 5 + 4 = 26, 30 with the next 4, 31 with 1; 7 more are too many.
  EXPECT_EQ(of_one,
            "32 of 128 yes yes yes yes yes yes, 1; "
            R"({"ok": false, "error": "not enough free carveout", "base": 10739515392, )"
            R"("size": 268435456, "free": 203423744, "largest": 2097152})");
}

TEST_F(TwoUsers, TheOtherIsUnaffected) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "256MiB", "--max-bytes-per-uid", "64MiB"});
  open_up(daemon);
  const std::string answer = as_user(kOne, [&] {
    const Peer holder = daemon.connect();
    const UniqueFd memory = holder.alloc(32 * kSlice);
    return std::to_string(daemon.connect().info().largest);
  });
  EXPECT_EQ(answer, "0");
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd out(ends[0]);
  const UniqueFd in(ends[1]);
  const pid_t holder = ::fork();
  if (holder == 0) {
    if (::setgid(kOne) != 0 || ::setuid(kOne) != 0) ::_exit(1);
    const Peer peer = daemon.connect();
    const UniqueFd memory = peer.alloc(32 * kSlice);
    [[maybe_unused]] const auto told = ::write(in.get(), "x", 1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(out.get(), &byte, 1), 1);
  EXPECT_EQ(as_user(kOther,
                    [&] {
                      const Peer peer = daemon.connect();
                      const Figures now = peer.info();
                      const UniqueFd memory = peer.alloc(now.largest);
                      return std::to_string(now.largest / kSlice) + " of " +
                             std::to_string(now.free / kSlice);
                    }),
            "32 of 96");
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
}

TEST_F(TwoUsers, HaveTheirOwnNumberOfConnections) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "64MiB", "--max-connections-per-uid", "5"});
  open_up(daemon);
  const auto connections = [&] {
    std::vector<Peer> peers;
    int served = 0;
    for (int i = 0; i < 10; ++i) {
      peers.push_back(daemon.connect());
      served += peers.back().send(peers.back().info_request()) && !peers.back().receive().ended();
    }
    return std::to_string(served);
  };
  EXPECT_EQ(as_user(kOne, connections), "5");
  EXPECT_EQ(as_user(kOther, connections), "5");
  EXPECT_EQ(as_user(kOne, connections), "5") << "those that ended do not count";
}

// Whether a newcomer is closed; asked, so that one that gets in is answered and not waited for.
bool turns_away(const DaemonProcess& daemon) {
  const Peer newcomer = daemon.connect();
  return !newcomer.send(newcomer.info_request()) || newcomer.receive().ended();
}

TEST(Room, AtTheLimitStrangersGoThenWhoWasSilentLongest) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "64MiB", "--max-connections", "4"});
  const Peer guest = daemon.connect();
  (void)guest.info();
  const Peer borrower = daemon.connect();
  const UniqueFd memory = borrower.alloc(kSlice);
  const Peer fresh = daemon.connect();
  (void)fresh.info();
  const Peer stranger = daemon.connect();
  const Peer first = daemon.connect();
  EXPECT_EQ(first.info().free, 31 * kSlice) << "the stranger made room, at once";
  EXPECT_TRUE(stranger.receive().ended());
  // The guests have not been silent for long: the newcomer goes.
  EXPECT_TRUE(turns_away(daemon));

  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  (void)fresh.info();
  (void)first.info();
  const Peer second = daemon.connect();
  EXPECT_EQ(second.info().free, 31 * kSlice) << "then the guest";
  EXPECT_TRUE(guest.receive().ended());
  EXPECT_EQ(fresh.info().free, 31 * kSlice);

  // Silent for long is only the borrower now, who never goes.
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  for (const Peer* peer : {&fresh, &first, &second})
    (void)peer->info();
  EXPECT_TRUE(turns_away(daemon));
  EXPECT_EQ(borrower.info().free, 31 * kSlice);
}

TEST(Room, StrangersThatKeepComingShutNobodyOut) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "64MiB", "--max-connections", "16"});
  std::vector<Peer> strangers;
  for (int i = 0; i < 200; ++i) {
    // Each renews its connection before anybody could call it silent.
    if (strangers.size() == 64) strangers.erase(strangers.begin());
    strangers.push_back(daemon.connect());
    const Peer newcomer = daemon.connect();
    ASSERT_EQ(newcomer.info().free, 32 * kSlice) << i;
  }
}

TEST(Room, ConnectionsThatAreGoneLeaveNothing) {
#ifdef CARVEOUT_SANITIZED
  GTEST_SKIP() << "waived: a sanitizer keeps what is freed, and its memory grows";
#endif
  const DaemonProcess daemon(CARVEOUTD, {"--size", "64MiB", "--idle-timeout", "3600"});
  const auto come_and_go = [&] {
    for (int i = 0; i < 20'000; ++i)
      (void)daemon.connect();
    (void)daemon.connect().info();
    return resident_kib(daemon.pid());
  };
  const std::size_t before = come_and_go();
  EXPECT_LT(come_and_go(), before + 256);
}

TEST(Room, AStrangerThatStaysSilentIsClosed) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "64MiB", "--idle-timeout", "1"});
  const Peer guest = daemon.connect();
  (void)guest.info();
  const Peer borrower = daemon.connect();
  const UniqueFd memory = borrower.alloc(kSlice);
  const Peer stranger = daemon.connect();
  const auto before = std::chrono::steady_clock::now();
  EXPECT_TRUE(stranger.receive().ended());
  EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(900));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(guest.info().free, 31 * kSlice);
  EXPECT_EQ(borrower.info().free, 31 * kSlice);
  EXPECT_NE(daemon.status().find("\"timed_out\":1"), std::string::npos) << daemon.status();
}

}  // namespace
}  // namespace carveout::test
