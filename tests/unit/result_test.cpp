#include "base/result.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <type_traits>

namespace carveout {
namespace {

TEST(Error, DescribesTheContextTheMessageAndTheErrno) {
  EXPECT_EQ((Error{Code::kSystem, ENOENT, "key file", "cannot be opened"}).describe(),
            "key file: cannot be opened (No such file or directory)");
}

TEST(Error, LeavesOutThePartsThatThereAreNot) {
  EXPECT_EQ((Error{Code::kInvalid, 0, "key", "is empty"}).describe(), "key: is empty");
  EXPECT_EQ((Error{Code::kInvalid, 0, "", "is empty"}).describe(), "is empty");
  EXPECT_EQ((Error{Code::kInvalid, 0, "key", ""}).describe(), "key");
  EXPECT_EQ(Error{}.describe(), "");
}

TEST(Error, OfASystemCallKeepsItsErrno) {
  const Error error = system_error(EMFILE, "eventfd", "cannot be made");
  EXPECT_EQ(error.code, Code::kSystem);
  EXPECT_EQ(error.number, EMFILE);
  EXPECT_EQ(error.context, "eventfd");
  EXPECT_EQ(error.message, "cannot be made");
}

TEST(Result, HoldsAValue) {
  const Result<std::string> result = std::string("good");
  ASSERT_TRUE(result);
  EXPECT_TRUE(result.has_value());
  EXPECT_EQ(*result, "good");
  EXPECT_EQ(result.value(), "good");
  EXPECT_EQ(result->size(), 4U);
}

TEST(Result, HoldsAnError) {
  const Result<std::string> result = Error{Code::kTimedOut, 0, "lender", "silent"};
  ASSERT_FALSE(result);
  EXPECT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::kTimedOut);
}

TEST(Result, TellsAValueFromAnErrorEvenWhenTheValueIsAnError) {
  struct Wrapped {
    Error error;
  };
  const Result<Wrapped> result = Wrapped{Error{Code::kClosed, 0, "", ""}};
  EXPECT_TRUE(result);
}

TEST(Result, CarriesWhatCanOnlyBeMoved) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  ASSERT_TRUE(result);
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

TEST(Result, GivesItsErrorAway) {
  Result<int> result = Error{Code::kInvalid, 0, "context", "message"};
  const Error taken = std::move(result).error();
  EXPECT_EQ(taken.context, "context");
  EXPECT_EQ(taken.message, "message");
}

TEST(Result, CanBeChanged) {
  Result<int> result = 1;
  *result = 2;
  EXPECT_EQ(result.value(), 2);
  result = Error{Code::kClosed, 0, "", ""};
  EXPECT_FALSE(result);
}

TEST(ResultOfNothing, IsGoodUnlessItHoldsAnError) {
  const Result<void> good;
  EXPECT_TRUE(good);
  const Result<void> bad = Error{Code::kRefused, 0, "lender", "no"};
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Code::kRefused);
}

// `if (Result r = ...)` is wanted; an int out of a Result by accident is not.
static_assert(!std::is_convertible_v<Result<int>, bool>);
static_assert(!std::is_convertible_v<Result<int>, int>);
static_assert(!std::is_convertible_v<Result<void>, bool>);

}  // namespace
}  // namespace carveout
