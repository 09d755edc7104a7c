// The hold on memory that has to lie together: what it claims, grants and gets back.

#include "hold.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "unit/contiguous_source.hpp"

namespace carveout::daemon {
namespace {

using test::ContiguousPool;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;

auto given(std::uint64_t slices) {
  return AllOf(Field(&ContiguousPool::Ask::slices, slices),
               Field(&ContiguousPool::Ask::given, true));
}

auto refused(std::uint64_t slices) {
  return AllOf(Field(&ContiguousPool::Ask::slices, slices),
               Field(&ContiguousPool::Ask::given, false));
}

// A hold on a pool of its own.
struct Place {
  explicit Place(std::uint64_t slices) : Place(slices, slices) {}
  Place(std::uint64_t slices, std::uint64_t wanted)
      : pool(slices), hold(pool.source(), Slices(wanted).bytes()) {}

  // As a grant does it: what is left open is the borrower's.
  [[nodiscard]] UniqueFd lend(std::uint64_t slices) {
    auto buffer = hold.allocate(Slices(slices).bytes());
    EXPECT_TRUE(buffer) << slices;
    if (!buffer) return {};
    auto shared = hold.share(*buffer);
    return shared ? *std::move(shared) : UniqueFd();
  }
  [[nodiscard]] bool refuses(std::uint64_t slices) {
    return !hold.allocate(Slices(slices).bytes()).has_value();
  }
  // As at the start.
  void claim() {
    hold.fill();
    hold.join();
  }
  // As after a release, and somewhat later.
  void give_back(std::uint64_t slices) {
    hold.give_back(Slices(slices).bytes());
    claim();
  }
  void expect(std::uint64_t held, std::uint64_t largest, std::uint64_t missing) const {
    EXPECT_EQ(hold.held(), Slices(held).bytes());
    EXPECT_EQ(hold.largest(), Slices(largest).bytes());
    EXPECT_EQ(hold.missing(), Slices(missing).bytes());
    EXPECT_EQ(hold.figures().largest, hold.largest());
    EXPECT_EQ(hold.figures().missing, hold.missing());
  }

  ContiguousPool pool;
  Hold hold;
};

// A stranger has slice 4: runs of 4 and 11.
struct TwoRuns : Place {
  TwoRuns() : Place(16, 15) {
    pool.take(4, 1);
    claim();
    (void)pool.take_asks();
  }
};

TEST(Hold, ClaimsAllOfItInOnePiece) {
  Place place(16);
  place.expect(0, 0, 16);
  place.claim();
  place.expect(16, 16, 0);
  EXPECT_THAT(place.pool.take_asks(), ElementsAre(given(16)));
  EXPECT_EQ(place.pool.free(), 0U);
  EXPECT_FALSE(place.hold.refusal());
}

TEST(Hold, HoldsNoMoreThanItWants) {
  Place place(20, 16);
  place.claim();
  place.expect(16, 16, 0);
  place.claim();
  place.hold.retry();
  EXPECT_THAT(place.pool.take_asks(), ElementsAre(given(16)));
}

TEST(Hold, MeasuresWhatThereIsAndJoinsIt) {
  Place place(510, 512);
  place.claim();
  place.expect(510, 510, 2);
  EXPECT_TRUE(place.hold.refusal());
  EXPECT_LE(place.pool.calls, 30U);
  EXPECT_LE(place.pool.zeroed, 2 * 510U);
  EXPECT_EQ(place.pool.peak, 510U);
}

TEST(Hold, MeasuresEverySizeExactly) {
  for (std::uint64_t slices = 1; slices <= 64; ++slices) {
    Place place(slices, 64);
    place.claim();
    place.expect(slices, slices, 64 - slices);
  }
}

TEST(Hold, FindsNothingWhereNothingIs) {
  Place place(8);
  place.pool.take(0, 8);
  place.claim();
  place.expect(0, 0, 8);
  EXPECT_THAT(place.pool.take_asks(), ElementsAre(refused(8), refused(4), refused(2), refused(1)));
  ASSERT_TRUE(place.hold.refusal());
  EXPECT_EQ(place.hold.refusal()->code, Code::kExhausted);
}

TEST(Hold, TakesEverySliceBetweenStrangers) {
  Place place(16);
  place.pool.take(5, 1);
  place.pool.take(11, 1);
  place.claim();
  EXPECT_EQ(place.hold.held(), Slices(14).bytes());
  EXPECT_EQ(place.hold.missing(), Slices(2).bytes());
  EXPECT_EQ(place.pool.free(), 0U);
  EXPECT_GE(place.hold.largest(), Slices(3).bytes()) << "more than half of a run of five";
  EXPECT_LE(place.hold.largest(), Slices(5).bytes());
}

TEST(Hold, LendsWhatIsCertainWhateverElseIsHeld) {
  TwoRuns place;
  place.expect(15, 7, 0);
  const UniqueFd seven = place.lend(7);
  EXPECT_THAT(place.pool.take_asks(), ElementsAre(given(7)));
  EXPECT_EQ(place.hold.held(), Slices(8).bytes());
  EXPECT_EQ(place.hold.missing(), Bytes(0));
}

TEST(Hold, DropsTheSmallestPieceThatFitsAndTakesTheRestBack) {
  TwoRuns place;  // 7, 3, 3, 1, 1
  const UniqueFd two = place.lend(2);
  EXPECT_THAT(place.pool.take_asks(), ElementsAre(given(2), given(1)));
  place.expect(13, 7, 0);
}

TEST(Hold, DropsAllForWhatNoPieceHolds) {
  TwoRuns place;
  const UniqueFd eleven = place.lend(11);
  EXPECT_EQ(place.pool.place_of(eleven.get()), 5U);
  EXPECT_THAT(place.pool.take_asks(), ElementsAre(given(11), given(4)));
  place.expect(4, 4, 0);
}

TEST(Hold, LendsAllOfIt) {
  Place place(16);
  place.claim();
  UniqueFd all = place.lend(16);
  place.expect(0, 0, 0);
  EXPECT_TRUE(place.refuses(1));
  place.expect(0, 0, 0);
  all.reset();
  place.give_back(16);
  place.expect(16, 16, 0);
}

TEST(Hold, HoldsEverythingAgainAfterARefusal) {
  TwoRuns place;
  EXPECT_TRUE(place.refuses(12));
  place.expect(15, 7, 0);
  EXPECT_EQ(place.pool.free(), 0U);
  ASSERT_TRUE(place.hold.refusal());
  EXPECT_EQ(place.hold.refusal()->code, Code::kExhausted);
  EXPECT_LE(place.pool.take_asks().size(), 40U);
}

TEST(Hold, DropsAllWhenThePieceThatFitsIsNotEnough) {
  TwoRuns place;  // 7, 3, 3, 1, 1
  bool first = true;
  place.pool.on_allocate = [&] {
    place.pool.allocate_error.reset();
    // As a kernel that aligns, or counts the allocation's own needs.
    if (std::exchange(first, false)) place.pool.allocate_error = Error{Code::kExhausted, 0, "", ""};
  };
  const UniqueFd three = place.lend(3);
  EXPECT_EQ(place.pool.place_of(three.get()), 0U);
  EXPECT_EQ(place.hold.held(), Slices(12).bytes());
  EXPECT_EQ(place.hold.missing(), Bytes(0));
  EXPECT_EQ(place.pool.free(), 0U);
}

TEST(Hold, HoldsItsOnlyPieceAgainAfterARefusalOfTheMoment) {
  Place place(16);
  place.claim();
  bool first = true;
  place.pool.on_allocate = [&] {
    place.pool.allocate_error.reset();
    if (std::exchange(first, false)) place.pool.allocate_error = Error{Code::kExhausted, 0, "", ""};
  };
  EXPECT_TRUE(place.refuses(5));
  place.expect(16, 16, 0);
}

TEST(Hold, TakesNothingForAGrantThatFailsBehindIt) {
  Place place(16);
  place.claim();
  place.pool.allocate_error = Error{Code::kSystem, 5, "card", "gone"};
  EXPECT_TRUE(place.refuses(4));
  place.expect(0, 0, 16);
  EXPECT_EQ(place.hold.refusal()->code, Code::kSystem);
  place.pool.allocate_error.reset();
  place.hold.retry();
  place.expect(16, 16, 0);
}

TEST(Hold, MissesExactlyWhatABorrowerKeeps) {
  Place place(16);
  place.claim();
  UniqueFd kept = place.lend(6);
  UniqueFd other = place.lend(3);
  other.reset();
  place.give_back(3);
  place.give_back(6);
  place.expect(10, 10, 6);
  kept.reset();
  place.hold.retry();
  place.expect(16, 10, 0);
  place.hold.join();
  place.expect(16, 16, 0);
}

TEST(Hold, MissesWhatIsKeptByAnyDescriptor) {
  Place place(16);
  place.claim();
  UniqueFd first = place.lend(6);
  UniqueFd second(::fcntl(first.get(), F_DUPFD_CLOEXEC, 0));
  first.reset();
  place.give_back(6);
  place.expect(10, 10, 6);
  second.reset();
  place.hold.retry();
  place.hold.join();
  place.expect(16, 16, 0);
}

TEST(Hold, JoinsWhatHasComeBackOnlyOnce) {
  Place place(16);
  place.claim();
  EXPECT_TRUE(place.hold.figures().joined);
  UniqueFd six = place.lend(6);
  UniqueFd two = place.lend(2);
  EXPECT_TRUE(place.hold.figures().joined);
  six.reset();
  place.hold.give_back(Slices(6).bytes());
  place.hold.fill();
  place.expect(14, 8, 0);
  EXPECT_FALSE(place.hold.figures().joined);
  place.hold.join();
  EXPECT_EQ(place.hold.held(), Slices(14).bytes());
  EXPECT_TRUE(place.hold.figures().joined) << "it cannot be one: two are lent between";
  (void)place.pool.take_asks();
  place.hold.join();
  EXPECT_THAT(place.pool.take_asks(), IsEmpty());
  two.reset();
  place.hold.give_back(Slices(2).bytes());
  place.hold.fill();
  EXPECT_FALSE(place.hold.figures().joined);
  place.hold.join();
  place.expect(16, 16, 0);
}

TEST(Hold, RetryAsksForOneSliceWhileNothingHasComeBack) {
  Place place(16);
  place.claim();
  UniqueFd kept = place.lend(6);
  place.give_back(6);
  (void)place.pool.take_asks();
  const std::uint64_t zeroed = place.pool.zeroed;
  for (int second = 0; second < 10; ++second)
    place.hold.retry();
  EXPECT_THAT(place.pool.take_asks(), AllOf(SizeIs(10), Each(refused(1))));
  EXPECT_EQ(place.pool.zeroed, zeroed);
  kept.reset();
  place.hold.retry();
  EXPECT_THAT(place.pool.take_asks(), ElementsAre(given(1), given(6)));
  place.hold.retry();
  EXPECT_THAT(place.pool.take_asks(), IsEmpty()) << "nothing is missing";
}

TEST(Hold, AGrantTakesBackWhatHasComeBackMeanwhile) {
  Place place(16);
  place.claim();
  UniqueFd kept = place.lend(6);
  place.give_back(6);
  place.expect(10, 10, 6);
  kept.reset();
  const UniqueFd two = place.lend(2);
  place.hold.join();
  place.expect(14, 14, 0);
}

TEST(Hold, CountsWhatIsLentWhenItStarts) {
  ContiguousPool pool(16);
  UniqueFd borrowed;
  {
    Hold before(pool.source(), Slices(16).bytes());
    before.fill();
    auto buffer = before.allocate(Slices(5).bytes());
    ASSERT_TRUE(buffer);
    borrowed = *before.share(*buffer);
  }
  EXPECT_EQ(pool.free(), 11U) << "what is held goes with the daemon";
  Hold after(pool.source(), Slices(16).bytes());
  after.count_lent(Slices(5).bytes());
  after.fill();
  EXPECT_EQ(after.held(), Slices(11).bytes());
  EXPECT_EQ(after.missing(), Bytes(0));
  borrowed.reset();
  after.give_back(Slices(5).bytes());
  after.fill();
  after.join();
  EXPECT_EQ(after.largest(), Slices(16).bytes());
}

TEST(Hold, HoldsNothingWhileMoreIsLentThanThereShouldBe) {
  ContiguousPool pool(16);
  Hold hold(pool.source(), Slices(4).bytes());
  hold.count_lent(Slices(10).bytes());
  hold.fill();
  hold.retry();
  EXPECT_THAT(pool.take_asks(), IsEmpty());
  EXPECT_EQ(hold.missing(), Bytes(0));
  hold.give_back(Slices(8).bytes());
  EXPECT_EQ(hold.missing(), Slices(2).bytes());
  hold.fill();
  EXPECT_EQ(hold.held(), Slices(2).bytes());
}

TEST(Hold, LendsWhatItDoesNotYetKnowToBeBack) {
  Place place(16);
  place.claim();
  UniqueFd six = place.lend(6);
  six.reset();
  const UniqueFd all = place.lend(16);
  place.expect(0, 0, 0);
  place.give_back(6);
  place.expect(0, 0, 0);
}

TEST(Hold, IsToldMoreThanItLent) {
  Place place(16);
  place.claim();
  UniqueFd one = place.lend(1);
  one.reset();
  place.give_back(9);
  place.expect(16, 16, 0);
}

TEST(Hold, WantsLess) {
  Place place(12, 16);
  place.claim();
  place.expect(12, 12, 4);
  place.hold.want(Slices(12).bytes());
  place.expect(12, 12, 0);
  const UniqueFd five = place.lend(5);
  place.expect(7, 7, 0);
}

TEST(Hold, ForTheRestIsItsSource) {
  Place place(4);
  EXPECT_EQ(place.hold.describe().name, "contiguous");
  EXPECT_EQ(place.hold.describe().kind, DescriptorKind::kDmaBuf);
  auto buffer = place.hold.allocate(kSliceBytes);
  ASSERT_TRUE(buffer);
  EXPECT_TRUE(place.hold.scrub(*buffer));
  place.pool.share_error = Error{Code::kSystem, 24, "share", "no"};
  EXPECT_EQ(place.hold.share(*buffer).error().number, 24);
  place.pool.warning = "slow";
  EXPECT_EQ(place.hold.take_warning(), "slow");
  EXPECT_EQ(place.hold.take_warning(), std::nullopt);
}

}  // namespace
}  // namespace carveout::daemon
