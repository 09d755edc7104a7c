#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

#include "unit/helpers.hpp"

namespace carveout {
namespace {

UniqueFd open_something() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

TEST(UniqueFd, HoldsNothingAtFirst) {
  const UniqueFd none;
  EXPECT_FALSE(none);
  EXPECT_LT(none.get(), 0);
}

TEST(UniqueFd, ClosesWhenItGoes) {
  int number = -1;
  {
    const UniqueFd file = open_something();
    ASSERT_TRUE(file);
    number = file.get();
    EXPECT_TRUE(test::is_open(number));
  }
  EXPECT_FALSE(test::is_open(number));
}

TEST(UniqueFd, OwnsDescriptorZero) {
  UniqueFd zero(0);
  EXPECT_TRUE(zero);
  EXPECT_EQ(zero.release(), 0);  // not ours to close
}

TEST(UniqueFd, MovesItsDescriptor) {
  UniqueFd from = open_something();
  const int number = from.get();
  UniqueFd to(std::move(from));
  EXPECT_FALSE(from);  // NOLINT(bugprone-use-after-move): what it promises
  EXPECT_EQ(to.get(), number);
  EXPECT_TRUE(test::is_open(number));
}

TEST(UniqueFd, ClosesWhatItHeldWhenItIsAssigned) {
  UniqueFd held = open_something();
  const int before = held.get();
  UniqueFd other = open_something();
  const int number = other.get();
  held = std::move(other);
  EXPECT_EQ(held.get(), number);
  EXPECT_FALSE(test::is_open(before));
  EXPECT_TRUE(test::is_open(number));
}

TEST(UniqueFd, SurvivesBeingMovedToItself) {
  UniqueFd file = open_something();
  const int number = file.get();
  UniqueFd& same = file;
  file = std::move(same);
  EXPECT_EQ(file.get(), number);
  EXPECT_TRUE(test::is_open(number));
}

TEST(UniqueFd, GivesItsDescriptorAway) {
  UniqueFd file = open_something();
  const int number = file.release();
  EXPECT_FALSE(file);
  ASSERT_TRUE(test::is_open(number));
  const UniqueFd again(number);
}

TEST(UniqueFd, ClosesOnlyOnce) {
  UniqueFd file = open_something();
  const int number = file.get();
  file.reset();
  EXPECT_FALSE(file);
  // The number now belongs to somebody else, whose file a second reset() must leave alone.
  const UniqueFd stranger = open_something();
  ASSERT_EQ(stranger.get(), number);
  file.reset();
  EXPECT_TRUE(test::is_open(number));
}

static_assert(!std::is_copy_constructible_v<UniqueFd>);
static_assert(!std::is_copy_assignable_v<UniqueFd>);
static_assert(std::is_nothrow_move_constructible_v<UniqueFd>);
static_assert(!std::is_convertible_v<int, UniqueFd>);
static_assert(!std::is_convertible_v<UniqueFd, int>);

}  // namespace
}  // namespace carveout
