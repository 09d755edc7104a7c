#include "deadline_queue.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "unit/helpers.hpp"
#include "unit/run_loop.hpp"

namespace carveout::daemon {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Pair = std::pair<std::uint64_t, std::uint64_t>;

constexpr milliseconds kDelay{30};

class DeadlineQueueTest : public testing::Test {
 protected:
  struct Seen {
    Pair pair;
    Clock::time_point at;
  };

  void at(milliseconds delay, std::function<void()> call) {
    timers_.push_back(*loop_->after(delay, std::move(call)));
  }
  void run_for(milliseconds time) {
    at(time, [this] { loop_->stop(); });
    ASSERT_TRUE(test::run(*loop_));
  }
  [[nodiscard]] std::vector<Pair> pairs() const {
    std::vector<Pair> all;
    for (const Seen& seen : seen_)
      all.push_back(seen.pair);
    return all;
  }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::create();
  std::vector<EventLoop::Source> timers_;
  std::vector<Seen> seen_;
  std::function<void()> when_due_;
  DeadlineQueue queue_{*loop_, kDelay, [this](std::uint64_t id, std::uint64_t ticket) {
                         seen_.push_back({{id, ticket}, Clock::now()});
                         if (when_due_) when_due_();
                       }};
};

TEST_F(DeadlineQueueTest, IsDueInTheOrderSetAndNotBeforeTheTime) {
  const auto begun = Clock::now();
  queue_.set(7, 70);
  queue_.set(3, 30);
  queue_.set(7, 71);
  run_for(milliseconds(150));
  EXPECT_EQ(pairs(), (std::vector<Pair>{{7, 70}, {3, 30}, {7, 71}}));
  for (const Seen& seen : seen_)
    EXPECT_GE(seen.at - begun, kDelay);
}

TEST_F(DeadlineQueueTest, CountsEachFromItsOwnBeginning) {
  queue_.set(1, 0);
  Clock::time_point second_set;
  at(milliseconds(20), [&] {
    second_set = Clock::now();
    queue_.set(2, 0);
  });
  run_for(milliseconds(150));
  ASSERT_EQ(pairs(), (std::vector<Pair>{{1, 0}, {2, 0}}));
  EXPECT_GE(seen_[1].at - second_set, kDelay);
}

TEST_F(DeadlineQueueTest, BeginsAgainWhenItWasEmpty) {
  queue_.set(1, 0);
  at(milliseconds(90), [&] { queue_.set(2, 0); });
  run_for(milliseconds(220));
  EXPECT_EQ(pairs(), (std::vector<Pair>{{1, 0}, {2, 0}}));
}

TEST_F(DeadlineQueueTest, MayBeSetWhileOneIsDue) {
  when_due_ = [this] {
    if (seen_.size() < 4) queue_.set(10 + seen_.size(), 0);
  };
  queue_.set(1, 0);
  run_for(milliseconds(400));
  EXPECT_EQ(pairs(), (std::vector<Pair>{{1, 0}, {11, 0}, {12, 0}, {13, 0}}));
}

TEST_F(DeadlineQueueTest, ServesMany) {
  for (std::uint64_t i = 0; i < 5'000; ++i)
    queue_.set(i, i);
  run_for(milliseconds(200));
  ASSERT_EQ(seen_.size(), 5'000U);
  EXPECT_EQ(seen_.back().pair, (Pair{4'999, 4'999}));
}

TEST_F(DeadlineQueueTest, CallsNobodyWhenItIsGone) {
  {
    DeadlineQueue gone(*loop_, milliseconds(5),
                       [this](std::uint64_t, std::uint64_t) { seen_.push_back({}); });
    gone.set(1, 1);
  }
  run_for(milliseconds(60));
  EXPECT_TRUE(seen_.empty());
}

}  // namespace
}  // namespace carveout::daemon
