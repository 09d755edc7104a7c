// The C ABI's pages, with the fake driver: what they are, and who keeps the lease.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <carveout/carveout.hpp>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "unit/c_api_driver_fixture.hpp"
#include "unit/client_lender_fixture.hpp"

namespace carveout::client {
namespace {

using test::Answer;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

class CApiPages : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* row : {"CARVEOUT", "CARVEOUT_SOURCE", "CARVEOUT_MIB", "CARVEOUT_MAP"})
      ::unsetenv(row);
    std::memset(&error_, 0x55, sizeof error_);
    error_.struct_size = sizeof error_;
    ASSERT_EQ(carveout_options_init(&options_, sizeof options_), CARVEOUT_OK);
    options_.source = CARVEOUT_SOURCE_CUDA;
    options_.bytes = mib(5).count();
  }
  void TearDown() override {
    EXPECT_EQ(carveout_pages_close(pages_, nullptr), CARVEOUT_OK);
    EXPECT_EQ(fake_.live(), 0);
    EXPECT_EQ(fake_.broken_rules(), "");
  }
  carveout_status_t open() { return carveout_pages_open(&options_, &pages_, &error_); }
  [[nodiscard]] carveout_pages_info_t info() const {
    carveout_pages_info_t info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(carveout_pages_get_info(pages_, &info), CARVEOUT_OK);
    return info;
  }
  void expect_refused(carveout_status_t status, const char* setting) {
    pages_ = reinterpret_cast<carveout_pages_t*>(this);
    EXPECT_EQ(open(), status) << error_.message;
    EXPECT_EQ(pages_, nullptr);
    EXPECT_EQ(error_.status, status);
    EXPECT_STREQ(error_.setting, setting);
  }

  test::FakeDriver& fake_ = test::the_driver();
  test::TemporaryDirectory directory_;
  carveout_options_t options_;
  carveout_pages_t* pages_ = nullptr;
  carveout_error_t error_;
};

TEST_F(CApiPages, AreHandlesOfTwoMebibytes) {
  ASSERT_EQ(open(), CARVEOUT_OK) << error_.message;
  EXPECT_STREQ(error_.message, "");
  EXPECT_EQ(info().count, 3U);
  EXPECT_EQ(info().page_bytes, kSliceBytes.count());
  EXPECT_EQ(std::set<uint64_t>(info().handles, info().handles + 3).size(), 3U);
  EXPECT_EQ(info().device, 0);
  EXPECT_EQ(info().source, CARVEOUT_SOURCE_CUDA);
  EXPECT_STREQ(info().source_name, "cuda");
  EXPECT_THAT(info().description, HasSubstr("3 pages of 2 MiB"));
  EXPECT_EQ(info().lender_base, 0U);
  EXPECT_EQ(carveout_pages_watch_fd(pages_), -1);
  EXPECT_EQ(carveout_pages_is_lender_gone(pages_), 0);
}

TEST_F(CApiPages, RefuseArgumentsThatAreNone) {
  EXPECT_EQ(carveout_pages_open(&options_, nullptr, &error_), CARVEOUT_ERROR_INVALID);
  EXPECT_THAT(error_.message, HasSubstr("must not be NULL"));
  options_.struct_size = 8;
  expect_refused(CARVEOUT_ERROR_INVALID, "");
  options_.struct_size = sizeof options_;
  options_.device = -2;
  expect_refused(CARVEOUT_ERROR_INVALID, "");
  options_.device = -1;
  options_.map = CARVEOUT_MAP_HOST;
  expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_MAP");
  options_.map = CARVEOUT_MAP_AUTO;
  options_.source = CARVEOUT_SOURCE_MEMFD;
  expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_SOURCE");
  carveout_pages_info_t info{};
  EXPECT_EQ(carveout_pages_get_info(pages_, &info), CARVEOUT_ERROR_INVALID);
  EXPECT_EQ(carveout_pages_watch_fd(nullptr), -1);
  EXPECT_EQ(carveout_pages_is_lender_gone(nullptr), 0);
  carveout_pages_after_fork_in_child(nullptr);
}

TEST_F(CApiPages, KnowACallersSizeOfTheStructure) {
  ASSERT_EQ(open(), CARVEOUT_OK) << error_.message;
  struct {
    carveout_pages_info_t known;
    unsigned char more[16];
  } longer;
  std::memset(&longer, 0x55, sizeof longer);
  longer.known.struct_size = sizeof longer;
  ASSERT_EQ(carveout_pages_get_info(pages_, &longer.known), CARVEOUT_OK);
  EXPECT_EQ(longer.known.count, 3U);
  EXPECT_THAT(longer.more, Each(0));
  longer.known.struct_size = sizeof longer.known - 1;
  EXPECT_EQ(carveout_pages_get_info(pages_, &longer.known), CARVEOUT_ERROR_INVALID);
}

TEST_F(CApiPages, AreOffUnlessTheEnvironmentSwitchesThemOn) {
  options_.from_environment = 1;
  EXPECT_EQ(open(), CARVEOUT_OFF);
  EXPECT_EQ(pages_, nullptr);
  EXPECT_EQ(carveout_pages_open(nullptr, &pages_, &error_), CARVEOUT_OFF);
  ::setenv("CARVEOUT", "1", 1);
  ::setenv("CARVEOUT_MIB", "2", 1);
  ASSERT_EQ(open(), CARVEOUT_OK) << error_.message;
  EXPECT_EQ(info().count, 1U);
}

TEST_F(CApiPages, SayWhatCouldNotBeReleased) {
  ASSERT_EQ(open(), CARVEOUT_OK) << error_.message;
  fake_.fail("cuMemRelease", 1, cuda::kInvalidValue, true);
  EXPECT_EQ(carveout_pages_close(std::exchange(pages_, nullptr), &error_), CARVEOUT_ERROR_SYSTEM);
  EXPECT_THAT(error_.message, HasSubstr("cuMemRelease failed"));
  EXPECT_EQ(error_.cuda_result, cuda::kInvalidValue);
}

// --- the C++ owner ---

static_assert(std::is_nothrow_move_constructible_v<carveout::Pages>);
static_assert(!std::is_copy_constructible_v<carveout::Pages>);

TEST_F(CApiPages, HaveAnOwner) {
  carveout::Options options;
  options.source = CARVEOUT_SOURCE_CUDA;
  options.bytes = mib(4).count();
  std::vector<std::string> lines;
  options.log = [&](int, const char* line) { lines.emplace_back(line); };
  {
    carveout::Pages first = carveout::Pages::open(options);
    const carveout::Pages pages = std::move(first);
    EXPECT_FALSE(first.is_open());  // NOLINT: moved from
    EXPECT_EQ(first.size(), 0U);    // NOLINT
    EXPECT_TRUE(pages.is_open());
    EXPECT_EQ(pages.size(), 2U);
    EXPECT_EQ(pages.page_bytes(), kSliceBytes.count());
    EXPECT_EQ(std::vector<std::uint64_t>(pages.begin(), pages.end()),
              (std::vector<std::uint64_t>{pages[0], pages[1]}));
    EXPECT_THAT(lines, testing::Contains(HasSubstr("2 pages of 2 MiB")));
    EXPECT_NE(fake_.live(), 0);
  }
  EXPECT_EQ(fake_.live(), 0);
  EXPECT_FALSE(carveout::Pages::open_from_environment(options));
  options.map = CARVEOUT_MAP_HOST;
  try {
    (void)carveout::Pages::open(options);
    ADD_FAILURE() << "it was opened";
  } catch (const carveout::Failure& failure) {
    EXPECT_STREQ(failure.setting(), "CARVEOUT_MAP");
  }
}

}  // namespace
}  // namespace carveout::client
