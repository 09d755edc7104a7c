// nvml_abi.hpp of the probe against NVIDIA's nvml.h, at compile time. Built only where there is
// one.

#include <gtest/gtest.h>
#include <nvml.h>

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "engines/nvml_abi.hpp"
#include "unit/same_call.hpp"

namespace carveout::test {
namespace {

using namespace probe;  // NOLINT(google-build-using-namespace): nvml::kInit

#define SAME(ours, call)                                                        \
  static_assert(SameCall<decltype(nvml::ours)::Type, decltype(::call)>::kSame); \
  static_assert(std::string_view(nvml::ours.name) == #call)

SAME(kInit, nvmlInit_v2);
SAME(kShutdown, nvmlShutdown);
SAME(kDeviceByBusId, nvmlDeviceGetHandleByPciBusId_v2);
SAME(kDriverVersion, nvmlSystemGetDriverVersion);
SAME(kClock, nvmlDeviceGetClockInfo);
SAME(kTemperature, nvmlDeviceGetTemperature);
SAME(kComputing, nvmlDeviceGetComputeRunningProcesses_v3);
SAME(kDrawing, nvmlDeviceGetGraphicsRunningProcesses_v3);

#define EQUAL(ours, theirs) static_assert(static_cast<int>(nvml::ours) == static_cast<int>(theirs))
EQUAL(kSuccess, NVML_SUCCESS);
EQUAL(kNotSupported, NVML_ERROR_NOT_SUPPORTED);
EQUAL(kNotFound, NVML_ERROR_NOT_FOUND);
EQUAL(kInsufficientSize, NVML_ERROR_INSUFFICIENT_SIZE);
EQUAL(kClockSm, NVML_CLOCK_SM);
EQUAL(kClockMemory, NVML_CLOCK_MEM);
EQUAL(kTemperatureGpu, NVML_TEMPERATURE_GPU);
EQUAL(kVersionLength, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE);

static_assert(sizeof(nvml::Device) == sizeof(::nvmlDevice_t));
static_assert(sizeof(nvml::ProcessInfo) == sizeof(::nvmlProcessInfo_t));
#define SAME_MEMBER(ours, theirs)                                                             \
  static_assert(offsetof(nvml::ProcessInfo, ours) == offsetof(::nvmlProcessInfo_t, theirs) && \
                sizeof(nvml::ProcessInfo::ours) == sizeof(::nvmlProcessInfo_t::theirs))
SAME_MEMBER(pid, pid);
SAME_MEMBER(used_bytes, usedGpuMemory);
SAME_MEMBER(gpu_instance, gpuInstanceId);
SAME_MEMBER(compute_instance, computeInstanceId);

// That it was compiled is the test.
TEST(NvmlHeader, IsWhatOursSays) {
  SUCCEED() << "held against NVML API " << NVML_API_VERSION;
}

}  // namespace
}  // namespace carveout::test
