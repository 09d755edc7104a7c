// The fake driver itself: that it sees broken rules, and does what its environment says. What it
// lets pass, no test of ours would find.

#include "fake_cuda/fake_cuda.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cuda/driver.hpp"
#include "fake_cuda/fake_driver.hpp"
#include "gpu/calls.hpp"

namespace carveout::test {
namespace {

using cuda::CUdeviceptr;
using cuda::CUmemGenericAllocationHandle;
using testing::HasSubstr;

constexpr std::size_t kSlice = 2097152;

void touch(const View& view, std::size_t size) {
  unsigned sum = 0;
  for (std::size_t at = 0; at < size; at += 4096)
    sum += view[at];
  EXPECT_EQ(sum, 0U);
}

class FakeCuda : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(fake_.call(cuda::kInit)(0), cuda::kSuccess); }

  void enter() {
    cuda::CUcontext context = nullptr;
    ASSERT_EQ(fake_.call(cuda::kPrimaryCtxRetain)(&context, 0), cuda::kSuccess);
    ASSERT_EQ(fake_.call(cuda::kCtxPushCurrent)(context), cuda::kSuccess);
  }
  CUdeviceptr reserve(std::size_t size) {
    CUdeviceptr start = 0;
    EXPECT_EQ(fake_.call(cuda::kMemAddressReserve)(&start, size, kSlice, 0, 0), cuda::kSuccess);
    return start;
  }
  CUmemGenericAllocationHandle create() {
    CUmemGenericAllocationHandle handle = 0;
    const auto properties = cuda::shareable_memory(0);
    EXPECT_EQ(fake_.call(cuda::kMemCreate)(&handle, kSlice, &properties, 0), cuda::kSuccess);
    return handle;
  }
  cuda::CUresult import_file(int descriptor) {
    CUmemGenericAllocationHandle handle = 0;
    return fake_.call(cuda::kMemImport)(
        &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)), 1);
  }
  cuda::CUresult enlist(void* start, std::size_t size) {
    return fake_.call(cuda::kMemHostRegister)(start, size, cuda::kHostRegisterDeviceMap);
  }
  void expect_broken(const std::string& rule) {
    EXPECT_THAT(fake_.broken_rules(), HasSubstr(rule));
  }

  FakeDriver fake_;
};

TEST_F(FakeCuda, WantsWholePagesAndOffsetZero) {
  CUdeviceptr start = 0;
  EXPECT_NE(fake_.call(cuda::kMemAddressReserve)(&start, 4096, 0, 0, 0), cuda::kSuccess);
  expect_broken("a reservation of a wrong size");
  const CUdeviceptr range = reserve(2 * kSlice);
  const auto handle = create();
  auto* const map = fake_.call(cuda::kMemMap);
  EXPECT_NE(map(range + 4096, kSlice, 0, handle, 0), cuda::kSuccess);
  EXPECT_NE(map(range, 4096, 0, handle, 0), cuda::kSuccess);
  EXPECT_NE(map(range, kSlice, kSlice, handle, 0), cuda::kSuccess);
  expect_broken("a mapping of a wrong place, size, offset or flags");
  EXPECT_NE(map(range + 2 * kSlice, kSlice, 0, handle, 0), cuda::kSuccess);
  EXPECT_EQ(map(range, kSlice, 0, handle, 0), cuda::kSuccess);
  EXPECT_NE(map(range, kSlice, 0, handle, 0), cuda::kSuccess);
  expect_broken("a mapping where nothing is reserved, or something mapped");
}

TEST_F(FakeCuda, WantsUnmappingBeforeReleasingAndFreeing) {
  const CUdeviceptr range = reserve(kSlice);
  const auto handle = create();
  ASSERT_EQ(fake_.call(cuda::kMemMap)(range, kSlice, 0, handle, 0), cuda::kSuccess);
  EXPECT_NE(fake_.call(cuda::kMemRelease)(handle), cuda::kSuccess);
  expect_broken("a handle released whose memory is mapped");
  EXPECT_NE(fake_.call(cuda::kMemAddressFree)(range, kSlice), cuda::kSuccess);
  expect_broken("a range freed that something is in");
  EXPECT_EQ(fake_.live(), 3);
  EXPECT_EQ(fake_.call(cuda::kMemUnmap)(range, kSlice), cuda::kSuccess);
  EXPECT_NE(fake_.call(cuda::kMemUnmap)(range, kSlice), cuda::kSuccess);
  expect_broken("something unmapped that was not mapped so");
  EXPECT_EQ(fake_.call(cuda::kMemRelease)(handle), cuda::kSuccess);
  EXPECT_EQ(fake_.call(cuda::kMemAddressFree)(range, kSlice), cuda::kSuccess);
  EXPECT_EQ(fake_.live(), 0);
}

TEST_F(FakeCuda, GivesNoAccessToWhatIsNotMapped) {
  const CUdeviceptr range = reserve(2 * kSlice);
  const cuda::MemAccessDesc access{{cuda::kLocationDevice, 0}, cuda::kAccessReadWrite};
  EXPECT_NE(fake_.call(cuda::kMemSetAccess)(range, kSlice, &access, 1), cuda::kSuccess);
  expect_broken("access to what is not mapped");
  enter();
  EXPECT_NE(fake_.call(cuda::kMemsetD8)(range, 0, kSlice), cuda::kSuccess);
  expect_broken("memory set without access");
  unsigned char byte = 0;
  EXPECT_NE(fake_.call(cuda::kMemcpyDtoH)(&byte, range, 1), cuda::kSuccess);
  expect_broken("memory copied without access");
}

TEST_F(FakeCuda, CopiesWhatWasSetBefore) {
  enter();
  const CUdeviceptr range = reserve(kSlice);
  const cuda::MemAccessDesc access{{cuda::kLocationDevice, 0}, cuda::kAccessReadWrite};
  ASSERT_EQ(fake_.call(cuda::kMemMap)(range, kSlice, 0, create(), 0), cuda::kSuccess);
  ASSERT_EQ(fake_.call(cuda::kMemSetAccess)(range, kSlice, &access, 1), cuda::kSuccess);
  EXPECT_NE(fake_.call(cuda::kMemsetD32)(range + 2, 7, 1), cuda::kSuccess);
  expect_broken("words set where none can be");
  ASSERT_EQ(fake_.call(cuda::kMemsetD8)(range, 0x11, 3), cuda::kSuccess);
  ASSERT_EQ(fake_.call(cuda::kMemsetD32)(range + 4, 0x04030201, 2), cuda::kSuccess);
  std::array<unsigned char, 16> bytes{};
  ASSERT_EQ(fake_.call(cuda::kMemcpyDtoH)(bytes.data(), range, 16), cuda::kSuccess);
  EXPECT_THAT(bytes, testing::ElementsAre(0x11, 0x11, 0x11, 0xCD, 1, 2, 3, 4, 1, 2, 3, 4, 0xCD,
                                          0xCD, 0xCD, 0xCD));
  fake_.set("copy", 0);
  bytes.fill(0);
  ASSERT_EQ(fake_.call(cuda::kMemcpyDtoH)(bytes.data(), range, 16), cuda::kSuccess);
  EXPECT_THAT(bytes, testing::Each(0));
}

TEST_F(FakeCuda, SeesMemoryUnmappedWhileItIsWritten) {
  enter();
  const CUdeviceptr range = reserve(kSlice);
  const auto handle = create();
  const cuda::MemAccessDesc access{{cuda::kLocationDevice, 0}, cuda::kAccessReadWrite};
  ASSERT_EQ(fake_.call(cuda::kMemMap)(range, kSlice, 0, handle, 0), cuda::kSuccess);
  ASSERT_EQ(fake_.call(cuda::kMemSetAccess)(range, kSlice, &access, 1), cuda::kSuccess);
  ASSERT_EQ(fake_.call(cuda::kMemsetD8)(range, 0, kSlice), cuda::kSuccess);
  EXPECT_EQ(fake_.call(cuda::kMemUnmap)(range, kSlice), cuda::kSuccess);
  expect_broken("memory unmapped that the device is still at");
}

TEST_F(FakeCuda, ImportsOnlyWhatItExported) {
  const UniqueFd strange = make_file(DescriptorKind::kMemfd, mib(2));
  EXPECT_EQ(import_file(strange.get()), cuda::kInvalidValue);
  EXPECT_EQ(import_file(-1), cuda::kInvalidValue);
  int exported = -1;
  ASSERT_EQ(fake_.call(cuda::kMemExport)(&exported, create(), 1, 0), cuda::kSuccess);
  const UniqueFd file(exported);
  EXPECT_EQ(import_file(file.get()), cuda::kSuccess);
  // Another process, another driver.
  EXPECT_EQ(run_in_child([&] {
              FakeDriver other;
              if (other.call(cuda::kInit)(0) != cuda::kSuccess) return 1;
              CUmemGenericAllocationHandle handle = 0;
              void* const descriptor =
                  reinterpret_cast<void*>(static_cast<std::intptr_t>(file.get()));
              return other.call(cuda::kMemImport)(&handle, descriptor, 1);
            }),
            cuda::kSuccess);
}

TEST_F(FakeCuda, RegistersOneVmaWhosePagesAreThere) {
  enter();
  const UniqueFd file = make_file(DescriptorKind::kMemfd, mib(4));
  const View view(file.get(), mib(4));
  auto* const start = const_cast<unsigned char*>(&view[0]);
  EXPECT_NE(enlist(start, 2 * kSlice), cuda::kSuccess);
  expect_broken("a registration of pages that were not touched");
  touch(view, 2 * kSlice);
  EXPECT_NE(enlist(start, 3 * kSlice), cuda::kSuccess);
  ASSERT_EQ(::mprotect(start + kSlice, kSlice, PROT_READ), 0);
  EXPECT_NE(enlist(start, 2 * kSlice), cuda::kSuccess);
  expect_broken("a registration of more than one writable VMA");
  ASSERT_EQ(::mprotect(start + kSlice, kSlice, PROT_READ | PROT_WRITE), 0);
  ASSERT_EQ(enlist(start, 2 * kSlice), cuda::kSuccess);
  EXPECT_EQ(enlist(start + kSlice, kSlice), cuda::kHostMemoryAlreadyRegistered);
  EXPECT_NE(fake_.call(cuda::kMemHostUnregister)(start + kSlice), cuda::kSuccess);
  EXPECT_EQ(fake_.call(cuda::kMemHostUnregister)(start), cuda::kSuccess);
}

TEST_F(FakeCuda, SeesMemoryUnmappedThatIsRegistered) {
  enter();
  const UniqueFd file = make_file(DescriptorKind::kMemfd, mib(2));
  void* start = nullptr;
  {
    const View view(file.get(), mib(2));
    start = const_cast<unsigned char*>(&view[0]);
    touch(view, kSlice);
    ASSERT_EQ(enlist(start, kSlice), cuda::kSuccess);
  }
  EXPECT_EQ(fake_.call(cuda::kMemHostUnregister)(start), cuda::kSuccess);
  expect_broken("memory unmapped that was registered");
}

TEST_F(FakeCuda, WantsItsContext) {
  EXPECT_EQ(fake_.call(cuda::kCtxSynchronize)(), cuda::kInvalidContext);
  expect_broken("cuCtxSynchronize without a context");
  EXPECT_EQ(fake_.call(cuda::kPrimaryCtxRelease)(0), cuda::kInvalidContext);
  expect_broken("a context released that nobody retained");
  cuda::CUcontext popped = nullptr;
  EXPECT_EQ(fake_.call(cuda::kCtxPopCurrent)(&popped), cuda::kInvalidContext);
  expect_broken("a pop without a push");
}

TEST(FakeCudaStart, WantsToBeInitialised) {
  FakeDriver fake;
  CUmemGenericAllocationHandle handle = 0;
  const auto properties = cuda::shareable_memory(0);
  EXPECT_EQ(fake.call(cuda::kMemCreate)(&handle, kSlice, &properties, 0), cuda::kNotInitialized);
}

// NOLINTBEGIN(concurrency-mt-unsafe): in a child of one thread
// As the driver's own does: whoever has registered something earlier is called after it.
TEST(FakeCudaEnd, ComesWhereItWasInitialisedAndEndsWhoeverCallsItAfterwards) {
  static FakeDriver* the_fake = nullptr;
  FakeDriver fake;
  the_fake = &fake;
  const auto call = [] { (void)the_fake->current(); };
  for (const bool before : {true, false}) {
    EXPECT_EQ(run_in_child([&] {
                if (::freopen("/dev/null", "w", stderr) == nullptr) return 1;
                if (before) std::atexit(call);
                if (fake.call(cuda::kInit)(0) != cuda::kSuccess) return 2;
                if (!before) std::atexit(call);
                std::exit(0);
              }),
              before ? fake_cuda::kBroken : 0);
  }
}

TEST(FakeCudaEnvironment, FailsCallsAndSetsKnobs) {
  EXPECT_EQ(run_in_child([] {
              ::setenv("FAKE_CUDA_FAIL", "cuMemAddressReserve:2,cuInit:1", 1);
              ::setenv("FAKE_CUDA_SET", "devices=3", 1);
              FakeDriver fake;
              if (fake.call(cuda::kInit)(0) != cuda::kOperatingSystem) return 1;
              if (fake.call(cuda::kInit)(0) != cuda::kSuccess) return 2;
              int device = 0;
              if (fake.call(cuda::kDeviceGet)(&device, 2) != cuda::kSuccess) return 3;
              CUdeviceptr start = 0;
              auto* const reserve = fake.call(cuda::kMemAddressReserve);
              if (reserve(&start, kSlice, 0, 0, 0) != cuda::kSuccess) return 4;
              if (reserve(&start, kSlice, 0, 0, 0) != cuda::kOperatingSystem) return 5;
              return reserve(&start, kSlice, 0, 0, 0);
            }),
            0);
}

TEST(FakeCudaEnvironment, EndsAProcessThatBreaksARuleOrLeavesSomething) {
  const auto with = [](void (*body)(FakeDriver&)) {
    return run_in_child([body] {
      ::setenv("FAKE_CUDA_STRICT", "1", 1);
      if (::freopen("/dev/null", "w", stderr) == nullptr) return 1;
      FakeDriver fake;
      if (fake.call(cuda::kInit)(0) != cuda::kSuccess) return 2;
      body(fake);
      std::exit(0);
    });
  };
  EXPECT_EQ(with([](FakeDriver&) {}), 0);
  EXPECT_EQ(with([](FakeDriver& fake) { (void)fake.call(cuda::kMemRelease)(1); }),
            fake_cuda::kBroken);
  EXPECT_EQ(with([](FakeDriver& fake) {
              CUdeviceptr start = 0;
              (void)fake.call(cuda::kMemAddressReserve)(&start, kSlice, 0, 0, 0);
            }),
            fake_cuda::kBroken);
}
// NOLINTEND(concurrency-mt-unsafe)

}  // namespace
}  // namespace carveout::test
