#pragma once

// A caller of the C ABI's allocator for PyTorch, with the fake driver. There is one a process, so
// each test is a child that has not initialised CUDA.

#include <gtest/gtest.h>

#include <cstdlib>

#include "carveout/carveout.h"
#include "unit/c_api_driver_fixture.hpp"

// Ends the child with that line's number where it is not so.
#define REQUIRE(condition) \
  if (!(condition)) return __LINE__ % 200 + 1

namespace carveout::client {

class CApiTorchFixture : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* row : {"CARVEOUT_MAP", "CARVEOUT_SOCKET", "CARVEOUT_KEY"})
      ::unsetenv(row);
    ::setenv("CARVEOUT", "1", 1);
    ::setenv("CARVEOUT_SOURCE", "cuda", 1);
    ::setenv("CARVEOUT_MIB", "4", 1);
    error_.struct_size = sizeof error_;
  }
  carveout_torch_state_t state() {
    carveout_torch_state_t now{};
    now.struct_size = sizeof now;
    if (carveout_torch_get_state(&now, &error_) != CARVEOUT_OK) now.status = -99;
    return now;
  }

  test::FakeDriver& fake_ = test::the_driver();
  carveout_error_t error_;
};

}  // namespace carveout::client
