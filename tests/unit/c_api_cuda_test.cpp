// The C ABI with a driver: which device it is mapped for, never another one nor the processor where
// one was named, and what the driver's refusals become.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "unit/c_api_driver_fixture.hpp"
#include "unit/c_api_fixture.hpp"

namespace carveout::client {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class CApiCuda : public CApi {
 protected:
  void SetUp() override {
    CApi::SetUp();
    fake_.set("devices", 2);
    fake_.set("register", 1);
    options_.map = CARVEOUT_MAP_AUTO;
    ASSERT_EQ(open(), CARVEOUT_OK) << error_.message;  // what the driver makes for good
    close();
    before_ = test::holdings();
    options_.log_context = this;
    options_.log = [](void* context, int32_t level, const char* line) {
      if (level == CARVEOUT_LOG_WARNING) {
        static_cast<CApiCuda*>(context)->warnings_.emplace_back(line);
      }
    };
  }
  void TearDown() override {
    CApi::TearDown();
    EXPECT_EQ(fake_.live(), 0);
    EXPECT_EQ(fake_.broken_rules(), "");
  }
  void close() { EXPECT_EQ(carveout_close(std::exchange(handle_, nullptr), nullptr), CARVEOUT_OK); }
  void open_for(int device) {
    options_.device = device;
    ASSERT_EQ(open(), CARVEOUT_OK) << error_.message;
  }
  void expect_refused_for(int device, carveout_status_t status, const char* setting,
                          const char* text) {
    options_.device = device;
    expect_refused(status, setting, text);
    EXPECT_EQ(fake_.live(), 0);
  }

  test::FakeDriver& fake_ = test::the_driver();
  std::vector<std::string> warnings_;
};

TEST_F(CApiCuda, IsMappedForTheDeviceThatWasAskedFor) {
  for (const int device : {-1, 0, 1}) {
    open_for(device);
    EXPECT_EQ(info().device, device < 0 ? 0 : device);
    EXPECT_EQ(info().map, CARVEOUT_MAP_REGISTER);
    EXPECT_NE(info().device_pointer, 0U);
    EXPECT_NE(info().host_pointer, nullptr);
    EXPECT_STREQ(info().why_not, "");
    close();
  }
  EXPECT_THAT(warnings_, testing::Each(HasSubstr("huge pages")));
}

TEST_F(CApiCuda, IsMappedForTheCurrentContextsDeviceWhereNoneWasAskedFor) {
  ASSERT_EQ(fake_.call(cuda::kCtxPushCurrent)(fake_.make_context(1)), cuda::kSuccess);
  open_for(-1);
  EXPECT_EQ(info().device, 1);
  close();
  open_for(0);
  EXPECT_EQ(info().device, 0);
  close();
  cuda::CUcontext popped = nullptr;
  ASSERT_EQ(fake_.call(cuda::kCtxPopCurrent)(&popped), cuda::kSuccess);
}

TEST_F(CApiCuda, OfTheSourceCudaLiesOnTheDeviceThatWasAskedFor) {
  options_.source = CARVEOUT_SOURCE_CUDA;
  for (const int device : {-1, 0, 1}) {
    open_for(device);
    EXPECT_EQ(info().device, device < 0 ? 0 : device);
    EXPECT_EQ(info().map, CARVEOUT_MAP_VMM);
    EXPECT_EQ(info().kind, CARVEOUT_KIND_NVIDIA_FILE);
    EXPECT_EQ(info().host_pointer, nullptr);
    close();
  }
  expect_refused_for(99, CARVEOUT_ERROR_NOT_FOUND, "", "CUDA device 99");
}

TEST_F(CApiCuda, IsRefusedForADeviceThatIsNone) {
  for (const int32_t map : {CARVEOUT_MAP_AUTO, CARVEOUT_MAP_REGISTER}) {
    options_.map = map;
    expect_refused_for(99, CARVEOUT_ERROR_NOT_FOUND, "", "CUDA device 99");
    EXPECT_EQ(error_.cuda_result, cuda::kInvalidDevice);
  }
}

TEST_F(CApiCuda, IsNeverMappedForTheProcessorInsteadOfADevice) {
  options_.map = CARVEOUT_MAP_HOST;
  expect_refused_for(0, CARVEOUT_ERROR_INVALID, "CARVEOUT_MAP",
                     "cannot be done by host for device 0");
  fake_.set("register", 0);
  for (const int32_t map : {CARVEOUT_MAP_AUTO, CARVEOUT_MAP_REGISTER}) {
    options_.map = map;
    expect_refused_for(0, CARVEOUT_ERROR_SYSTEM, "", "cuMemHostRegister failed");
    EXPECT_EQ(error_.cuda_result, cuda::kNotSupported);
    EXPECT_EQ(error_.system_errno, 0);
  }
}

TEST_F(CApiCuda, WarnsWhereItIsForTheProcessorOnly) {
  fake_.set("register", 0);
  open_for(-1);
  EXPECT_EQ(info().map, CARVEOUT_MAP_HOST);
  EXPECT_EQ(info().device, -1);
  EXPECT_EQ(info().device_pointer, 0U);
  EXPECT_THAT(info().why_not, AllOf(StartsWith("register: "), HasSubstr("cuMemHostRegister")));
  EXPECT_THAT(warnings_, Contains(AllOf(StartsWith("mapped by host, since others failed: register"),
                                        HasSubstr("cuMemHostRegister"))));
  close();
  warnings_.clear();
  options_.map = CARVEOUT_MAP_HOST;
  open_for(-1);
  EXPECT_EQ(info().device, -1);
  EXPECT_THAT(warnings_, testing::Each(HasSubstr("huge pages"))) << "it was asked for";
}

TEST_F(CApiCuda, SaysWhatCouldNotBeUndone) {
  options_.source = CARVEOUT_SOURCE_CUDA;
  open_for(0);
  warnings_.clear();
  fake_.fail("cuMemUnmap", 1, cuda::kInvalidValue, true);  // it has been done, all the same
  EXPECT_EQ(carveout_close(std::exchange(handle_, nullptr), &error_), CARVEOUT_ERROR_SYSTEM);
  EXPECT_EQ(error_.status, CARVEOUT_ERROR_SYSTEM);
  EXPECT_EQ(error_.cuda_result, cuda::kInvalidValue);
  EXPECT_THAT(error_.message, HasSubstr("cuMemUnmap failed"));
  EXPECT_THAT(warnings_, Contains(std::string(error_.message)));
}

}  // namespace
}  // namespace carveout::client
