#include "idle_order.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace carveout::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class IdleOrderTest : public testing::Test {
 protected:
  IdleOrder order_;
  const IdleOrder::Clock::time_point start_ = IdleOrder::Clock::now();
};

TEST_F(IdleOrderTest, NobodyGoesWhereNobodyIs) {
  EXPECT_FALSE(order_.first_to_go(milliseconds(0), start_));
}

TEST_F(IdleOrderTest, TheOldestStrangerGoesFirstAndAtOnce) {
  auto one = order_.add(1, start_);
  auto two = order_.add(2, start_);
  EXPECT_EQ(order_.first_to_go(seconds(1), start_), 1U);
  EXPECT_EQ(order_.oldest_stranger()->id, 1U);
  order_.remove(one);
  EXPECT_EQ(order_.first_to_go(seconds(1), start_), 2U);
  order_.remove(two);
  EXPECT_FALSE(order_.first_to_go(seconds(1), start_ + seconds(9)));
  EXPECT_FALSE(order_.oldest_stranger());
}

TEST_F(IdleOrderTest, NoGuestGoesThatSpokeJustNow) {
  auto one = order_.add(1, start_);
  order_.touch(one, start_);
  EXPECT_FALSE(order_.first_to_go(seconds(1), start_ + milliseconds(999)));
  EXPECT_EQ(order_.first_to_go(seconds(1), start_ + seconds(1)), 1U);
  order_.touch(one, start_ + seconds(1));
  EXPECT_FALSE(order_.first_to_go(seconds(1), start_ + milliseconds(1999)));
  EXPECT_EQ(order_.first_to_go(seconds(1), start_ + seconds(2)), 1U);
}

TEST_F(IdleOrderTest, StrangersGoBeforeGuests) {
  auto guest = order_.add(1, start_);
  order_.touch(guest, start_);
  auto stranger = order_.add(2, start_ + seconds(5));
  EXPECT_EQ(order_.first_to_go(seconds(1), start_ + seconds(9)), 2U);
  EXPECT_EQ(order_.oldest_stranger()->since, start_ + seconds(5));
  order_.remove(stranger);
  EXPECT_EQ(order_.first_to_go(seconds(1), start_ + seconds(9)), 1U);
}

TEST_F(IdleOrderTest, SpeakingPutsAGuestLast) {
  auto one = order_.add(1, start_);
  auto two = order_.add(2, start_);
  order_.touch(one, start_ + seconds(1));
  order_.touch(two, start_ + seconds(2));
  order_.touch(one, start_ + seconds(3));
  EXPECT_EQ(order_.first_to_go(seconds(1), start_ + seconds(9)), 2U);
}

TEST_F(IdleOrderTest, WhoIsRemovedStaysRemoved) {
  auto one = order_.add(1, start_);
  order_.remove(one);
  order_.remove(one);
  order_.touch(one, start_);
  EXPECT_FALSE(order_.first_to_go(milliseconds(0), start_ + seconds(9)));
}

}  // namespace
}  // namespace carveout::daemon
