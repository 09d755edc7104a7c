// The allocator: what has room in the carveout is carved, all else is the driver's, once.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "unit/client_lender_fixture.hpp"
#include "unit/device_allocator_fixture.hpp"

namespace carveout::client {
namespace {

using cuda::CUdeviceptr;
using test::required;
using testing::HasSubstr;

TEST_F(DeviceAllocatorTest, CarvesWhatHasRoom) {
  DeviceAllocator& allocator = make("4");
  const CUdeviceptr first = allocator.allocate(1, 0);
  const CUdeviceptr second = allocator.allocate(mib(2).count(), 0);
  ASSERT_NE(first, 0U);
  EXPECT_EQ(first % 512, 0U);
  EXPECT_EQ(second, first + 512);
  test::at_device(second)[mib(2).count() - 1] = 7;
  EXPECT_EQ(driver_allocations(), 0);
  EXPECT_EQ(state().device, 0);
  EXPECT_EQ(state().carved, 2U);
  EXPECT_EQ(state().carveout.region, mib(4));
  EXPECT_EQ(state().carveout.in_use, mib(2) + Bytes(512));
  EXPECT_FALSE(state().problem);
  allocator.free(first);
  allocator.free(second);
  EXPECT_EQ(state().carveout.in_use, Bytes(0));
  EXPECT_EQ(state().carveout.peak, mib(2) + Bytes(512));
  EXPECT_EQ(allocator.allocate(mib(4).count(), 0), first);
  EXPECT_EQ(driver_allocations(), 0);
}

TEST_F(DeviceAllocatorTest, HasTheDriverAllocateWhatHasNoRoomOnce) {
  DeviceAllocator& allocator = make("2");
  const CUdeviceptr carved = allocator.allocate(mib(2).count(), 0);
  const CUdeviceptr by_driver = allocator.allocate(mib(2).count(), 0);
  ASSERT_TRUE(carved != 0 && by_driver != 0);
  EXPECT_EQ(driver_allocations(), 1);
  EXPECT_EQ(state().fell_back, 1U);
  test::at_device(by_driver)[mib(2).count() - 1] = 7;
  allocator.free(by_driver);
  EXPECT_EQ(fake_.calls("cuMemFree"), 1);
  allocator.free(carved);
  EXPECT_EQ(fake_.calls("cuMemFree"), 1);
  EXPECT_EQ(state().refused, 0U);
}

TEST_F(DeviceAllocatorTest, IsTheDriversWhereItIsOff) {
  DeviceAllocator& allocator = make_off();
  const CUdeviceptr pointer = allocator.allocate(100, 0);
  ASSERT_NE(pointer, 0U);
  EXPECT_EQ(driver_allocations(), 1);
  EXPECT_EQ(state().fell_back, 1U);
  EXPECT_EQ(state().device, std::nullopt);
  EXPECT_FALSE(state().problem);
  EXPECT_FALSE(required(allocator.open(0)));
  allocator.free(pointer);
}

TEST_F(DeviceAllocatorTest, SaysWhyThereIsNoCarveoutAndTriesItOnce) {
  DeviceAllocator& allocator = make("2", {{"CARVEOUT_MAP", "sideways"}});
  const CUdeviceptr pointer = allocator.allocate(100, 0);
  EXPECT_NE(pointer, 0U);
  ASSERT_TRUE(state().problem);
  EXPECT_EQ(state().problem->context, "CARVEOUT_MAP");
  const int loaded = fake_.calls("cuMemCreate");
  allocator.free(allocator.allocate(100, 0));
  EXPECT_EQ(fake_.calls("cuMemCreate"), loaded);
  EXPECT_EQ(driver_allocations(), 2);
  EXPECT_EQ(allocator.open(0).error().context, "CARVEOUT_MAP");
  allocator.free(pointer);
}

TEST_F(DeviceAllocatorTest, CanBeOpenedAnewUntilItIsOpen) {
  DeviceAllocator& allocator = make("2");
  fake_.set("devices", 2);
  fake_.fail("cuMemCreate", 1, cuda::kOutOfMemory);
  const CUdeviceptr pointer = allocator.allocate(100, 0);
  allocator.free(allocator.allocate(100, 0));
  EXPECT_EQ(state().fell_back, 2U) << "a request does not";
  ASSERT_TRUE(state().problem);
  EXPECT_TRUE(required(allocator.open(0)));
  EXPECT_FALSE(state().problem);
  EXPECT_TRUE(required(allocator.open(0)));
  EXPECT_THAT(allocator.open(1).error().describe(), HasSubstr("open for device 0 already"));
  EXPECT_FALSE(state().problem) << "it is open";
  allocator.free(allocator.allocate(100, 0));
  EXPECT_EQ(state().carved, 1U);
  allocator.free(pointer);
}

TEST_F(DeviceAllocatorTest, IsTheDriversForAnotherDevice) {
  fake_.set("devices", 2);
  DeviceAllocator& allocator = make("2");
  allocator.free(allocator.allocate(100, 1));
  EXPECT_EQ(state().device, 1);
  const CUdeviceptr pointer = allocator.allocate(100, 0);
  EXPECT_EQ(state().fell_back, 1U);
  allocator.free(pointer);
  EXPECT_EQ(allocator.allocate(100, 2), 0U);
  EXPECT_EQ(state().failed, 1U);
}

TEST_F(DeviceAllocatorTest, GivesNothingWhereNeitherHasAsMuch) {
  DeviceAllocator& allocator = make("2");
  ASSERT_TRUE(required(allocator.open(0)));
  fake_.set("limit", 100);
  EXPECT_EQ(allocator.allocate(mib(4).count(), 0), 0U);
  EXPECT_EQ(allocator.allocate(~std::size_t{0}, 0), 0U);
  EXPECT_EQ(state().failed, 2U);
  EXPECT_EQ(driver_allocations(), 2);
  EXPECT_EQ(allocator.allocate(0, 0), 0U);
  EXPECT_EQ(driver_allocations(), 2);
}

TEST_F(DeviceAllocatorTest, GivesNothingWithoutADriver) {
  machine_.cuda_library = "libno-such-cuda.so.1";
  DeviceAllocator& allocator = make("2");
  EXPECT_EQ(allocator.allocate(100, 0), 0U);
  EXPECT_EQ(state().failed, 1U);
  ASSERT_TRUE(state().problem);
  EXPECT_EQ(state().problem->code, Code::kNotFound);
  allocator.free(512);
}

TEST_F(DeviceAllocatorTest, RefusesWhatItHasNotGiven) {
  DeviceAllocator& allocator = make("2");
  const CUdeviceptr pointer = allocator.allocate(2000, 0);
  allocator.free(0);
  EXPECT_EQ(state().refused, 0U);
  allocator.free(pointer + 512);
  EXPECT_EQ(state().refused, 1U);
  allocator.free(pointer);
  allocator.free(pointer);
  EXPECT_EQ(state().refused, 2U);
  EXPECT_EQ(fake_.calls("cuMemFree"), 0) << "what lies in the carveout is not the driver's";
  EXPECT_EQ(state().carveout.in_use, Bytes(0));
  // Nor is somebody else's.
  cuda::CUdeviceptr others = 0;
  const CUdeviceptr by_driver = allocator.allocate(mib(4).count(), 0);
  cuda::CUcontext context = nullptr;
  ASSERT_EQ(fake_.call(cuda::kPrimaryCtxRetain)(&context, 0), cuda::kSuccess);
  ASSERT_EQ(fake_.call(cuda::kCtxPushCurrent)(context), cuda::kSuccess);
  ASSERT_EQ(fake_.call(cuda::kMemAlloc)(&others, 100), cuda::kSuccess);
  allocator.free(others);
  allocator.free(by_driver + 100);
  EXPECT_EQ(state().refused, 4U);
  EXPECT_EQ(fake_.calls("cuMemFree"), 0);
  allocator.free(by_driver);
  allocator.free(by_driver);
  EXPECT_EQ(state().refused, 5U);
  EXPECT_EQ(fake_.calls("cuMemFree"), 1) << "once";
  ASSERT_EQ(fake_.call(cuda::kMemFree)(others), cuda::kSuccess);
  ASSERT_EQ(fake_.call(cuda::kCtxPopCurrent)(&context), cuda::kSuccess);
  ASSERT_EQ(fake_.call(cuda::kPrimaryCtxRelease)(0), cuda::kSuccess);
}

TEST_F(DeviceAllocatorTest, SaysThatTheDriverDidNotTakeItsOwn) {
  DeviceAllocator& allocator = make_off();
  const CUdeviceptr pointer = allocator.allocate(100, 0);
  fake_.fail("cuMemFree", 1, cuda::kInvalidValue, true);
  allocator.free(pointer);
  EXPECT_EQ(state().refused, 1U);
}

// A mistake in the first request is no opening.
TEST_F(DeviceAllocatorTest, IsNotSpentByADeviceThatIsNone) {
  DeviceAllocator& allocator = make("2");
  EXPECT_EQ(allocator.allocate(100, 7), 0U);
  EXPECT_EQ(allocator.allocate(100, -1), 0U);
  EXPECT_EQ(allocator.open(-1).error().code, Code::kInvalid);
  EXPECT_EQ(allocator.open(7).error().code, Code::kNotFound);
  EXPECT_FALSE(state().tried);
  EXPECT_EQ(state().failed, 2U);
  allocator.free(allocator.allocate(100, 0));
  EXPECT_EQ(state().carved, 1U);
  EXPECT_TRUE(state().tried);
  EXPECT_EQ(allocator.open(-1).error().code, Code::kInvalid);
}

// What is no piece of ours asks nothing of a device that was never asked for memory.
TEST_F(DeviceAllocatorTest, MakesNoContextToFreeIn) {
  fake_.set("devices", 2);
  DeviceAllocator& allocator = make_off();
  const CUdeviceptr pointer = allocator.allocate(100, 0);
  const int retained = fake_.calls("cuDevicePrimaryCtxRetain");
  allocator.free(mib(1).count());
  EXPECT_EQ(fake_.calls("cuDevicePrimaryCtxRetain"), retained);
  EXPECT_EQ(fake_.calls("cuMemFree"), 0);
  EXPECT_EQ(state().refused, 1U);
  allocator.free(pointer);
}

}  // namespace
}  // namespace carveout::client
