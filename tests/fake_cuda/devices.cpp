// The fake driver's devices and contexts.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "gpu/calls.hpp"
#include "state.hpp"

namespace carveout::fake_cuda {
namespace {

// Attributes of a real one that it has nothing of.
constexpr std::array kNone{kAttributeCapabilityMajor, kAttributeCapabilityMinor,
                           kAttributeSameHostPointer};
constexpr int kMultiprocessors = 3;

bool is_device(CUdevice device) {
  return device >= 0 && device < knob("devices");
}

// What a context takes with it when it goes.
bool has_something(CUcontext context) {
  const State& all = state();
  const auto in = [&](std::uint64_t thing, CUcontext its) {
    return its == context && !is_stuck(thing);
  };
  return std::any_of(all.buffers.begin(), all.buffers.end(),
                     [&](const auto& one) { return in(one.first, one.second.context); }) ||
         std::any_of(all.registered.begin(), all.registered.end(),
                     [&](const auto& one) { return in(pointer(one.first), one.second.context); }) ||
         std::any_of(
             all.imported.begin(), all.imported.end(),
             [&](CUexternalMemory memory) { return in(pointer(memory), memory->context); }) ||
         std::any_of(all.modules.begin(), all.modules.end(),
                     [&](CUmodule module) { return in(pointer(module), module->context); }) ||
         std::any_of(all.events.begin(), all.events.end(),
                     [&](CUevent event) { return in(pointer(event), event->context); });
}

// As the driver does, which is gone before whoever has registered something earlier.
void register_end() {
  static bool registered = false;
  if (std::exchange(registered, true)) return;
  (void)std::atexit([] {
    State& all = state();
    if (all.process != ::getpid()) return;
    all.exiting = true;
    if (all.at_end != nullptr) all.at_end();
  });
}

}  // namespace
}  // namespace carveout::fake_cuda

using namespace carveout;             // NOLINT(google-build-using-namespace): its own
using namespace carveout::fake_cuda;  // NOLINT(google-build-using-namespace): its own

FAKE_CUDA_EXPORT CUresult cuInit(unsigned flags) {
  const Call call("cuInit", Needs::kNothing);
  if (call.refused() != kSuccess) return call.refused();
  if (flags != 0) return broken("cuInit with flags", kInvalidValue);
  if (knob("devices") == 0) return kNoDevice;
  state().process = ::getpid();
  register_end();
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuDriverGetVersion(int* version) {
  const Call call("cuDriverGetVersion", Needs::kNothing);
  if (call.refused() != kSuccess) return call.refused();
  *version = static_cast<int>(knob("driver"));
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuGetErrorName(CUresult error, const char** name) {
  struct Name {
    CUresult number;
    const char* name;
  };
  static constexpr Name kNames[] = {
      {kSuccess, "CUDA_SUCCESS"},
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
      {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
      {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kInvalidPtx, "CUDA_ERROR_INVALID_PTX"},
      {kOperatingSystem, "CUDA_ERROR_OPERATING_SYSTEM"},
      {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
      {kNoSuchName, "CUDA_ERROR_NOT_FOUND"},
      {kNotReady, "CUDA_ERROR_NOT_READY"},
      {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {kHostMemoryAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
      {kHostMemoryNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
      {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED"},
      {kSystemDriverMismatch, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}};
  *name = nullptr;
  for (const Name& known : kNames) {
    if (known.number == error) *name = known.name;
  }
  return *name != nullptr ? kSuccess : kInvalidValue;
}

FAKE_CUDA_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  const Call call("cuDeviceGet", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  if (!is_device(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  const Call call("cuDeviceGetName", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  if (!is_device(device)) return kInvalidDevice;
  std::snprintf(name, static_cast<std::size_t>(length), "Fake GPU %d", device);
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  const Call call("cuDeviceGetAttribute", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  if (!is_device(device)) return kInvalidDevice;
  if (attribute == kAttributeVirtualMemory) {
    *value = static_cast<int>(knob("vmm"));
  } else if (attribute == kAttributePosixDescriptor) {
    *value = static_cast<int>(knob("export"));
  } else if (attribute == kAttributeIntegrated) {
    *value = static_cast<int>(knob("integrated"));
  } else if (attribute == kAttributeL2Bytes) {
    *value = static_cast<int>(knob("l2"));
  } else if (attribute == kAttributeMultiprocessors) {
    *value = kMultiprocessors;
  } else if (std::find(kNone.begin(), kNone.end(), attribute) != kNone.end()) {
    *value = 0;
  } else {
    return kInvalidValue;
  }
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  const Call call("cuDeviceGetPCIBusId", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  if (!is_device(device)) return kInvalidDevice;
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const Call call("cuDevicePrimaryCtxRetain", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  if (!is_device(device)) return kInvalidDevice;
  CUcontext& primary = state().primaries[device];
  if (primary == nullptr) {
    primary = new carveout::cuda::OpaqueContext{device, true, 0};
    state().contexts.insert(primary);
  }
  ++primary->retained;
  *context = primary;
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  const Call call("cuDevicePrimaryCtxRelease", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  CUcontext& primary = state().primaries[device];
  if (primary == nullptr) return broken("a context released that nobody retained", kInvalidContext);
  if (--primary->retained == 0) {
    if (has_something(primary)) (void)broken("a context ended that something was in", kSuccess);
    if (state().stuck_contexts == 0 &&
        std::find(stack().begin(), stack().end(), primary) != stack().end()) {
      (void)broken("a context ended that was current", kSuccess);
    }
    state().contexts.erase(primary);
    state().ended.push_back(primary);
    primary = nullptr;
  }
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  const Call call("cuCtxGetCurrent", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  *context = current();
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  const Call call("cuCtxGetDevice", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  *device = current()->device;
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  const Call call("cuCtxPushCurrent", Needs::kInit);
  state().outside = call.refused() != kSuccess;
  if (call.refused() != kSuccess) return call.refused();
  if (!state().contexts.contains(context)) {
    return broken("a context pushed that there is not", kInvalidContext);
  }
  stack().push_back(context);
  ++state().pushed;
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  const Call call("cuCtxPopCurrent", Needs::kInit);
  if (call.refused() != kSuccess) {
    ++state().stuck_contexts;
    return call.refused();
  }
  if (stack().empty()) return broken("a pop without a push", kInvalidContext);
  *context = current();
  stack().pop_back();
  --state().pushed;
  return call.done();
}
