// Arms by turns, and one that ends.

#include "interleave.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace carveout::probe {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

// Notes whose turn it is, and gives a rate that rises by one each time.
ArmToRun arm_named(const std::string& name, std::string& turns, int& asked) {
  return {name,
          [name, &turns, &asked]() -> Result<double> {
            turns += name;
            return 100.0 + asked++;
          },
          2};
}

TEST(ProbeInterleave, TakesTheArmsByTurnsInAnOrderThatMirrorsItself) {
  std::string turns;
  int asked = 0;
  std::vector<std::pair<std::size_t, std::size_t>> told;
  const auto runs =
      run_interleaved({arm_named("A", turns, asked), arm_named("B", turns, asked)}, 3,
                      [&](std::size_t done, std::size_t all) { told.emplace_back(done, all); });
  EXPECT_EQ(turns, "AAABBBBBBAAAAAABBB");
  ASSERT_THAT(runs, SizeIs(2));
  EXPECT_EQ(runs[1].name, "B");
  EXPECT_THAT(runs[0].batches, SizeIs(3));
  // The first repetition is cold.
  EXPECT_EQ(runs[0].batches[0].cold, 100);
  EXPECT_EQ(runs[0].batches[0].median, 101.5);
  EXPECT_EQ(runs[1].batches[0].cold, 103);
  EXPECT_EQ(runs[1].batches[1].cold, 106) << "of block 1";
  EXPECT_EQ(runs[0].batches[1].cold, 109);
  EXPECT_THAT(told, ElementsAre(std::pair(1U, 6U), std::pair(2U, 6U), std::pair(3U, 6U),
                                std::pair(4U, 6U), std::pair(5U, 6U), std::pair(6U, 6U)));
}

TEST(ProbeInterleave, EndsAnArmWithItsReasonAndGoesOnWithTheRest) {
  std::string turns;
  int asked = 0, lent = 0, begun = 0;
  const ArmToRun dying{"lent",
                       [&]() -> Result<double> {
                         if (++lent > 7) return Error{Code::kClosed, 0, "the lender", "is gone"};
                         return 50.0;
                       },
                       2, [&] { ++begun; }};
  const auto runs = run_interleaved({dying, arm_named("A", turns, asked)}, 8);
  EXPECT_THAT(runs[0].batches, SizeIs(2)) << "whole ones only";
  ASSERT_TRUE(runs[0].ended);
  EXPECT_EQ(runs[0].ended->describe(), "the lender: is gone");
  EXPECT_EQ(lent, 8) << "it is not asked again";
  EXPECT_EQ(begun, 3) << "nor are its batches begun";
  EXPECT_THAT(runs[1].batches, SizeIs(8));
  EXPECT_FALSE(runs[1].ended);
}

TEST(ProbeInterleave, DoesNothingWithoutArmsOrBlocks) {
  EXPECT_THAT(run_interleaved({}, kLeastBlocks), SizeIs(0));
  std::string turns;
  int asked = 0;
  EXPECT_THAT(run_interleaved({arm_named("A", turns, asked)}, 0)[0].batches, SizeIs(0));
  EXPECT_EQ(asked, 0);
}

}  // namespace
}  // namespace carveout::probe
