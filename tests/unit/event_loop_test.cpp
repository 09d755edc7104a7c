#include "event_loop.hpp"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "unit/helpers.hpp"
#include "unit/run_loop.hpp"

namespace carveout::daemon {
namespace {

using std::chrono::milliseconds;

class EventLoopTest : public testing::Test {
 protected:
  void stop_after(milliseconds delay) {
    auto timer = loop_->after(delay, [this] { loop_->stop(); });
    ASSERT_TRUE(timer);
    stop_ = *std::move(timer);
  }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::create();
  EventLoop::Source stop_;
};

TEST_F(EventLoopTest, RunsTimersInTheOrderOfTheirTimes) {
  std::vector<int> order;
  const auto late = loop_->after(milliseconds(60), [&] { order.push_back(2); });
  const auto soon = loop_->after(milliseconds(20), [&] { order.push_back(1); });
  ASSERT_TRUE(late && soon);
  stop_after(milliseconds(120));
  const auto took = test::time_of([this] { EXPECT_TRUE(test::run(*loop_)); });
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_GE(took, milliseconds(119));
}

TEST_F(EventLoopTest, RunsATimerOnceAndNotBeforeItsTime) {
  int runs = 0;
  milliseconds at{};
  const auto begun = std::chrono::steady_clock::now();
  const auto timer = loop_->after(milliseconds(30), [&] {
    ++runs;
    at = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begun);
  });
  stop_after(milliseconds(150));
  EXPECT_TRUE(test::run(*loop_));
  EXPECT_EQ(runs, 1);
  EXPECT_GE(at, milliseconds(29));
}

TEST_F(EventLoopTest, ForgetsASourceThatIsDestroyed) {
  int runs = 0;
  const test::Pipe pipe = test::make_pipe();
  ASSERT_EQ(::write(pipe.write_end.get(), "x", 1), 1);
  {
    const auto timer = loop_->after(milliseconds(0), [&] { ++runs; });
    const auto readable = loop_->on_readable(pipe.read_end.get(), [&] { ++runs; });
    ASSERT_TRUE(timer && readable);
  }
  stop_after(milliseconds(40));
  EXPECT_TRUE(test::run(*loop_));
  EXPECT_EQ(runs, 0);
}

TEST_F(EventLoopTest, ATimerMayReplaceItself) {
  int runs = 0;
  std::optional<EventLoop::Source> timer;
  std::function<void()> again = [&] {
    if (++runs == 5) return loop_->stop();
    timer = *loop_->after(milliseconds(1), again);
  };
  timer = *loop_->after(milliseconds(1), again);
  EXPECT_TRUE(test::run(*loop_));
  EXPECT_EQ(runs, 5);
}

TEST_F(EventLoopTest, ATimerMayEndItself) {
  std::optional<EventLoop::Source> timer;
  auto kept = std::make_shared<int>(3);
  int seen = 0;
  timer = *loop_->after(milliseconds(1), [this, &timer, &seen, kept] {
    timer.reset();
    seen = *kept;  // what the function holds is still there
    loop_->stop();
  });
  EXPECT_TRUE(test::run(*loop_));
  EXPECT_EQ(seen, 3);
  EXPECT_EQ(kept.use_count(), 1);
}

TEST_F(EventLoopTest, SeesWhatIsReadableUntilItIsRead) {
  const test::Pipe pipe = test::make_pipe();
  ASSERT_EQ(::write(pipe.write_end.get(), "abc", 3), 3);
  int runs = 0;
  const auto readable = loop_->on_readable(pipe.read_end.get(), [&] {
    char byte = 0;
    EXPECT_EQ(::read(pipe.read_end.get(), &byte, 1), 1);
    if (++runs == 3) loop_->stop();
  });
  ASSERT_TRUE(readable);
  EXPECT_TRUE(test::run(*loop_));
  EXPECT_EQ(runs, 3);
  EXPECT_TRUE(test::is_open(pipe.read_end.get()));
}

TEST_F(EventLoopTest, SeesSignals) {
  sigset_t wanted, before;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR1);
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &wanted, &before), 0);
  int seen = 0;
  {
    const auto source = loop_->on_signal(SIGUSR1, [&] {
      if (++seen == 2) return loop_->stop();
      ::raise(SIGUSR1);
    });
    ASSERT_TRUE(source) << source.error().describe();
    ::raise(SIGUSR1);
    EXPECT_TRUE(test::run(*loop_));
  }
  EXPECT_EQ(seen, 2);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(EventLoopTest, SaysWhatItCannotWatch) {
  const auto bad = loop_->on_readable(-1, [] {});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Code::kSystem);
  const auto unblocked = loop_->on_signal(SIGUSR2, [] {});
  ASSERT_FALSE(unblocked);
  EXPECT_NE(unblocked.error().number, 0);
}

TEST_F(EventLoopTest, ServesNoWatchdogWhereNoneIsAskedFor) {
  EXPECT_TRUE(loop_->feed_watchdog());
}

// A socket of the poll set whose peer has something to say.
class Talkative final : public PollSet::Member {
 public:
  explicit Talkative(std::function<void()> call) : call_(std::move(call)) {
    std::tie(ours, theirs) = test::socket_pair();
    EXPECT_EQ(::write(theirs.get(), "x", 1), 1);
  }
  void on_ready(std::uint32_t /*events*/) override { call_(); }
  UniqueFd ours, theirs;

 private:
  std::function<void()> call_;
};

TEST_F(EventLoopTest, ServesSocketsBetweenItsOwnSources) {
  PollSet sockets = *PollSet::create();
  int served = 0;
  bool timed = false;
  Talkative talker([&] { ++served; });
  ASSERT_TRUE(sockets.watch(1, talker.ours.get(), EPOLLIN, talker));
  const auto timer = loop_->after(milliseconds(20), [&] { timed = true; });
  stop_after(milliseconds(40));
  EXPECT_TRUE(loop_->run(sockets));
  EXPECT_GT(served, 10);
  EXPECT_TRUE(timed);
}

TEST_F(EventLoopTest, ATimerThatASocketSetsIsInTime) {
  PollSet sockets = *PollSet::create();
  Talkative talker([&] {
    sockets.remove(1, talker.ours.get());  // nothing more is ready: only the timer can wake it
    stop_after(milliseconds(30));
  });
  ASSERT_TRUE(sockets.watch(1, talker.ours.get(), EPOLLIN, talker));
  const auto late = loop_->after(std::chrono::seconds(20), [this] { loop_->stop(); });
  const auto took = test::time_of([&] { EXPECT_TRUE(loop_->run(sockets)); });
  EXPECT_GE(took, milliseconds(29));
  EXPECT_LT(took, std::chrono::seconds(10));
}

TEST_F(EventLoopTest, ASocketMayStopIt) {
  // In a child, so that a loop that goes on waiting is ended by a signal.
  const int code = test::run_in_child([] {
    ::alarm(5);
    const auto loop = *EventLoop::create();  // one of its own: sd-event knows the process it is of
    PollSet sockets = *PollSet::create();
    Talkative talker([&] {
      sockets.remove(1, talker.ours.get());
      loop->stop();
    });
    if (!sockets.watch(1, talker.ours.get(), EPOLLIN, talker)) return 1;
    return loop->run(sockets) ? 0 : 2;
  });
  EXPECT_EQ(code, 0) << "128 + SIGALRM: it waited on";
}

TEST(EventLoop, LeavesNoDescriptorBehind) {
  const std::size_t before = test::open_descriptors();
  {
    const auto loop = EventLoop::create();
    ASSERT_TRUE(loop);
    const auto timer = (*loop)->after(milliseconds(0), [&] { (*loop)->stop(); });
    EXPECT_TRUE(test::run(**loop));
  }
  EXPECT_EQ(test::open_descriptors(), before);
}

}  // namespace
}  // namespace carveout::daemon
