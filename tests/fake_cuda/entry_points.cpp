// How the fake driver's calls are found. Built as one of CUDA 11 (FAKE_CUDA_11) it has only the
// first cuGetProcAddress; as an older one (FAKE_CUDA_OLD) none, and it imports no handles.

#include <array>
#include <cstring>
#include <mutex>

#include "gpu/calls.hpp"
#include "state.hpp"

using namespace carveout::fake_cuda;  // NOLINT(google-build-using-namespace): its own

extern "C" {
decltype(kInit)::Type cuInit;
decltype(kDriverGetVersion)::Type cuDriverGetVersion;
decltype(kGetErrorName)::Type cuGetErrorName;
decltype(kDeviceGet)::Type cuDeviceGet;
decltype(kDeviceGetAttribute)::Type cuDeviceGetAttribute;
decltype(kDeviceGetName)::Type cuDeviceGetName;
decltype(kDeviceGetPciBusId)::Type cuDeviceGetPCIBusId;
decltype(kPrimaryCtxRetain)::Type cuDevicePrimaryCtxRetain;
decltype(kPrimaryCtxRelease)::Type cuDevicePrimaryCtxRelease_v2;
decltype(kCtxGetCurrent)::Type cuCtxGetCurrent;
decltype(kCtxPushCurrent)::Type cuCtxPushCurrent_v2;
decltype(kCtxPopCurrent)::Type cuCtxPopCurrent_v2;
decltype(kCtxGetDevice)::Type cuCtxGetDevice;
decltype(kCtxSynchronize)::Type cuCtxSynchronize;
decltype(kMemGetGranularity)::Type cuMemGetAllocationGranularity;
decltype(kMemAddressReserve)::Type cuMemAddressReserve;
decltype(kMemAddressFree)::Type cuMemAddressFree;
decltype(kMemCreate)::Type cuMemCreate;
decltype(kMemRelease)::Type cuMemRelease;
decltype(kMemMap)::Type cuMemMap;
decltype(kMemUnmap)::Type cuMemUnmap;
decltype(kMemSetAccess)::Type cuMemSetAccess;
decltype(kMemExport)::Type cuMemExportToShareableHandle;
#ifndef FAKE_CUDA_OLD
decltype(kMemImport)::Type cuMemImportFromShareableHandle;
#endif
decltype(kImportExternalMemory)::Type cuImportExternalMemory;
decltype(kExternalMemoryGetMappedBuffer)::Type cuExternalMemoryGetMappedBuffer;
decltype(kDestroyExternalMemory)::Type cuDestroyExternalMemory;
decltype(kMemAlloc)::Type cuMemAlloc_v2;
decltype(kMemFree)::Type cuMemFree_v2;
decltype(kMemsetD8)::Type cuMemsetD8_v2;
decltype(kMemsetD32)::Type cuMemsetD32_v2;
decltype(kMemcpyHtoD)::Type cuMemcpyHtoD_v2;
decltype(kMemcpyDtoH)::Type cuMemcpyDtoH_v2;
decltype(kMemcpyDtoDAsync)::Type cuMemcpyDtoDAsync_v2;
decltype(kModuleLoadData)::Type cuModuleLoadData;
decltype(kModuleUnload)::Type cuModuleUnload;
decltype(kModuleGetFunction)::Type cuModuleGetFunction;
decltype(kLaunchKernel)::Type cuLaunchKernel;
decltype(kEventCreate)::Type cuEventCreate;
decltype(kEventDestroy)::Type cuEventDestroy_v2;
decltype(kEventRecord)::Type cuEventRecord;
decltype(kEventSynchronize)::Type cuEventSynchronize;
decltype(kEventQuery)::Type cuEventQuery;
decltype(kEventElapsedTime)::Type cuEventElapsedTime;
decltype(kMemHostRegister)::Type cuMemHostRegister_v2;
decltype(kMemHostUnregister)::Type cuMemHostUnregister;
decltype(kMemHostGetDevicePointer)::Type cuMemHostGetDevicePointer_v2;
}

#ifndef FAKE_CUDA_OLD

namespace {

struct Known {
  const char* name;
  int since;
  void* place;
};

template <typename Function>
Known known(const carveout::cuda::Entry<Function>& entry, Function* place) {
  return {entry.name, entry.since, reinterpret_cast<void*>(place)};
}

const auto& table() {
  static const std::array kTable{
      known(kInit, cuInit),
      known(kDriverGetVersion, cuDriverGetVersion),
      known(kGetErrorName, cuGetErrorName),
      known(kDeviceGet, cuDeviceGet),
      known(kDeviceGetAttribute, cuDeviceGetAttribute),
      known(kDeviceGetName, cuDeviceGetName),
      known(kDeviceGetPciBusId, cuDeviceGetPCIBusId),
      known(kPrimaryCtxRetain, cuDevicePrimaryCtxRetain),
      known(kPrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2),
      known(kCtxGetCurrent, cuCtxGetCurrent),
      known(kCtxPushCurrent, cuCtxPushCurrent_v2),
      known(kCtxPopCurrent, cuCtxPopCurrent_v2),
      known(kCtxGetDevice, cuCtxGetDevice),
      known(kCtxSynchronize, cuCtxSynchronize),
      known(kMemGetGranularity, cuMemGetAllocationGranularity),
      known(kMemAddressReserve, cuMemAddressReserve),
      known(kMemAddressFree, cuMemAddressFree),
      known(kMemCreate, cuMemCreate),
      known(kMemRelease, cuMemRelease),
      known(kMemMap, cuMemMap),
      known(kMemUnmap, cuMemUnmap),
      known(kMemSetAccess, cuMemSetAccess),
      known(kMemExport, cuMemExportToShareableHandle),
      known(kMemImport, cuMemImportFromShareableHandle),
      known(kImportExternalMemory, cuImportExternalMemory),
      known(kExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedBuffer),
      known(kDestroyExternalMemory, cuDestroyExternalMemory),
      known(kMemAlloc, cuMemAlloc_v2),
      known(kMemFree, cuMemFree_v2),
      known(kMemsetD8, cuMemsetD8_v2),
      known(kMemsetD32, cuMemsetD32_v2),
      known(kMemcpyHtoD, cuMemcpyHtoD_v2),
      known(kMemcpyDtoH, cuMemcpyDtoH_v2),
      known(kMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2),
      known(kModuleLoadData, cuModuleLoadData),
      known(kModuleUnload, cuModuleUnload),
      known(kModuleGetFunction, cuModuleGetFunction),
      known(kLaunchKernel, cuLaunchKernel),
      known(kEventCreate, cuEventCreate),
      known(kEventDestroy, cuEventDestroy_v2),
      known(kEventRecord, cuEventRecord),
      known(kEventSynchronize, cuEventSynchronize),
      known(kEventQuery, cuEventQuery),
      known(kEventElapsedTime, cuEventElapsedTime),
      known(kMemHostRegister, cuMemHostRegister_v2),
      known(kMemHostUnregister, cuMemHostUnregister),
      known(kMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2)};
  return kTable;
}

// As documented: what is not found is no failure, but null, and the reason beside it.
CUresult find(const char* name, void** place, int version, std::uint64_t flags, int* status) {
  constexpr int kFound = 0;
  constexpr int kNotFound = 1;
  constexpr int kTooOld = 2;
  *place = nullptr;
  {
    const std::lock_guard<std::recursive_mutex> lock(state().mutex);
    ++state().calls["cuGetProcAddress"];
    ++state().calls[""];
  }
  if (version > knob("driver") || flags != 0) return kInvalidValue;
  *status = kNotFound;
  for (const Known& one : table()) {
    if (std::strcmp(one.name, name) != 0 || state().hidden.contains(name)) continue;
    *status = version < one.since ? kTooOld : kFound;
    if (*status == kFound) *place = one.place;
  }
  return kSuccess;
}

}  // namespace

FAKE_CUDA_EXPORT CUresult cuGetProcAddress(const char* name, void** place, int version,
                                           std::uint64_t flags) {
  int ignored = 0;
  return find(name, place, version, flags, &ignored);
}

#ifndef FAKE_CUDA_11
FAKE_CUDA_EXPORT CUresult cuGetProcAddress_v2(const char* name, void** place, int version,
                                              std::uint64_t flags, int* status) {
  return find(name, place, version, flags, status);
}
#endif

#endif
