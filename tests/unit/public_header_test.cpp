// The C++ owners over the C ABI.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <carveout/carveout.hpp>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "unit/client_lender_fixture.hpp"

namespace {

using carveout::Carveout;
using carveout::Failure;
using carveout::Options;
using carveout::client::kGrant;
using carveout::test::Answer;
using testing::HasSubstr;

std::size_t mappings_now() {
  return carveout::test::holdings().mappings.size();
}

static_assert(std::is_nothrow_move_constructible_v<Carveout>);
static_assert(std::is_nothrow_move_assignable_v<Carveout>);
static_assert(!std::is_copy_constructible_v<Carveout>);
static_assert(std::is_nothrow_copy_constructible_v<Failure>);

Options of_memfd(std::uint64_t bytes = 4U << 20U) {
  Options options;
  options.source = CARVEOUT_SOURCE_MEMFD;
  options.map = CARVEOUT_MAP_HOST;
  options.bytes = bytes;
  return options;
}

TEST(PublicHeader, OwnsWhatItOpens) {
  const std::size_t mappings = mappings_now();
  {
    const Carveout memory = Carveout::open(of_memfd());
    EXPECT_TRUE(memory.is_open());
    EXPECT_EQ(memory.bytes(), 4U << 20U);
    EXPECT_EQ(memory.device_pointer(), 0U);
    EXPECT_NE(memory.host_pointer(), nullptr);
    EXPECT_STREQ(memory.info().source_name, "memfd");
    EXPECT_EQ(memory.watch_fd(), -1);
    EXPECT_FALSE(memory.is_lender_gone());
    EXPECT_EQ(mappings_now(), mappings + 1);
  }
  EXPECT_EQ(mappings_now(), mappings);
}

TEST(PublicHeader, MovesIt) {
  const std::size_t mappings = mappings_now();
  Carveout first = Carveout::open(of_memfd());
  void* const place = first.host_pointer();
  Carveout second = Carveout::open(of_memfd(2U << 20U));
  second = std::move(first);
  EXPECT_EQ(second.host_pointer(), place);
  EXPECT_EQ(mappings_now(), mappings + 1) << "what it had is given back";
  Carveout third(std::move(second));
  EXPECT_EQ(third.host_pointer(), place);
  EXPECT_EQ(third.bytes(), 4U << 20U);
  EXPECT_FALSE(first.is_open());   // NOLINT: moved from
  EXPECT_FALSE(second.is_open());  // NOLINT: moved from
  EXPECT_EQ(second.host_pointer(), nullptr);
  third.close();
  EXPECT_FALSE(third.is_open());
  EXPECT_EQ(third.host_pointer(), nullptr);
  EXPECT_EQ(mappings_now(), mappings);
  third.close();
}

TEST(PublicHeader, ThrowsWhatIsRefused) {
  try {
    (void)Carveout::open(of_memfd(0));
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), CARVEOUT_ERROR_INVALID);
    EXPECT_STREQ(failure.setting(), "CARVEOUT_MIB");
    EXPECT_EQ(failure.system_errno(), 0);
    EXPECT_THAT(failure.what(), HasSubstr("CARVEOUT_MIB: must be"));
  }
}

TEST(PublicHeader, IsOffUnlessTheEnvironmentSwitchesItOn) {
  ::unsetenv("CARVEOUT");
  EXPECT_FALSE(Carveout::open_from_environment());
  ::setenv("CARVEOUT", "1", 1);
  ::setenv("CARVEOUT_SOURCE", "memfd", 1);
  ::setenv("CARVEOUT_MAP", "host", 1);
  ::setenv("CARVEOUT_MIB", "3", 1);
  const auto memory = Carveout::open_from_environment();
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->bytes(), 4U << 20U);
  ::setenv("CARVEOUT_MIB", "x", 1);
  EXPECT_THROW((void)Carveout::open_from_environment(), Failure);
  ::unsetenv("CARVEOUT");
}

TEST(PublicHeader, LogsWhereverItHasBeenMovedTo) {
  std::vector<std::string> lines;
  Options options = of_memfd();
  options.log = [&](int, const char* line) {
    lines.emplace_back(line);
    throw std::runtime_error("is dropped");
  };
  Carveout memory = Carveout::open(options);
  EXPECT_FALSE(lines.empty());
  EXPECT_TRUE(Carveout(std::move(memory)).is_open());
}

TEST(PublicHeader, TellsWhenTheLenderIsGone) {
  const carveout::test::TemporaryDirectory directory;
  const carveout::UniqueFd memory = carveout::test::make_memory(4U << 20U);
  carveout::test::ScriptedLender lender(directory.path("lend.sock"),
                                        {Answer{{{kGrant, {memory.get()}}}}});
  Options options;
  options.map = CARVEOUT_MAP_HOST;
  options.bytes = 4U << 20U;
  options.key = "swordfish";
  options.socket_path = directory.path("lend.sock");
  Carveout lent = Carveout::open(options);
  EXPECT_GE(lent.watch_fd(), 0);
  EXPECT_FALSE(lent.is_lender_gone());
  lender.kill();
  EXPECT_TRUE(lent.is_lender_gone());
  lent.after_fork_in_child();  // as a child would
  EXPECT_EQ(lent.watch_fd(), -1);
}

// --- arenas ---

TEST(PublicHeader, PlacesAPlanOrSaysThatThereIsNoRoom) {
  carveout::Planes planes(4096, 1U << 20U);
  std::vector<carveout_plane_t> plan{{1000, 256, 0}, {1000, 256, 0}};
  const auto id = planes.try_place(plan);
  ASSERT_TRUE(id);
  EXPECT_EQ(plan[0].address, 4096U);
  EXPECT_EQ(plan[1].address, 4096U + 1024U);
  EXPECT_EQ(planes.statistics().in_use, 2024U);
  std::vector<carveout_plane_t> large{{1, 1, 7}, {1U << 20U, 1, 7}};
  EXPECT_FALSE(planes.try_place(large));
  EXPECT_EQ(large[0].address, 7U);
  try {
    (void)planes.place(large);
    ADD_FAILURE() << "it was placed";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), CARVEOUT_ERROR_EXHAUSTED);
    EXPECT_THAT(failure.what(), HasSubstr("plane 1"));
  }
  std::vector<carveout_plane_t> crooked{{1, 3, 0}};
  EXPECT_THROW((void)planes.try_place(crooked), Failure);
  EXPECT_TRUE(planes.give_back(*id));
  EXPECT_FALSE(planes.give_back(*id));
  EXPECT_NE(planes.place(plan), *id);
}

TEST(PublicHeader, TellsWhereABlockIsInEveryPlane) {
  carveout::Blocks blocks(4096 + 100, 10'000, 1000, 256);
  EXPECT_EQ(blocks.statistics().stride_bytes, 1024U);
  std::vector<std::uint32_t> taken;
  while (const auto block = blocks.take()) {
    EXPECT_EQ(block->address, blocks.address_of(block->index));
    EXPECT_EQ(block->address % 256, 0U);
    taken.push_back(block->index);
  }
  EXPECT_EQ(taken.size(), blocks.statistics().blocks);
  EXPECT_EQ(blocks.address_of(0), 4096U + 256U);
  EXPECT_TRUE(blocks.give_back(taken[0]));
  EXPECT_FALSE(blocks.give_back(taken[0]));
  EXPECT_TRUE(blocks.give_back_at(blocks.address_of(taken[1])));
  EXPECT_FALSE(blocks.give_back_at(blocks.address_of(taken[2]) + 1));
  EXPECT_THROW(carveout::Blocks(4096, 10, 100, 1), Failure);
}

// No memory_resource of ours is needed.
TEST(PublicHeader, IsMemoryForStdPmr) {
  const Carveout memory = Carveout::open(of_memfd());
  std::pmr::monotonic_buffer_resource carved(memory.host_pointer(), memory.bytes(),
                                             std::pmr::null_memory_resource());
  const std::pmr::vector<int> numbers({1, 2, 3}, &carved);
  const auto* const start = static_cast<const char*>(memory.host_pointer());
  const auto* const at = reinterpret_cast<const char*>(numbers.data());
  EXPECT_TRUE(at >= start && at < start + memory.bytes());
  EXPECT_THROW((void)carved.allocate(memory.bytes()), std::bad_alloc);
}

}  // namespace
