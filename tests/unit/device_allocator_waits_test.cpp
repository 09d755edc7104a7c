// The allocator: nobody is given what the device, another thread, or another process may be at.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "unit/device_allocator_fixture.hpp"
#include "unit/helpers.hpp"

namespace carveout::client {
namespace {

using cuda::CUdeviceptr;
using test::FakeDriver;

// --- the device may still be at it ---

TEST_F(DeviceAllocatorTest, WaitsForTheDeviceBeforeAPieceIsHadAgain) {
  DeviceAllocator& allocator = make("2");
  const CUdeviceptr pointer = allocator.allocate(mib(2).count(), 0);
  (void)fake_.take_record();
  allocator.free(pointer);
  const auto calls = fake_.take_record();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "cuCtxSynchronize"), 1);
}

TEST_F(DeviceAllocatorTest, KeepsAPieceThatItCouldNotWaitFor) {
  DeviceAllocator& allocator = make("2");
  const CUdeviceptr pointer = allocator.allocate(mib(2).count(), 0);
  fake_.fail("cuCtxSynchronize", 1, cuda::kNotSupported, false, 2);
  allocator.free(pointer);
  EXPECT_EQ(state().waiting, 1U);
  EXPECT_EQ(state().carveout.in_use, mib(2));
  allocator.free(pointer);
  EXPECT_EQ(state().refused, 1U) << "twice";
  const CUdeviceptr other = allocator.allocate(mib(2).count(), 0);
  EXPECT_EQ(state().fell_back, 1U) << "it waits once more, in vain";
  EXPECT_EQ(allocator.allocate(mib(2).count(), 0), pointer) << "and now not in vain";
  EXPECT_EQ(state().waiting, 0U);
  EXPECT_EQ(state().fell_back, 1U);
  allocator.free(other);
}

// It would be in the way of the piece itself.
TEST_F(DeviceAllocatorTest, LetsNothingWaitThatIsNoPiece) {
  DeviceAllocator& allocator = make("2");
  const CUdeviceptr pointer = allocator.allocate(2000, 0);
  fake_.fail("cuCtxSynchronize", 1, cuda::kNotSupported, false, 2);
  allocator.free(pointer + 512);
  EXPECT_EQ(state().refused, 1U);
  allocator.free(pointer);
  EXPECT_EQ(state().refused, 1U);
  EXPECT_EQ(state().waiting, 1U);
  fake_.fail("cuCtxSynchronize", 0);
  EXPECT_EQ(allocator.allocate(mib(2).count(), 0), pointer);
}

// The next owner of the place would lose it.
TEST_F(DeviceAllocatorTest, LetsNothingWaitThatWasGivenBackBefore) {
  DeviceAllocator& allocator = make("2");
  const CUdeviceptr pointer = allocator.allocate(100, 0);
  allocator.free(pointer);
  fake_.fail("cuCtxSynchronize", 1);
  allocator.free(pointer);
  EXPECT_EQ(state().refused, 1U);
  fake_.fail("cuCtxSynchronize", 0);
  EXPECT_EQ(allocator.allocate(100, 0), pointer);
  allocator.free(allocator.allocate(100, 0));
  EXPECT_EQ(state().carveout.in_use, Bytes(512)) << "its new owner's";
  allocator.free(pointer);
}

TEST_F(DeviceAllocatorTest, DoesNotTakeAWaitForWhatCameAfterItsBeginning) {
  static DeviceAllocator* used = nullptr;
  static CUdeviceptr later = 0;
  used = &make("2");
  const CUdeviceptr first = used->allocate(512, 0);
  later = used->allocate(512, 0);
  fake_.fail("cuCtxSynchronize");  // the later one's own, which comes to its end first
  fake_.at_wait([] { used->free(later); });
  used->free(first);
  EXPECT_EQ(state().waiting, 1U);
  EXPECT_EQ(used->allocate(512, 0), first);
  EXPECT_EQ(used->allocate(512, 0), later + 512) << "it still waits";
}

TEST_F(DeviceAllocatorTest, ManyPiecesWaitTogether) {
  DeviceAllocator& allocator = make("2");
  std::vector<CUdeviceptr> pieces;
  for (int i = 0; i < 100; ++i)
    pieces.push_back(allocator.allocate(1000, 0));
  fake_.fail("cuCtxSynchronize", 1, cuda::kNotSupported, false, 99);
  for (const CUdeviceptr piece : pieces)
    allocator.free(piece);
  EXPECT_EQ(state().waiting, 0U) << "the last one's wait was for all";
  EXPECT_EQ(state().carveout.in_use, Bytes(0));
  EXPECT_EQ(state().refused, 0U);
}

TEST_F(DeviceAllocatorTest, LeavesTheCallersContextCurrent) {
  DeviceAllocator& allocator = make("2");
  ASSERT_TRUE(cuda::Driver::load(fake_.library()));
  cuda::CUcontext own = fake_.make_context(0);
  ASSERT_EQ(fake_.call(cuda::kCtxPushCurrent)(own), cuda::kSuccess);
  const CUdeviceptr carved = allocator.allocate(mib(2).count(), 0);
  const CUdeviceptr by_driver = allocator.allocate(100, 0);
  EXPECT_EQ(fake_.current(), own);
  cuda::CUcontext popped = nullptr;
  ASSERT_EQ(fake_.call(cuda::kCtxPopCurrent)(&popped), cuda::kSuccess);
  // It was the primary one's, so it can be given back without that.
  allocator.free(by_driver);
  allocator.free(carved);
  EXPECT_EQ(state().refused, 0U);
}

// Nothing is asked of it, not even for a call of its.
TEST_F(DeviceAllocatorTest, LeavesTheDriverAloneAfterItsEnd) {
  static DeviceAllocator* used = nullptr;
  static const FakeDriver* fake = nullptr;
  static CUdeviceptr carved = 0, by_driver = 0;
  fake = &fake_;
  EXPECT_EQ(test::run_in_child([&] {
              used = &make("2");
              carved = used->allocate(mib(1).count(), 0);
              by_driver = used->allocate(mib(2).count(), 0);
              if (carved == 0 || by_driver == 0) return 2;
              fake_.at_end([] {
                const int before = fake->calls();
                used->free(carved);
                used->free(by_driver);
                if (used->allocate(mib(2).count(), 0) != 0) ::_exit(4);
                if (used->allocate(100, 1) != 0) ::_exit(5);
                ::_exit(fake->calls() == before ? 0 : 6);
              });
              std::exit(3);  // NOLINT(concurrency-mt-unsafe)
            }),
            0);
}

// --- many at once ---

TEST_F(DeviceAllocatorTest, GivesNobodyWhatSomebodyElseHas) {
  DeviceAllocator& allocator = make("2");
  constexpr int kThreads = 4;
  constexpr int kRounds = 300;
  std::vector<std::thread> threads;
  std::array<int, kThreads> wrong{};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<std::pair<CUdeviceptr, std::size_t>> held;
      const auto mark = static_cast<unsigned char>(t + 1);
      for (int round = 0; round < kRounds; ++round) {
        if (held.size() < 8 && random() % 2 == 0) {
          const std::size_t size = 1 + random() % 300000;
          const CUdeviceptr pointer = allocator.allocate(size, 0);
          if (pointer == 0) ++wrong[static_cast<std::size_t>(t)];
          test::at_device(pointer)[0] = mark;
          test::at_device(pointer)[size - 1] = mark;
          held.emplace_back(pointer, size);
        } else if (!held.empty()) {
          const auto [pointer, size] = held.back();
          held.pop_back();
          const bool ours =
              test::at_device(pointer)[0] == mark && test::at_device(pointer)[size - 1] == mark;
          if (!ours) ++wrong[static_cast<std::size_t>(t)];
          allocator.free(pointer);
        }
      }
      for (const auto& [pointer, size] : held)
        allocator.free(pointer);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
  const auto now = state();
  EXPECT_EQ(now.carveout.in_use, Bytes(0));
  EXPECT_EQ(now.refused + now.failed + now.waiting, 0U);
  EXPECT_EQ(static_cast<std::uint64_t>(driver_allocations()), now.fell_back);
  EXPECT_EQ(fake_.calls("cuMemFree"), driver_allocations());
  EXPECT_GT(now.carved, 0U);
}

TEST_F(DeviceAllocatorTest, GivesAChildNothing) {
  DeviceAllocator& allocator = make("2");
  const CUdeviceptr pointer = allocator.allocate(100, 0);
  EXPECT_EQ(test::run_in_child([&] {
              if (allocator.allocate(100, 0) != 0) return 1;
              allocator.free(pointer);
              return allocator.open(0) ? 2 : 0;
            }),
            0);
  EXPECT_NE(allocator.allocate(100, 0), 0U);
  EXPECT_EQ(state().carved, 2U);
}

}  // namespace
}  // namespace carveout::client
