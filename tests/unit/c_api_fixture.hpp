#pragma once

// A caller of the C ABI that asks for memory of this process, for the processor.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "carveout/carveout.h"
#include "unit/client_lender_fixture.hpp"

namespace carveout::client {

class CApi : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* row :
         {"CARVEOUT", "CARVEOUT_SOURCE", "CARVEOUT_MIB", "CARVEOUT_MAP", "CARVEOUT_SOCKET",
          "CARVEOUT_KEY", "CARVEOUT_KEY_FILE", "CARVEOUT_TIMEOUT_MS"}) {
      ::unsetenv(row);
    }
    std::memset(&error_, 0x55, sizeof error_);
    error_.struct_size = sizeof error_;
    ASSERT_EQ(carveout_options_init(&options_, sizeof options_), CARVEOUT_OK);
    options_.source = CARVEOUT_SOURCE_MEMFD;
    options_.map = CARVEOUT_MAP_HOST;
    options_.bytes = mib(4).count();
    ASSERT_EQ(open(), CARVEOUT_OK) << error_.message;  // what the first makes for good
    ASSERT_EQ(carveout_close(std::exchange(handle_, nullptr), nullptr), CARVEOUT_OK);
    before_ = test::holdings();
  }
  void TearDown() override {
    EXPECT_EQ(carveout_close(handle_, nullptr), CARVEOUT_OK);
    EXPECT_EQ(test::changed_since(before_), "");
  }

  carveout_status_t open() { return open(&options_); }
  carveout_status_t open(const carveout_options_t* options) {
    return carveout_open(options, &handle_, &error_);
  }
  // Refused with that status, setting, and text, and nothing is open.
  void expect_refused(carveout_status_t status, const char* setting, const char* text) {
    expect_refused(&options_, status, setting, text);
  }
  void expect_refused(const carveout_options_t* options, carveout_status_t status,
                      const char* setting, const char* text) {
    handle_ = reinterpret_cast<carveout_t*>(this);
    EXPECT_EQ(open(options), status) << error_.message;
    EXPECT_EQ(handle_, nullptr);
    EXPECT_EQ(error_.status, status);
    EXPECT_STREQ(error_.setting, setting);
    EXPECT_THAT(error_.message, testing::HasSubstr(text));
  }
  [[nodiscard]] carveout_info_t info() const {
    carveout_info_t info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(carveout_get_info(handle_, &info), CARVEOUT_OK);
    return info;
  }

  test::Holdings before_;
  test::TemporaryDirectory directory_;
  carveout_options_t options_;
  carveout_t* handle_ = nullptr;
  carveout_error_t error_;
};

}  // namespace carveout::client
