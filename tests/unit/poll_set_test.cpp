#include "poll_set.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "unit/helpers.hpp"

namespace carveout::daemon {
namespace {

using std::chrono::milliseconds;

class Recorder final : public PollSet::Member {
 public:
  using Call = std::function<void(std::uint32_t events)>;
  explicit Recorder(Call call) : call_(std::move(call)) {}
  void on_ready(std::uint32_t events) override {
    // A copy: the call may destroy *this.
    const Call call = call_;
    call(events);
  }

 private:
  Call call_;
};

// One end watched, the other in the test's hands.
struct Peer {
  std::unique_ptr<Recorder> member;
  UniqueFd ours, theirs;
  void say_something() const { ASSERT_EQ(::send(theirs.get(), "x", 1, MSG_NOSIGNAL), 1); }
};

class PollSetTest : public testing::Test {
 protected:
  Peer& add(std::uint64_t id, std::uint32_t events = EPOLLIN) {
    return add(
        id, [this, id](std::uint32_t ready) { calls_.emplace_back(id, ready); }, events);
  }
  Peer& add(std::uint64_t id, Recorder::Call call, std::uint32_t events = EPOLLIN) {
    if (peers_.size() <= id) peers_.resize(id + 1);
    Peer& peer = peers_[id];
    peer.member = std::make_unique<Recorder>(std::move(call));
    std::tie(peer.ours, peer.theirs) = test::socket_pair();
    EXPECT_TRUE(set_.watch(id, peer.ours.get(), events, *peer.member));
    return peer;
  }
  void end(std::uint64_t id) {
    set_.remove(id, peers_[id].ours.get());
    peers_[id].ours.reset();
    peers_[id].member.reset();
  }
  // The guest is always ready, so that nothing here waits.
  void dispatch() { EXPECT_TRUE(set_.serve()); }

  void SetUp() override { ASSERT_TRUE(set_.watch_guest(guest_.get())); }

  UniqueFd guest_{::eventfd(1, EFD_CLOEXEC)};
  PollSet set_ = *PollSet::create();
  std::vector<Peer> peers_ = std::vector<Peer>(400);
  std::vector<std::pair<std::uint64_t, std::uint32_t>> calls_;
};

TEST_F(PollSetTest, CallsWhoIsReadable) {
  add(1);
  const Peer& talker = add(2);
  dispatch();
  EXPECT_TRUE(calls_.empty());
  talker.say_something();
  dispatch();
  ASSERT_EQ(calls_.size(), 1U);
  EXPECT_EQ(calls_[0].first, 2U);
  EXPECT_NE(calls_[0].second & EPOLLIN, 0U);
}

TEST_F(PollSetTest, CallsAgainWhileItIsReadable) {
  add(1).say_something();
  dispatch();
  dispatch();
  EXPECT_EQ(calls_.size(), 2U);
}

TEST_F(PollSetTest, SeesAHangUpEvenWithoutBeingAsked) {
  add(1, 0U).theirs.reset();
  dispatch();
  ASSERT_EQ(calls_.size(), 1U);
  EXPECT_NE(calls_[0].second & EPOLLHUP, 0U);
}

TEST_F(PollSetTest, DispatchesHangUpsFirst) {
  // Requests are there before the hang-ups, in the order and in number: all must wait.
  for (std::uint64_t id = 1; id <= 300; ++id)
    add(id);
  for (std::uint64_t id = 1; id <= 300; ++id)
    peers_[id].say_something();
  for (std::uint64_t id = 3; id <= 300; id += 3)
    peers_[id].theirs.reset();
  dispatch();
  ASSERT_EQ(calls_.size(), 300U);
  for (std::size_t i = 0; i < 300; ++i) {
    EXPECT_EQ((calls_[i].second & EPOLLHUP) != 0, i < 100) << i;
    EXPECT_EQ(calls_[i].first % 3 == 0, i < 100) << i;
  }
}

TEST_F(PollSetTest, SaysWhetherTheGuestIsReady) {
  add(1).say_something();
  EXPECT_TRUE(set_.serve()) << "both";
  EXPECT_EQ(calls_.size(), 1U) << "the members are served all the same";
  std::uint64_t count = 0;
  ASSERT_EQ(::read(guest_.get(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
  EXPECT_FALSE(set_.serve()) << "a member only";
  EXPECT_EQ(calls_.size(), 2U);
  end(1);
  ASSERT_EQ(::write(guest_.get(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
  EXPECT_TRUE(set_.serve()) << "the guest only";
  EXPECT_EQ(calls_.size(), 2U);
}

TEST_F(PollSetTest, WaitsUntilSomethingIsReady) {
  std::uint64_t count = 0;
  ASSERT_EQ(::read(guest_.get(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
  const Peer& peer = add(1);
  std::thread talker([&peer] {
    std::this_thread::sleep_for(milliseconds(30));
    peer.say_something();
  });
  EXPECT_GE(test::time_of([this] { EXPECT_FALSE(set_.serve()); }), milliseconds(25));
  talker.join();
  EXPECT_EQ(calls_.size(), 1U);
}

TEST_F(PollSetTest, AMemberMayEndItself) {
  add(1, [this](std::uint32_t) {
    calls_.emplace_back(1, 0);
    end(1);
  });
  add(2);
  peers_[1].say_something();
  peers_[2].say_something();
  dispatch();
  dispatch();
  EXPECT_EQ(calls_.size(), 3U);  // the first once, the other twice
}

TEST_F(PollSetTest, AMemberMayEndOthersThatAreReadyToo) {
  for (std::uint64_t id = 1; id <= 10; ++id) {  // 0 is the guest's
    add(id, [this, id](std::uint32_t) {
      calls_.emplace_back(id, 0);
      for (std::uint64_t other = 1; other <= 10; ++other) {
        if (other != id) end(other);
      }
    });
  }
  for (std::uint64_t id = 1; id <= 10; ++id)
    peers_[id].say_something();
  dispatch();
  EXPECT_EQ(calls_.size(), 1U);
}

TEST_F(PollSetTest, AMemberMayAddOthers) {
  add(1, [this](std::uint32_t) {
    if (peers_[2].member == nullptr) add(2).say_something();
    calls_.emplace_back(1, 0);
  });
  peers_[1].say_something();
  dispatch();
  EXPECT_EQ(calls_.size(), 1U);
  dispatch();
  EXPECT_EQ(calls_.size(), 3U);
}

TEST_F(PollSetTest, ANumberThatWasUsedAgainIsNotMistaken) {
  // The descriptor of one that ended becomes another's within the same dispatch.
  add(1, [this](std::uint32_t) {
    end(1);
    end(2);
    add(3);
    add(4);
  });
  add(2);
  peers_[1].theirs.reset();  // a hang-up: called first
  peers_[2].say_something();
  dispatch();
  EXPECT_TRUE(calls_.empty());
  peers_[4].say_something();
  dispatch();
  ASSERT_EQ(calls_.size(), 1U);
  EXPECT_EQ(calls_[0].first, 4U);
}

TEST_F(PollSetTest, ChangesWhatItWatchesFor) {
  Peer& peer = add(1);
  ASSERT_TRUE(set_.watch(1, peer.ours.get(), EPOLLOUT, *peer.member));
  dispatch();
  ASSERT_EQ(calls_.size(), 1U);
  EXPECT_EQ(calls_[0].second, EPOLLOUT);
  ASSERT_TRUE(set_.watch(1, peer.ours.get(), EPOLLIN, *peer.member));
  dispatch();
  EXPECT_EQ(calls_.size(), 1U);
}

TEST_F(PollSetTest, ForgetsWhatIsRemoved) {
  Peer& peer = add(1);
  peer.say_something();
  set_.remove(1, peer.ours.get());
  dispatch();
  EXPECT_TRUE(calls_.empty());
  set_.remove(1, peer.ours.get());
  set_.remove(77, peer.ours.get());
  // And takes it again.
  ASSERT_TRUE(set_.watch(1, peer.ours.get(), EPOLLIN, *peer.member));
  dispatch();
  EXPECT_EQ(calls_.size(), 1U);
}

TEST_F(PollSetTest, RefusesWhatCannotBeWatchedAndForgetsIt) {
  const test::TemporaryDirectory directory;
  const UniqueFd file(::open(directory.file("file", "").c_str(), O_RDONLY | O_CLOEXEC));
  Peer& peer = add(1);
  set_.remove(1, peer.ours.get());
  const auto watched = set_.watch(1, file.get(), EPOLLIN, *peer.member);  // EPERM: a regular file
  ASSERT_FALSE(watched);
  EXPECT_EQ(watched.error().code, Code::kSystem);
  EXPECT_FALSE(set_.watch(1, -1, EPOLLIN, *peer.member));
  // Had it been kept, this would be taken for a change of something watched, and fail.
  EXPECT_TRUE(set_.watch(1, peer.ours.get(), EPOLLIN, *peer.member));
}

}  // namespace
}  // namespace carveout::daemon
