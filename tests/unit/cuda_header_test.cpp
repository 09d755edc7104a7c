// cuda/abi.hpp and gpu/calls.hpp against NVIDIA's cuda.h, at compile time. Built only where a
// toolkit is found.

#include "cuda/abi.hpp"

// clang-format off: ours comes first, since cuda.h defines macros of its functions' names
#include <cuda.h>
#include <cudaTypedefs.h>
// clang-format on
#include <gtest/gtest.h>

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "gpu/calls.hpp"
#include "unit/same_call.hpp"

namespace carveout::test {
namespace {

#define TEXT_OF(call) #call
#define TEXT(call) TEXT_OF(call)
// The macros of cuda.h give the versioned symbol; cudaTypedefs.h has the type of each version.
#define SAME(entry, call, version)                                                \
  static_assert(SameCall<decltype(cuda::entry)::Type, decltype(::call)>::kSame);  \
  static_assert(SameCall<decltype(cuda::entry)::Type,                             \
                         std::remove_pointer_t<PFN_##call##_v##version>>::kSame); \
  static_assert(std::string_view(cuda::entry.name) == #call);                     \
  static_assert(std::string_view(cuda::entry.symbol) == TEXT(call));              \
  static_assert(cuda::entry.since == (version))

SAME(kInit, cuInit, 2000);
SAME(kDriverGetVersion, cuDriverGetVersion, 2020);
SAME(kGetErrorName, cuGetErrorName, 6000);
SAME(kDeviceGet, cuDeviceGet, 2000);
SAME(kDeviceGetAttribute, cuDeviceGetAttribute, 2000);
SAME(kDeviceGetName, cuDeviceGetName, 2000);
SAME(kDeviceGetPciBusId, cuDeviceGetPCIBusId, 4010);
SAME(kPrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000);
SAME(kPrimaryCtxRelease, cuDevicePrimaryCtxRelease, 11000);
SAME(kCtxGetCurrent, cuCtxGetCurrent, 4000);
SAME(kCtxPushCurrent, cuCtxPushCurrent, 4000);
SAME(kCtxPopCurrent, cuCtxPopCurrent, 4000);
SAME(kCtxGetDevice, cuCtxGetDevice, 2000);
SAME(kCtxSynchronize, cuCtxSynchronize, 2000);
SAME(kMemGetGranularity, cuMemGetAllocationGranularity, 10020);
SAME(kMemAddressReserve, cuMemAddressReserve, 10020);
SAME(kMemAddressFree, cuMemAddressFree, 10020);
SAME(kMemCreate, cuMemCreate, 10020);
SAME(kMemRelease, cuMemRelease, 10020);
SAME(kMemMap, cuMemMap, 10020);
SAME(kMemUnmap, cuMemUnmap, 10020);
SAME(kMemSetAccess, cuMemSetAccess, 10020);
SAME(kMemExport, cuMemExportToShareableHandle, 10020);
SAME(kMemImport, cuMemImportFromShareableHandle, 10020);
SAME(kImportExternalMemory, cuImportExternalMemory, 10000);
SAME(kExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedBuffer, 10000);
SAME(kDestroyExternalMemory, cuDestroyExternalMemory, 10000);
SAME(kMemAlloc, cuMemAlloc, 3020);
SAME(kMemFree, cuMemFree, 3020);
SAME(kMemsetD8, cuMemsetD8, 3020);
SAME(kMemsetD32, cuMemsetD32, 3020);
SAME(kMemcpyHtoD, cuMemcpyHtoD, 3020);
SAME(kMemcpyDtoH, cuMemcpyDtoH, 3020);
SAME(kMemcpyDtoDAsync, cuMemcpyDtoDAsync, 3020);
SAME(kModuleLoadData, cuModuleLoadData, 2000);
SAME(kModuleUnload, cuModuleUnload, 2000);
SAME(kModuleGetFunction, cuModuleGetFunction, 2000);
SAME(kLaunchKernel, cuLaunchKernel, 4000);
SAME(kEventCreate, cuEventCreate, 2000);
SAME(kEventDestroy, cuEventDestroy, 4000);
SAME(kEventRecord, cuEventRecord, 2000);
SAME(kEventSynchronize, cuEventSynchronize, 2000);
SAME(kEventQuery, cuEventQuery, 2000);
SAME(kMemHostRegister, cuMemHostRegister, 6050);
SAME(kMemHostUnregister, cuMemHostUnregister, 4000);
SAME(kMemHostGetDevicePointer, cuMemHostGetDevicePointer, 3020);

// There is a second version since CUDA 12.8, which says more in its errors. The first one's symbol
// is its name.
static_assert(SameCall<decltype(cuda::kEventElapsedTime)::Type,
                       std::remove_pointer_t<PFN_cuEventElapsedTime_v2000>>::kSame);
static_assert(std::string_view(cuda::kEventElapsedTime.name) == "cuEventElapsedTime");
static_assert(std::string_view(cuda::kEventElapsedTime.symbol) == "cuEventElapsedTime");
static_assert(cuda::kEventElapsedTime.since == 2000);

template <typename Ours, typename Theirs>
constexpr bool kSameShape = sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
#define SAME_MEMBER(ours, member, theirs, its)                             \
  static_assert(offsetof(cuda::ours, member) == offsetof(::theirs, its) && \
                sizeof(cuda::ours::member) == sizeof(::theirs::its))

static_assert(std::is_same_v<cuda::CUdevice, ::CUdevice>);
static_assert(std::is_same_v<cuda::CUdeviceptr, ::CUdeviceptr>);
static_assert(std::is_same_v<cuda::CUmemGenericAllocationHandle, ::CUmemGenericAllocationHandle>);
static_assert(kSameShape<cuda::CUresult, ::CUresult>);
static_assert(kSameShape<cuda::CUcontext, ::CUcontext>);
static_assert(kSameShape<cuda::CUexternalMemory, ::CUexternalMemory>);
static_assert(kSameShape<cuda::CUmodule, ::CUmodule>);
static_assert(kSameShape<cuda::CUfunction, ::CUfunction>);
static_assert(kSameShape<cuda::CUevent, ::CUevent>);
static_assert(kSameShape<cuda::CUstream, ::CUstream>);

static_assert(kSameShape<cuda::MemLocation, ::CUmemLocation>);
SAME_MEMBER(MemLocation, type, CUmemLocation, type);
SAME_MEMBER(MemLocation, id, CUmemLocation, id);

static_assert(kSameShape<cuda::MemAllocationProp, ::CUmemAllocationProp>);
SAME_MEMBER(MemAllocationProp, type, CUmemAllocationProp, type);
SAME_MEMBER(MemAllocationProp, requested_handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_MEMBER(MemAllocationProp, location, CUmemAllocationProp, location);
SAME_MEMBER(MemAllocationProp, win32_handle_meta_data, CUmemAllocationProp, win32HandleMetaData);
SAME_MEMBER(MemAllocationProp, flags, CUmemAllocationProp, allocFlags);
SAME_MEMBER(MemAllocationProp, flags.compression_type, CUmemAllocationProp,
            allocFlags.compressionType);
SAME_MEMBER(MemAllocationProp, flags.gpu_direct_rdma_capable, CUmemAllocationProp,
            allocFlags.gpuDirectRDMACapable);
SAME_MEMBER(MemAllocationProp, flags.usage, CUmemAllocationProp, allocFlags.usage);

static_assert(kSameShape<cuda::MemAccessDesc, ::CUmemAccessDesc>);
SAME_MEMBER(MemAccessDesc, location, CUmemAccessDesc, location);
SAME_MEMBER(MemAccessDesc, flags, CUmemAccessDesc, flags);

static_assert(kSameShape<cuda::ExternalMemoryHandleDesc, ::CUDA_EXTERNAL_MEMORY_HANDLE_DESC>);
SAME_MEMBER(ExternalMemoryHandleDesc, type, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, type);
SAME_MEMBER(ExternalMemoryHandleDesc, handle, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle);
SAME_MEMBER(ExternalMemoryHandleDesc, handle.fd, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle.fd);
SAME_MEMBER(ExternalMemoryHandleDesc, size, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size);
SAME_MEMBER(ExternalMemoryHandleDesc, flags, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, flags);
SAME_MEMBER(ExternalMemoryHandleDesc, reserved, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, reserved);

static_assert(kSameShape<cuda::ExternalMemoryBufferDesc, ::CUDA_EXTERNAL_MEMORY_BUFFER_DESC>);
SAME_MEMBER(ExternalMemoryBufferDesc, offset, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, offset);
SAME_MEMBER(ExternalMemoryBufferDesc, size, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, size);
SAME_MEMBER(ExternalMemoryBufferDesc, flags, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, flags);
SAME_MEMBER(ExternalMemoryBufferDesc, reserved, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, reserved);

#define EQUAL(ours, theirs) static_assert(cuda::ours == static_cast<int>(theirs))
EQUAL(kSuccess, CUDA_SUCCESS);
EQUAL(kInvalidValue, CUDA_ERROR_INVALID_VALUE);
EQUAL(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
EQUAL(kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
EQUAL(kDeinitialized, CUDA_ERROR_DEINITIALIZED);
EQUAL(kStubLibrary, CUDA_ERROR_STUB_LIBRARY);
EQUAL(kNoDevice, CUDA_ERROR_NO_DEVICE);
EQUAL(kInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
EQUAL(kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
EQUAL(kInvalidPtx, CUDA_ERROR_INVALID_PTX);
EQUAL(kOperatingSystem, CUDA_ERROR_OPERATING_SYSTEM);
EQUAL(kInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
EQUAL(kNoSuchName, CUDA_ERROR_NOT_FOUND);
EQUAL(kNotReady, CUDA_ERROR_NOT_READY);
EQUAL(kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
EQUAL(kHostMemoryAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
EQUAL(kHostMemoryNotRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
EQUAL(kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
EQUAL(kSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
EQUAL(kAttributeMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
EQUAL(kAttributeVirtualMemory, CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED);
EQUAL(kAttributePosixDescriptor, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
EQUAL(kAttributeIntegrated, CU_DEVICE_ATTRIBUTE_INTEGRATED);
EQUAL(kAttributeL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
EQUAL(kAttributeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
EQUAL(kAttributeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
EQUAL(kAttributeSameHostPointer, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
EQUAL(kAllocationPinned, CU_MEM_ALLOCATION_TYPE_PINNED);
EQUAL(kLocationDevice, CU_MEM_LOCATION_TYPE_DEVICE);
EQUAL(kHandlePosixDescriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
EQUAL(kAccessReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
EQUAL(kGranularityMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
EQUAL(kExternalOpaqueFd, CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD);
EQUAL(kHostRegisterDeviceMap, CU_MEMHOSTREGISTER_DEVICEMAP);
EQUAL(kHostRegisterIoMemory, CU_MEMHOSTREGISTER_IOMEMORY);
#if CUDA_VERSION >= 13000
EQUAL(kExternalDmaBufFd, CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD);
#endif

// How the others are found. The type of its last parameter is an enumeration of theirs.
static_assert(SameCall<int(const char*, void**, int, std::uint64_t, int*),
                       std::remove_pointer_t<PFN_cuGetProcAddress_v12000>>::kSame);
static_assert(SameCall<int(const char*, void**, int, std::uint64_t),
                       std::remove_pointer_t<PFN_cuGetProcAddress_v11030>>::kSame);

// That it was compiled is the test.
TEST(CudaHeader, IsWhatOursSays) {
  SUCCEED() << "held against CUDA " << CUDA_VERSION;
}

}  // namespace
}  // namespace carveout::test
