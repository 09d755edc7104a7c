#pragma once

// The allocator over the fake driver.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "client/device_allocator.hpp"
#include "fake_cuda/fake_driver.hpp"
#include "unit/rows.hpp"

namespace carveout::client {

class DeviceAllocatorTest : public testing::Test {
 protected:
  DeviceAllocatorTest() { machine_.cuda_library = fake_.library(); }
  void TearDown() override {
    allocator_.reset();
    EXPECT_EQ(fake_.live(), 0);
    EXPECT_EQ(fake_.broken_rules(), "");
  }

  // Of the GPU's own memory, in MiB; further rows replace these.
  DeviceAllocator& make(const std::string& size, const test::Rows& more = {}) {
    test::Rows rows = more;
    rows.insert({{"CARVEOUT", "1"}, {"CARVEOUT_SOURCE", "cuda"}, {"CARVEOUT_MIB", size}});
    allocator_ = std::make_unique<DeviceAllocator>(test::lookup_in(rows), machine_);
    return *allocator_;
  }
  DeviceAllocator& make_off() {
    allocator_ = std::make_unique<DeviceAllocator>(test::lookup_in({}), machine_);
    return *allocator_;
  }
  [[nodiscard]] DeviceAllocator::State state() const { return allocator_->state(); }
  [[nodiscard]] int driver_allocations() const { return fake_.calls("cuMemAlloc"); }

  test::FakeDriver fake_;
  Machine machine_;
  std::unique_ptr<DeviceAllocator> allocator_;
};

}  // namespace carveout::client
