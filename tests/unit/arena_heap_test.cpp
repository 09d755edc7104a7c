// Every allocation of an arena made to fail in turn: it is as it was, and loses nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <iterator>
#include <map>
#include <new>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "arena/best_fit.hpp"
#include "arena/blocks.hpp"
#include "arena/planes.hpp"
#include "carveout/carveout.h"
#include "unit/failing_heap.hpp"

namespace carveout::arena {
namespace {

using test::had_enough;

// How many allocations it needs; `after_failure` is called for each number that was too few.
long needs(const std::function<void()>& body, const std::function<void()>& after_failure) {
  for (long enough = 0; enough < 1000; ++enough) {
    bool threw = false;
    const bool had = had_enough(enough, [&] {
      try {
        body();
      } catch (const std::bad_alloc&) {
        threw = true;
      }
    });
    EXPECT_EQ(had, !threw) << "what fails is told";
    if (had) return enough;
    after_failure();
  }
  ADD_FAILURE() << "there is no end";
  return -1;
}

auto all_of(const BestFit::Statistics& now) {
  return std::tuple(now.region, now.in_use, now.peak, now.largest, now.pieces, now.taken,
                    now.not_had, now.refused);
}

auto all_of(const Planes::Statistics& now) {
  return std::tuple(now.region, now.in_use, now.peak, now.padding, now.holes, now.free, now.plans,
                    now.placed, now.not_placed);
}

TEST(ArenaHeap, ATakeThatFailsChangesNothing) {
  BestFit arena(0, kib(64));
  auto before = all_of(arena.statistics());
  std::optional<Bytes> piece;
  const long needed = needs([&] { piece = arena.take(kib(1)); },
                            [&] {
                              EXPECT_EQ(all_of(arena.statistics()), before);
                              EXPECT_FALSE(arena.give_back(Bytes(0))) << "it is not taken";
                              before = all_of(arena.statistics());  // that was counted
                            });
  EXPECT_GT(needed, 0) << "nothing has failed";
  ASSERT_EQ(piece, Bytes(0));
  EXPECT_EQ(arena.statistics().largest, kib(63));
}

TEST(ArenaHeap, NothingIsNeededToGiveBackAndToTakeAWholeHole) {
  BestFit arena(0, kib(4));
  std::vector<Bytes> pieces;
  while (const auto piece = arena.take(kib(1)))
    pieces.push_back(*piece);
  ASSERT_EQ(pieces.size(), 4U);
  EXPECT_TRUE(had_enough(0, [&] {
    (void)arena.give_back(pieces[1]);  // between two that are taken
    (void)arena.take(kib(1));
    for (const std::size_t i : {0U, 2U, 1U, 3U})  // alone, alone, between holes, behind one
      (void)arena.give_back(pieces[i]);
    (void)arena.give_back(pieces[0]);
    (void)arena.take(kib(4));
    (void)arena.give_back(pieces[0]);
  }));
  const BestFit::Statistics counted = arena.statistics();
  EXPECT_EQ(counted.largest, kib(4));
  EXPECT_EQ(counted.taken, 6U);
  EXPECT_EQ(counted.refused, 1U);
  EXPECT_EQ(counted.in_use, Bytes(0));
}

// With allocations failing at random, all of the region comes back all the same.
TEST(ArenaHeap, BestFitLosesNothing) {
  std::mt19937 random(20261130);
  BestFit arena(0, mib(1));
  std::map<Bytes, Bytes> kept;
  int failed = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    if (random() % 2 == 0) {
      const Bytes size(512 * (1 + random() % 100));
      const auto before = all_of(arena.statistics());
      std::optional<Bytes> piece;
      bool threw = false;
      (void)had_enough(static_cast<long>(random() % 4), [&] {
        try {
          piece = arena.take(size);
        } catch (const std::bad_alloc&) {
          threw = true;
        }
      });
      if (threw) {
        ++failed;
        ASSERT_EQ(all_of(arena.statistics()), before);
      }
      if (piece) kept[*piece] = size;
    } else if (!kept.empty()) {
      const auto which = std::next(kept.begin(), static_cast<long>(random() % kept.size()));
      bool given_back = false;
      ASSERT_TRUE(had_enough(0, [&] { given_back = arena.give_back(which->first); }));
      ASSERT_TRUE(given_back);
      kept.erase(which);
    }
  }
  EXPECT_GT(failed, 1000);
  for (const auto& [piece, size] : kept)
    EXPECT_TRUE(arena.give_back(piece));
  EXPECT_EQ(arena.statistics().largest, mib(1));
}

TEST(ArenaHeap, APlanThatFailsIsNotPlacedInPart) {
  Planes arena(0, mib(10));
  const std::vector<Plane> plan(3, Plane{mib(1)});
  const auto before = all_of(arena.statistics());
  std::vector<Bytes> offsets(3, Bytes(77));
  Planes::PlanId id = 0;
  const long needed = needs(
      [&] {
        const auto placed = arena.place(plan, offsets);
        if (placed) id = *placed;
      },
      [&] {
        EXPECT_EQ(all_of(arena.statistics()), before);
        EXPECT_THAT(offsets, testing::Each(Bytes(77)));
        EXPECT_FALSE(arena.give_back(Planes::PlanId{1} << 32U));
      });
  EXPECT_GT(needed, 0) << "nothing has failed";
  EXPECT_THAT(offsets, testing::ElementsAre(Bytes(0), mib(1), mib(2)));
  EXPECT_TRUE(had_enough(0, [&] { (void)arena.give_back(id); })) << "giving back needs none";
  EXPECT_EQ(arena.statistics().free, mib(10));
}

TEST(ArenaHeap, ARefusalWithoutWordsChangesNothing) {
  Planes arena(0, mib(1));
  const auto before = all_of(arena.statistics());
  const std::vector<Plane> plan(2, Plane{mib(1)});
  std::vector<Bytes> offsets(2, Bytes(77));
  const auto is_as_it_was = [&] {
    EXPECT_EQ(all_of(arena.statistics()), before);
    EXPECT_THAT(offsets, testing::Each(Bytes(77)));
  };
  EXPECT_GT(needs([&] { EXPECT_FALSE(arena.place(plan, offsets)); }, is_as_it_was), 0);
  EXPECT_EQ(arena.statistics().not_placed, 1U) << "counted once, when it was told";
}

TEST(ArenaHeap, PassesTheWallAsAnAnswer) {
  carveout_error_t error;
  error.struct_size = sizeof error;
  carveout_planes_t* planes = nullptr;
  carveout_blocks_t* blocks = nullptr;
  carveout_plane_t plane{1, 1, 77};
  std::uint64_t id = 77;
  carveout_status_t status = CARVEOUT_OK;
  EXPECT_FALSE(
      had_enough(0, [&] { status = carveout_planes_create(4096, 4096, &planes, &error); }));
  EXPECT_EQ(status, CARVEOUT_ERROR_OUT_OF_HEAP);
  EXPECT_EQ(planes, nullptr);
  for (long enough = 0; enough < 3; ++enough) {
    EXPECT_FALSE(had_enough(
        enough, [&] { status = carveout_blocks_create(4096, 4096, 64, 64, &blocks, &error); }));
    EXPECT_EQ(status, CARVEOUT_ERROR_OUT_OF_HEAP);
    EXPECT_EQ(blocks, nullptr);
  }
  ASSERT_EQ(carveout_planes_create(4096, 4096, &planes, &error), CARVEOUT_OK);
  EXPECT_FALSE(
      had_enough(0, [&] { status = carveout_planes_place(planes, &plane, 1, &id, &error); }));
  EXPECT_EQ(status, CARVEOUT_ERROR_OUT_OF_HEAP);
  EXPECT_STREQ(error.message, "this process has no memory left");
  EXPECT_EQ(plane.address, 77U);
  EXPECT_EQ(id, 77U);
  carveout_planes_destroy(planes);
}

// One fewer than what is refused for its number is asked for, and the heap has no such thing.
TEST(ArenaHeap, BlocksAreCountedToTheLast) {
  const std::uint64_t too_many = (std::uint64_t{1} << 32U) - 2;
  EXPECT_FALSE(Blocks::divide(0, Bytes(too_many), Bytes(1), Bytes(1)));
  EXPECT_THROW((void)Blocks::divide(0, Bytes(too_many - 1), Bytes(1), Bytes(1)), std::bad_alloc);
}

}  // namespace
}  // namespace carveout::arena
