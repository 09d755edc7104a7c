// The C++ owners over the C ABI.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <carveout/carveout.hpp>
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

}  // namespace
