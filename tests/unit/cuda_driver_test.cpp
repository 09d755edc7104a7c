// Finding the driver, and what is said when it is not there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "base/text.hpp"
#include "cuda/driver.hpp"
#include "fake_cuda/fake_driver.hpp"

namespace carveout::test {
namespace {

using cuda::Context;
using cuda::Driver;
using cuda::Entered;
using testing::HasSubstr;
using testing::Not;

TEST(CudaDriver, IsLoadedAndInitialisedOnce) {
  FakeDriver fake;
  const auto one = Driver::load(fake.library());
  ASSERT_TRUE(one) << one.error().describe();
  const auto two = Driver::load(fake.library());
  ASSERT_TRUE(two);
  EXPECT_EQ(*one, *two);
  EXPECT_EQ(fake.calls("cuInit"), 1);
  EXPECT_EQ((*one)->version(), 13000);
  EXPECT_TRUE((*one)->usable());
  EXPECT_EQ(fake.live(), 0);
}

TEST(CudaDriver, IsLoadedOnceByManyThreads) {
  FakeDriver fake;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&fake] { EXPECT_TRUE(Driver::load(fake.library())); });
    }
  }
  EXPECT_EQ(fake.calls("cuInit"), 1);
}

TEST(CudaDriver, IsNotFoundOnAMachineWithoutIt) {
  const TemporaryDirectory directory;
  const std::size_t before = open_descriptors();
  const auto driver = Driver::load(directory.path("libcuda.so.1"));
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Code::kNotFound);
  EXPECT_EQ(driver.error().number, 0);
  EXPECT_THAT(driver.error().describe(), HasSubstr("libcuda.so.1"));
  EXPECT_THAT(driver.error().describe(), HasSubstr("cannot be loaded"));
  EXPECT_THAT(driver.error().describe(), HasSubstr("No such file"));
  EXPECT_EQ(open_descriptors(), before);
}

TEST(CudaDriver, IsNotFoundWhereTheNameIsNoLibrary) {
  const TemporaryDirectory directory;
  for (const std::string& text : {std::string(), std::string("not an ELF file\n\x1b[31m")}) {
    const auto driver = Driver::load(directory.file("libcuda.so.1", text));
    ASSERT_FALSE(driver);
    EXPECT_EQ(driver.error().code, Code::kNotFound);
  }
}

TEST(CudaDriver, IsNotFoundInALibraryThatIsNoDriver) {
  const auto driver = Driver::load("libm.so.6");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Code::kNotFound);
  EXPECT_THAT(driver.error().describe(), HasSubstr("this driver has no cu"));
}

TEST(CudaDriver, SaysWhatItsInitialisationSaysAndMayBeTriedAgain) {
  FakeDriver fake;
  fake.fail("cuInit", 1, cuda::kSystemDriverMismatch);
  auto driver = Driver::load(fake.library());
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Code::kSystem);
  EXPECT_EQ(driver.error().number, 0);
  EXPECT_THAT(driver.error().describe(), HasSubstr("cuInit failed"));
  EXPECT_THAT(driver.error().describe(), HasSubstr("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"));
  EXPECT_THAT(driver.error().describe(), HasSubstr("CUresult 803"));
  EXPECT_THAT(driver.error().describe(), HasSubstr("kernel module"));
  EXPECT_TRUE(Driver::load(fake.library()));
}

TEST(CudaDriver, IsNotLoadedByHalves) {
  for (const char* entry : {"cuInit", "cuDriverGetVersion"}) {
    FakeDriver fake;
    for (const bool performed : {false, true}) {
      const Footprint before = footprint(fake);
      fake.fail(entry, 1, cuda::kOperatingSystem, performed);
      const auto driver = Driver::load(fake.library());
      ASSERT_FALSE(driver) << entry;
      EXPECT_THAT(driver.error().describe(), HasSubstr(cat(entry, " failed: ")));
      EXPECT_EQ(driver.error().code, Code::kSystem);
      EXPECT_EQ(driver.error().cuda_result, cuda::kOperatingSystem);
      EXPECT_EQ(changes(before, footprint(fake)), std::vector<std::string>());
    }
    const auto driver = Driver::load(fake.library());
    ASSERT_TRUE(driver) << entry;
    EXPECT_TRUE((*driver)->usable());
    EXPECT_EQ((*driver)->version(), 13000);
  }
}

TEST(CudaDriver, NamesAResultThatTheDriverDoesNotKnow) {
  FakeDriver fake;
  fake.fail("cuInit", 1, 4711);
  const auto driver = Driver::load(fake.library());
  ASSERT_FALSE(driver);
  EXPECT_THAT(driver.error().describe(), HasSubstr("cuInit failed: CUresult 4711"));
}

TEST(CudaDriver, FindsNoDevice) {
  FakeDriver fake;
  fake.set("devices", 0);
  const auto driver = Driver::load(fake.library());
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Code::kNotFound);
  EXPECT_THAT(driver.error().describe(), HasSubstr("no CUDA device"));
}

TEST(CudaDriver, IsLoadedAlthoughItLacksWhatOnlySomeNeed) {
  FakeDriver fake;
  fake.hide("cuMemImportFromShareableHandle");
  const auto driver = Driver::load(fake.library());
  ASSERT_TRUE(driver) << driver.error().describe();
  EXPECT_EQ((*driver)->find(cuda::kMemImport), nullptr);
  EXPECT_NE((*driver)->find(cuda::kMemMap), nullptr);
  cuda::Finder find(**driver);
  (void)find(cuda::kMemMap);
  EXPECT_FALSE(find.missing());
  (void)find(cuda::kMemImport);
  ASSERT_TRUE(find.missing());
  EXPECT_EQ(find.missing()->code, Code::kNotFound);
  EXPECT_THAT(find.missing()->describe(),
              HasSubstr("no cuMemImportFromShareableHandle (it speaks CUDA 13.0)"));
}

TEST(CudaDriver, IsRefusedWhereItLacksWhatAllNeed) {
  for (const char* entry : {"cuInit", "cuGetErrorName", "cuCtxPushCurrent",
                            "cuDevicePrimaryCtxRelease", "cuDriverGetVersion"}) {
    FakeDriver fake;
    fake.hide(entry);
    const auto driver = Driver::load(fake.library());
    ASSERT_FALSE(driver) << entry;
    EXPECT_EQ(driver.error().code, Code::kNotFound);
    EXPECT_THAT(driver.error().describe(), HasSubstr(entry));
    EXPECT_EQ(fake.calls("cuInit"), 0);
  }
}

// cuGetProcAddress refuses versions beyond the driver's own.
TEST(CudaDriver, AsksAnOlderDriverForNoNewerCalls) {
  FakeDriver fake;
  fake.set("driver", 11040);
  const auto driver = Driver::load(fake.library());
  ASSERT_TRUE(driver) << driver.error().describe();
  EXPECT_NE((*driver)->find(cuda::kMemImport), nullptr);
  EXPECT_NE((*driver)->find(cuda::kMemHostRegister), nullptr);
}

TEST(CudaDriver, IsFoundInItsVersionsOfBefore) {
  for (const char* which : {"fake_cuda_11", "fake_cuda_old"}) {
    FakeDriver fake(which);
    const auto driver = Driver::load(fake.library());
    ASSERT_TRUE(driver) << which << ": " << driver.error().describe();
    EXPECT_NE((*driver)->find(cuda::kMemFree), nullptr);
    EXPECT_NE((*driver)->find(cuda::kMemHostRegister), nullptr);
    const bool imports = (*driver)->find(cuda::kMemImport) != nullptr;
    EXPECT_EQ(imports, std::string(which) == "fake_cuda_11");
  }
}

TEST(CudaDriver, IsUnusableInAForkedChild) {
  FakeDriver fake;
  const auto driver = Driver::load(fake.library());
  ASSERT_TRUE(driver);
  EXPECT_EQ(run_in_child([&] {
              const int before = fake.calls();
              if ((*driver)->usable()) return 1;
              if (Context::primary(*driver, 0)) return 2;
              if (Context::current_or_primary(*driver, std::nullopt)) return 3;
              return fake.calls() == before ? 0 : 4;
            }),
            0);
}

TEST(CudaContext, IsTheDevicesPrimaryOneWhereNoneIsCurrent) {
  FakeDriver fake;
  const auto driver = Driver::load(fake.library());
  ASSERT_TRUE(driver);
  {
    const auto context = Context::current_or_primary(*driver, std::nullopt);
    ASSERT_TRUE(context);
    EXPECT_EQ(fake.live(), 1);
    EXPECT_EQ(fake.current(), nullptr);
    {
      const Entered entered(*context);
      EXPECT_TRUE(entered);
      EXPECT_NE(fake.current(), nullptr);
    }
    EXPECT_EQ(fake.current(), nullptr);
  }
  EXPECT_EQ(fake.live(), 0);
  EXPECT_EQ(fake.broken_rules(), "");
}

TEST(CudaContext, IsTheCallersWhereItHasOneOfThatDevice) {
  FakeDriver fake;
  fake.set("devices", 2);
  const auto driver = Driver::load(fake.library());
  ASSERT_TRUE(driver);
  const cuda::CUcontext own = fake.make_context(1);
  ASSERT_EQ(fake.call(cuda::kCtxPushCurrent)(own), cuda::kSuccess);
  for (const std::optional<int> device : {std::optional<int>(), std::optional<int>(1)}) {
    const auto context = Context::current_or_primary(*driver, device);
    ASSERT_TRUE(context);
    EXPECT_EQ(context->device(), 1);
    EXPECT_EQ(fake.calls("cuDevicePrimaryCtxRetain"), 0);
    const Entered entered(*context);
    EXPECT_EQ(fake.current(), own);
  }
  const auto other = Context::current_or_primary(*driver, 0);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->device(), 0);
  EXPECT_EQ(fake.calls("cuDevicePrimaryCtxRetain"), 1);
  {
    const Entered entered(*other);
    EXPECT_NE(fake.current(), own);
  }
  EXPECT_EQ(fake.current(), own);
  EXPECT_EQ(fake.broken_rules(), "");
}

TEST(CudaContext, IsNotFoundOnADeviceThatThereIsNot) {
  FakeDriver fake;
  const auto driver = Driver::load(fake.library());
  ASSERT_TRUE(driver);
  for (const int device : {1, 100, -1}) {
    const auto context = Context::current_or_primary(*driver, device);
    ASSERT_FALSE(context);
    EXPECT_EQ(context.error().code, Code::kNotFound);
    EXPECT_THAT(context.error().describe(), HasSubstr(cat("device ", device)));
  }
  EXPECT_EQ(fake.live(), 0);
}

}  // namespace
}  // namespace carveout::test
