// The C ABI: structures of other versions, arguments that are none, what each answer leaves, and
// that nothing but answers leaves it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "unit/c_api_fixture.hpp"

namespace carveout::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr std::size_t kMost = 65536;  // no structure is longer

// What a caller has that was compiled with a later version.
template <typename Struct>
struct Later {
  Struct known;
  unsigned char more[64];
};

TEST_F(CApi, SaysItsVersion) {
  EXPECT_STREQ(carveout_version(), "0.1.0");
}

TEST_F(CApi, NamesEachStatus) {
  EXPECT_STREQ(carveout_status_name(CARVEOUT_OK), "CARVEOUT_OK");
  EXPECT_STREQ(carveout_status_name(CARVEOUT_OFF), "CARVEOUT_OFF");
  std::vector<std::string> seen;
  for (int status = CARVEOUT_ERROR_INTERNAL; status < 0; ++status) {
    seen.emplace_back(carveout_status_name(status));
    EXPECT_THAT(seen.back(), testing::MatchesRegex("CARVEOUT_ERROR_[A-Z_]+"));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
  for (const int status : {2, -11, 1000}) {
    EXPECT_STREQ(carveout_status_name(status), "CARVEOUT_ERROR_?");
  }
}

TEST_F(CApi, HasTheDefaultsOfTheDesign) {
  ASSERT_EQ(carveout_options_init(&options_, sizeof options_), CARVEOUT_OK);
  EXPECT_EQ(options_.struct_size, sizeof options_);
  EXPECT_EQ(options_.from_environment, 0);
  EXPECT_EQ(options_.source, CARVEOUT_SOURCE_DAEMON);
  EXPECT_EQ(options_.map, CARVEOUT_MAP_AUTO);
  EXPECT_EQ(options_.device, -1);
  EXPECT_EQ(options_.bytes, mib(1792).count());
  EXPECT_EQ(options_.timeout_ms, 10000U);
  EXPECT_EQ(options_.reserved, 0U);
  for (const char* text :
       {options_.socket_path, options_.key, options_.key_file, options_.drm_card, options_.heap}) {
    EXPECT_EQ(text, nullptr);
  }
  EXPECT_EQ(options_.log, nullptr);
}

TEST_F(CApi, WritesNoOptionsThatAreNone) {
  EXPECT_EQ(carveout_options_init(nullptr, sizeof options_), CARVEOUT_ERROR_INVALID);
  carveout_options_t untouched = options_;
  for (const std::size_t size : {std::size_t{0}, sizeof options_ - 1, kMost + 1, ~std::size_t{0}}) {
    EXPECT_EQ(carveout_options_init(&options_, size), CARVEOUT_ERROR_INVALID) << size;
  }
  EXPECT_EQ(std::memcmp(&options_, &untouched, sizeof options_), 0);
}

TEST_F(CApi, OpensWhatWasAskedFor) {
  ASSERT_EQ(open(), CARVEOUT_OK) << error_.message;
  EXPECT_EQ(error_.status, CARVEOUT_OK);
  EXPECT_STREQ(error_.message, "");
  EXPECT_STREQ(error_.setting, "");
  EXPECT_EQ(error_.system_errno, 0);
  const carveout_info_t is = info();
  EXPECT_EQ(is.bytes, mib(4).count());
  EXPECT_EQ(is.device_pointer, 0U);
  ASSERT_NE(is.host_pointer, nullptr);
  static_cast<char*>(is.host_pointer)[is.bytes - 1] = 1;
  EXPECT_EQ(is.source, CARVEOUT_SOURCE_MEMFD);
  EXPECT_EQ(is.map, CARVEOUT_MAP_HOST);
  EXPECT_EQ(is.kind, CARVEOUT_KIND_MEMFD);
  EXPECT_EQ(is.lender_base, 0U);
  EXPECT_STREQ(is.source_name, "memfd");
  EXPECT_STREQ(is.map_name, "host");
  EXPECT_THAT(is.description, HasSubstr("4 MiB of ordinary memory"));
  EXPECT_STREQ(is.why_not, "");
  EXPECT_EQ(carveout_watch_fd(handle_), -1);
  EXPECT_EQ(carveout_is_lender_gone(handle_), 0);
  carveout_after_fork_in_child(handle_);  // there is no connection
  EXPECT_EQ(test::holdings().descriptors, before_.descriptors);
}

TEST_F(CApi, NamesTheRowThatIsBad) {
  const carveout_options_t good = options_;
  options_.bytes = 0;
  expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_MIB", "CARVEOUT_MIB: ");
  for (const int none : {-1, 5}) {
    options_ = good;
    options_.source = none;
    expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_SOURCE", "carveout_source_t");
    options_ = good;
    options_.map = none;
    expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_MAP", "carveout_map_t");
  }
  options_ = good;
  options_.device = -2;
  expect_refused(CARVEOUT_ERROR_INVALID, "", "device");
  options_ = good;
  options_.reserved = 1;
  expect_refused(CARVEOUT_ERROR_INVALID, "", "reserved");
  options_ = good;
  options_.source = CARVEOUT_SOURCE_DMA_HEAP;
  expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_HEAP", "name of a heap");
  options_ = good;
  options_.source = CARVEOUT_SOURCE_DRM;
  options_.drm_card = "card0";
  expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_DRM_CARD", "absolute path");
  options_ = good;
  options_.map = CARVEOUT_MAP_VMM;
  expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_MAP", "cannot be done by vmm");
}

TEST_F(CApi, NamesTheDaemonsRowsThatAreBad) {
  options_.source = CARVEOUT_SOURCE_DAEMON;
  options_.key = "";
  expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_KEY", "");
  options_.key = "swordfish";
  options_.key_file = "/etc/passwd";
  expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_KEY_FILE", "set one of them");
  options_.key = nullptr;
  const std::string missing = directory_.path("no-key");
  options_.key_file = missing.c_str();
  expect_refused(CARVEOUT_ERROR_SYSTEM, "CARVEOUT_KEY_FILE", "");
  EXPECT_EQ(error_.system_errno, ENOENT);
  EXPECT_THAT(error_.message, Not(HasSubstr(missing)));
  options_.key_file = nullptr;
  options_.key = "swordfish";
  options_.socket_path = "";
  expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_SOCKET", "path");
  options_.socket_path = "/nowhere";
  options_.timeout_ms = 0;
  expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_TIMEOUT_MS", "from 1 to");
  options_.timeout_ms = 100;
  expect_refused(CARVEOUT_ERROR_SYSTEM, "CARVEOUT_SOCKET", "is carveoutd running");
}

TEST_F(CApi, LooksAtNoRowOfAnotherSource) {
  options_.key = "";
  options_.socket_path = "";
  options_.timeout_ms = 0;
  options_.drm_card = "card0";
  options_.heap = "/";
  EXPECT_EQ(open(), CARVEOUT_OK) << error_.message;
}

TEST_F(CApi, RefusesArgumentsThatAreNone) {
  EXPECT_EQ(carveout_open(&options_, nullptr, &error_), CARVEOUT_ERROR_INVALID);
  EXPECT_THAT(error_.message, HasSubstr("handle must not be NULL"));
  EXPECT_EQ(carveout_open(&options_, nullptr, nullptr), CARVEOUT_ERROR_INVALID);
  EXPECT_EQ(carveout_get_info(nullptr, nullptr), CARVEOUT_ERROR_INVALID);
  carveout_info_t info;
  info.struct_size = sizeof info;
  EXPECT_EQ(carveout_get_info(nullptr, &info), CARVEOUT_ERROR_INVALID);
  EXPECT_EQ(carveout_watch_fd(nullptr), -1);
  EXPECT_EQ(carveout_is_lender_gone(nullptr), 0);
  carveout_after_fork_in_child(nullptr);
  EXPECT_EQ(carveout_close(nullptr, &error_), CARVEOUT_OK);
  EXPECT_EQ(error_.status, CARVEOUT_OK);
}

// Too small, or not set at all; only what is passed in is looked at.
TEST_F(CApi, RefusesStructuresOfNoVersionsSize) {
  for (const std::size_t size : {std::size_t{0}, sizeof options_ - 1, kMost + 1, ~std::size_t{0}}) {
    options_.struct_size = size;
    expect_refused(CARVEOUT_ERROR_INVALID, "", "struct_size");
  }
  options_.struct_size = sizeof options_;
  for (const std::size_t size : {std::size_t{0}, sizeof error_ - 1, kMost + 1, ~std::size_t{0}}) {
    error_.struct_size = size;
    const carveout_error_t untouched = error_;
    EXPECT_EQ(open(), CARVEOUT_ERROR_INVALID);
    EXPECT_EQ(handle_, nullptr);
    EXPECT_EQ(std::memcmp(&error_, &untouched, sizeof error_), 0);
  }
  error_.struct_size = sizeof error_;
  ASSERT_EQ(open(), CARVEOUT_OK);
  carveout_info_t info;
  std::memset(&info, 0x55, sizeof info);
  for (const std::size_t size : {std::size_t{0}, sizeof info - 1, kMost + 1, ~std::size_t{0}}) {
    info.struct_size = size;
    const carveout_info_t untouched = info;
    EXPECT_EQ(carveout_get_info(handle_, &info), CARVEOUT_ERROR_INVALID);
    EXPECT_EQ(std::memcmp(&info, &untouched, sizeof info), 0);
  }
  error_.struct_size = kMost + 1;
  const carveout_error_t untouched = error_;
  EXPECT_EQ(carveout_close(std::exchange(handle_, nullptr), &error_), CARVEOUT_OK);
  EXPECT_EQ(std::memcmp(&error_, &untouched, sizeof error_), 0);
}

TEST_F(CApi, TakesALaterVersionsStructuresUnlessTheyAskForMore) {
  Later<carveout_options_t> options{};
  ASSERT_EQ(carveout_options_init(&options.known, sizeof options), CARVEOUT_OK);
  EXPECT_EQ(options.known.struct_size, sizeof options);
  options_.struct_size = sizeof options;
  options.known = options_;
  options.more[63] = 1;
  expect_refused(&options.known, CARVEOUT_ERROR_INVALID, "", "this version (0.1.0)");
  options.more[63] = 0;
  Later<carveout_error_t> error;
  std::memset(&error, 0x55, sizeof error);
  error.known.struct_size = sizeof error;
  ASSERT_EQ(carveout_open(&options.known, &handle_, &error.known), CARVEOUT_OK);
  EXPECT_EQ(error.known.struct_size, sizeof error);
  Later<carveout_info_t> info;
  std::memset(&info, 0x55, sizeof info);
  info.known.struct_size = sizeof info;
  ASSERT_EQ(carveout_get_info(handle_, &info.known), CARVEOUT_OK);
  EXPECT_EQ(info.known.struct_size, sizeof info);
  EXPECT_EQ(info.known.bytes, mib(4).count());
  for (const unsigned char* more : {options.more, error.more, info.more}) {
    EXPECT_TRUE(std::all_of(more, more + 64, [](unsigned char byte) { return byte == 0; }));
  }
}

// --- the log ---

std::vector<std::string> lines;

TEST_F(CApi, SaysWhatItDoesToWhoeverWantsToKnow) {
  lines.clear();
  int context = 0;
  options_.log_context = &context;
  options_.log = [](void* place, int32_t level, const char* line) {
    ++*static_cast<int*>(place);
    if (level != CARVEOUT_LOG_WARNING) lines.emplace_back(line);
  };
  ASSERT_EQ(open(), CARVEOUT_OK) << error_.message;
  EXPECT_GE(context, 1);
  EXPECT_THAT(lines, ElementsAre(StartsWith("4 MiB of ordinary memory")));
  ASSERT_EQ(carveout_close(handle_, nullptr), CARVEOUT_OK);
  options_.bytes = 0;
  expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_MIB", "must be");
  EXPECT_EQ(lines.back(), error_.message);
}

TEST_F(CApi, CutsALongMessageBetweenTwoCharacters) {
  constexpr std::size_t kRoom = sizeof error_.message - 1;
  static std::string text;
  options_.log = [](void*, int32_t, const char*) { throw std::runtime_error(text); };
  text = std::string(kRoom, 'x');
  expect_refused(CARVEOUT_ERROR_INTERNAL, "", text.c_str());
  text += 'x';
  expect_refused(CARVEOUT_ERROR_INTERNAL, "", "");
  EXPECT_EQ(error_.message, std::string(kRoom - 3, 'x') + "...");
  text.replace(kRoom - 4, 2, "\xc3\xbc");
  expect_refused(CARVEOUT_ERROR_INTERNAL, "", "");
  EXPECT_EQ(error_.message, std::string(kRoom - 4, 'x') + "...");
}

TEST_F(CApi, LetsNoExceptionPass) {
  options_.log = [](void*, int32_t, const char*) { throw std::runtime_error("from the log"); };
  expect_refused(CARVEOUT_ERROR_INTERNAL, "", "from the log");
  options_.log = [](void*, int32_t, const char*) { throw 7; };
  expect_refused(CARVEOUT_ERROR_INTERNAL, "", "unknown exception");
}

}  // namespace
}  // namespace carveout::client
