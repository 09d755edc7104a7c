#pragma once

// What we use of the CUDA driver API, declared by ourselves so that no toolkit is needed to build.
// tests/unit/cuda_header_test.cpp holds every line of it against NVIDIA's cuda.h where there is
// one. What is an enumeration there is the int that it is passed as.

#include <cstddef>
#include <cstdint>

namespace carveout::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUmemGenericAllocationHandle = unsigned long long;
using CUcontext = struct OpaqueContext*;
using CUexternalMemory = struct OpaqueExternalMemory*;
using CUmodule = struct OpaqueModule*;
using CUfunction = struct OpaqueFunction*;
using CUevent = struct OpaqueEvent*;
// Null: the stream that everything is in order in.
using CUstream = struct OpaqueStream*;

inline constexpr CUresult kSuccess = 0;
inline constexpr CUresult kInvalidValue = 1;
inline constexpr CUresult kOutOfMemory = 2;
inline constexpr CUresult kNotInitialized = 3;
inline constexpr CUresult kDeinitialized = 4;
inline constexpr CUresult kStubLibrary = 34;
inline constexpr CUresult kNoDevice = 100;
inline constexpr CUresult kInvalidDevice = 101;
inline constexpr CUresult kInvalidContext = 201;
inline constexpr CUresult kInvalidPtx = 218;
inline constexpr CUresult kOperatingSystem = 304;
inline constexpr CUresult kInvalidHandle = 400;
inline constexpr CUresult kNoSuchName = 500;
inline constexpr CUresult kNotReady = 600;
inline constexpr CUresult kIllegalAddress = 700;
inline constexpr CUresult kHostMemoryAlreadyRegistered = 712;
inline constexpr CUresult kHostMemoryNotRegistered = 713;
inline constexpr CUresult kNotSupported = 801;
inline constexpr CUresult kSystemDriverMismatch = 803;

inline constexpr int kAttributeMultiprocessors = 16;
inline constexpr int kAttributeIntegrated = 18;
inline constexpr int kAttributeL2Bytes = 38;
inline constexpr int kAttributeVirtualMemory = 102;
inline constexpr int kAttributePosixDescriptor = 103;

inline constexpr int kAllocationPinned = 1;
inline constexpr int kLocationDevice = 1;
inline constexpr int kHandlePosixDescriptor = 1;
inline constexpr int kAccessReadWrite = 3;
inline constexpr int kGranularityMinimum = 0;

inline constexpr int kExternalOpaqueFd = 1;
inline constexpr int kExternalDmaBufFd = 9;

inline constexpr unsigned kHostRegisterDeviceMap = 0x02;
inline constexpr unsigned kHostRegisterIoMemory = 0x04;

struct MemLocation {
  int type = 0;
  int id = 0;
};

struct MemAllocationProp {
  int type = 0;
  int requested_handle_types = 0;
  MemLocation location;
  void* win32_handle_meta_data = nullptr;
  struct {
    unsigned char compression_type = 0;
    unsigned char gpu_direct_rdma_capable = 0;
    unsigned short usage = 0;
    unsigned char reserved[4] = {};
  } flags;
};

struct MemAccessDesc {
  MemLocation location;
  int flags = 0;
};

struct ExternalMemoryHandleDesc {
  int type = 0;
  union {
    int fd;
    struct {
      void* handle;
      const void* name;
    } win32 = {};
    const void* nv_sci_buf_object;
  } handle;
  unsigned long long size = 0;
  unsigned int flags = 0;
  unsigned int reserved[16] = {};
};

struct ExternalMemoryBufferDesc {
  unsigned long long offset = 0;
  unsigned long long size = 0;
  unsigned int flags = 0;
  unsigned int reserved[16] = {};
};

// One call of the driver: what cuGetProcAddress knows it by and since which CUDA (1000 * major +
// 10 * minor) it has this signature, and the symbol that older drivers export it under.
template <typename Function>
struct Entry {
  using Type = Function;
  const char* name;
  const char* symbol;
  int since;
};

inline constexpr Entry<CUresult(unsigned)> kInit{"cuInit", "cuInit", 2000};
inline constexpr Entry<CUresult(int*)> kDriverGetVersion{"cuDriverGetVersion", "cuDriverGetVersion",
                                                         2020};
inline constexpr Entry<CUresult(CUresult, const char**)> kGetErrorName{"cuGetErrorName",
                                                                       "cuGetErrorName", 6000};
inline constexpr Entry<CUresult(CUdevice*, int)> kDeviceGet{"cuDeviceGet", "cuDeviceGet", 2000};
inline constexpr Entry<CUresult(int*, int, CUdevice)> kDeviceGetAttribute{
    "cuDeviceGetAttribute", "cuDeviceGetAttribute", 2000};
inline constexpr Entry<CUresult(char*, int, CUdevice)> kDeviceGetName{"cuDeviceGetName",
                                                                      "cuDeviceGetName", 2000};
inline constexpr Entry<CUresult(char*, int, CUdevice)> kDeviceGetPciBusId{
    "cuDeviceGetPCIBusId", "cuDeviceGetPCIBusId", 4010};
inline constexpr Entry<CUresult(CUcontext*, CUdevice)> kPrimaryCtxRetain{
    "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", 7000};
inline constexpr Entry<CUresult(CUdevice)> kPrimaryCtxRelease{
    "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", 11000};
inline constexpr Entry<CUresult(CUcontext*)> kCtxGetCurrent{"cuCtxGetCurrent", "cuCtxGetCurrent",
                                                            4000};
inline constexpr Entry<CUresult(CUcontext)> kCtxPushCurrent{"cuCtxPushCurrent",
                                                            "cuCtxPushCurrent_v2", 4000};
inline constexpr Entry<CUresult(CUcontext*)> kCtxPopCurrent{"cuCtxPopCurrent", "cuCtxPopCurrent_v2",
                                                            4000};
inline constexpr Entry<CUresult(CUdevice*)> kCtxGetDevice{"cuCtxGetDevice", "cuCtxGetDevice", 2000};
inline constexpr Entry<CUresult()> kCtxSynchronize{"cuCtxSynchronize", "cuCtxSynchronize", 2000};

inline constexpr Entry<CUresult(std::size_t*, const MemAllocationProp*, int)> kMemGetGranularity{
    "cuMemGetAllocationGranularity", "cuMemGetAllocationGranularity", 10020};
inline constexpr Entry<CUresult(CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr,
                                unsigned long long)>
    kMemAddressReserve{"cuMemAddressReserve", "cuMemAddressReserve", 10020};
inline constexpr Entry<CUresult(CUdeviceptr, std::size_t)> kMemAddressFree{
    "cuMemAddressFree", "cuMemAddressFree", 10020};
inline constexpr Entry<CUresult(CUmemGenericAllocationHandle*, std::size_t,
                                const MemAllocationProp*, unsigned long long)>
    kMemCreate{"cuMemCreate", "cuMemCreate", 10020};
inline constexpr Entry<CUresult(CUmemGenericAllocationHandle)> kMemRelease{"cuMemRelease",
                                                                           "cuMemRelease", 10020};
inline constexpr Entry<CUresult(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle,
                                unsigned long long)>
    kMemMap{"cuMemMap", "cuMemMap", 10020};
inline constexpr Entry<CUresult(CUdeviceptr, std::size_t)> kMemUnmap{"cuMemUnmap", "cuMemUnmap",
                                                                     10020};
inline constexpr Entry<CUresult(CUdeviceptr, std::size_t, const MemAccessDesc*, std::size_t)>
    kMemSetAccess{"cuMemSetAccess", "cuMemSetAccess", 10020};
inline constexpr Entry<CUresult(void*, CUmemGenericAllocationHandle, int, unsigned long long)>
    kMemExport{"cuMemExportToShareableHandle", "cuMemExportToShareableHandle", 10020};
inline constexpr Entry<CUresult(CUmemGenericAllocationHandle*, void*, int)> kMemImport{
    "cuMemImportFromShareableHandle", "cuMemImportFromShareableHandle", 10020};

inline constexpr Entry<CUresult(CUexternalMemory*, const ExternalMemoryHandleDesc*)>
    kImportExternalMemory{"cuImportExternalMemory", "cuImportExternalMemory", 10000};
inline constexpr Entry<CUresult(CUdeviceptr*, CUexternalMemory, const ExternalMemoryBufferDesc*)>
    kExternalMemoryGetMappedBuffer{"cuExternalMemoryGetMappedBuffer",
                                   "cuExternalMemoryGetMappedBuffer", 10000};
inline constexpr Entry<CUresult(CUexternalMemory)> kDestroyExternalMemory{
    "cuDestroyExternalMemory", "cuDestroyExternalMemory", 10000};
inline constexpr Entry<CUresult(CUdeviceptr*, std::size_t)> kMemAlloc{"cuMemAlloc", "cuMemAlloc_v2",
                                                                      3020};
inline constexpr Entry<CUresult(CUdeviceptr)> kMemFree{"cuMemFree", "cuMemFree_v2", 3020};
inline constexpr Entry<CUresult(CUdeviceptr, unsigned char, std::size_t)> kMemsetD8{
    "cuMemsetD8", "cuMemsetD8_v2", 3020};
inline constexpr Entry<CUresult(CUdeviceptr, const void*, std::size_t)> kMemcpyHtoD{
    "cuMemcpyHtoD", "cuMemcpyHtoD_v2", 3020};
inline constexpr Entry<CUresult(void*, CUdeviceptr, std::size_t)> kMemcpyDtoH{
    "cuMemcpyDtoH", "cuMemcpyDtoH_v2", 3020};
inline constexpr Entry<CUresult(CUdeviceptr, CUdeviceptr, std::size_t, CUstream)> kMemcpyDtoDAsync{
    "cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2", 3020};

inline constexpr Entry<CUresult(CUmodule*, const void*)> kModuleLoadData{"cuModuleLoadData",
                                                                         "cuModuleLoadData", 2000};
inline constexpr Entry<CUresult(CUmodule)> kModuleUnload{"cuModuleUnload", "cuModuleUnload", 2000};
inline constexpr Entry<CUresult(CUfunction*, CUmodule, const char*)> kModuleGetFunction{
    "cuModuleGetFunction", "cuModuleGetFunction", 2000};
inline constexpr Entry<CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                unsigned, unsigned, CUstream, void**, void**)>
    kLaunchKernel{"cuLaunchKernel", "cuLaunchKernel", 4000};
inline constexpr Entry<CUresult(CUevent*, unsigned)> kEventCreate{"cuEventCreate", "cuEventCreate",
                                                                  2000};
inline constexpr Entry<CUresult(CUevent)> kEventDestroy{"cuEventDestroy", "cuEventDestroy_v2",
                                                        4000};
inline constexpr Entry<CUresult(CUevent, CUstream)> kEventRecord{"cuEventRecord", "cuEventRecord",
                                                                 2000};
inline constexpr Entry<CUresult(CUevent)> kEventSynchronize{"cuEventSynchronize",
                                                            "cuEventSynchronize", 2000};
inline constexpr Entry<CUresult(CUevent)> kEventQuery{"cuEventQuery", "cuEventQuery", 2000};
inline constexpr Entry<CUresult(float*, CUevent, CUevent)> kEventElapsedTime{
    "cuEventElapsedTime", "cuEventElapsedTime", 2000};

inline constexpr Entry<CUresult(void*, std::size_t, unsigned)> kMemHostRegister{
    "cuMemHostRegister", "cuMemHostRegister_v2", 6050};
inline constexpr Entry<CUresult(void*)> kMemHostUnregister{"cuMemHostUnregister",
                                                           "cuMemHostUnregister", 4000};
inline constexpr Entry<CUresult(CUdeviceptr*, void*, unsigned)> kMemHostGetDevicePointer{
    "cuMemHostGetDevicePointer", "cuMemHostGetDevicePointer_v2", 3020};

}  // namespace carveout::cuda
