// The fake driver's memory: real memory in memory files, mapped where its device addresses are.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "fake_cuda.hpp"
#include "state.hpp"

namespace carveout::fake_cuda {
namespace {

std::size_t granularity() {
  return static_cast<std::size_t>(knob("granularity"));
}

bool is_whole(std::uint64_t number) {
  return number % granularity() == 0;
}

bool is_good(const MemAllocationProp* properties) {
  return properties != nullptr && properties->type == kAllocationPinned &&
         properties->location.type == kLocationDevice && properties->location.id >= 0 &&
         properties->location.id < knob("devices") &&
         properties->win32_handle_meta_data == nullptr && properties->flags.usage == 0 &&
         (properties->requested_handle_types & ~1) == 0;
}

// Whether [at, at + size) is inside one reservation, and free of mappings.
bool is_reserved(CUdeviceptr at, std::size_t size) {
  const auto after = state().reserved.upper_bound(at);
  if (after == state().reserved.begin()) return false;
  const auto [start, length] = *std::prev(after);
  return size <= length && at - start <= length - size;
}

enum class Which { kAll, kNotStuck };
bool has_mapping(CUdeviceptr at, std::size_t size, Which which = Which::kAll) {
  const auto& mapped = state().mapped;
  return std::any_of(mapped.begin(), mapped.end(), [&](const auto& one) {
    return one.first < at + size && at < one.first + one.second.size &&
           (which == Which::kAll || !is_stuck(one.first));
  });
}

CUmemGenericAllocationHandle keep(UniqueFd file, std::size_t size, bool exportable) {
  const CUmemGenericAllocationHandle handle = state().next_handle++;
  state().allocations[handle] = {std::move(file), size, exportable};
  return handle;
}

// Full of what somebody had there before.
UniqueFd make_memory(std::size_t size) {
  UniqueFd file(::memfd_create(kOwnName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(size)) != 0) return {};
  void* const place = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (place == MAP_FAILED) return {};
  std::memset(place, 0xCD, size);
  ::munmap(place, size);
  ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return file;
}

}  // namespace
}  // namespace carveout::fake_cuda

using namespace carveout;             // NOLINT(google-build-using-namespace): its own
using namespace carveout::fake_cuda;  // NOLINT(google-build-using-namespace): its own

FAKE_CUDA_EXPORT CUresult cuMemGetAllocationGranularity(std::size_t* size,
                                                        const MemAllocationProp* properties,
                                                        int option) {
  const Call call("cuMemGetAllocationGranularity", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  if (!is_good(properties) || option < 0 || option > 1) {
    return broken("the granularity of memory that cannot be", kInvalidValue);
  }
  *size = granularity();
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* start, std::size_t size,
                                              std::size_t alignment, CUdeviceptr hint,
                                              unsigned long long flags) {
  const Call call("cuMemAddressReserve", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  if (size == 0 || !is_whole(size) || (alignment & (alignment - 1)) != 0 || flags != 0) {
    return broken("a reservation of a wrong size, alignment or flags", kInvalidValue);
  }
  (void)hint;
  // Room enough to cut an aligned range out of.
  const std::size_t unit = std::max(alignment, granularity());
  void* const room =
      ::mmap(nullptr, size + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return kOutOfMemory;
  const CUdeviceptr aligned = (pointer(room) + unit - 1) / unit * unit;
  if (aligned != pointer(room)) ::munmap(room, aligned - pointer(room));
  const std::size_t behind = pointer(room) + size + unit - (aligned + size);
  if (behind != 0) ::munmap(address(aligned + size), behind);
  state().reserved[aligned] = size;
  *start = aligned;
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemAddressFree(CUdeviceptr start, std::size_t size) {
  const Call call("cuMemAddressFree", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  const auto found = state().reserved.find(start);
  if (found == state().reserved.end() || found->second != size) {
    return broken("a range freed that was not reserved so", kInvalidValue);
  }
  if (has_mapping(start, size, Which::kNotStuck)) {
    return broken("a range freed that something is in", kInvalidValue);
  }
  if (has_mapping(start, size)) return kInvalidValue;
  ::munmap(address(start), size);
  state().reserved.erase(found);
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t size,
                                      const MemAllocationProp* properties,
                                      unsigned long long flags) {
  const Call call("cuMemCreate", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  if (!is_good(properties) || size == 0 || !is_whole(size) || flags != 0) {
    return broken("an allocation of a wrong size, kind or flags", kInvalidValue);
  }
  if (knob("limit") != 0 && size > static_cast<std::size_t>(knob("limit"))) return kOutOfMemory;
  UniqueFd memory = make_memory(size);
  if (!memory) return kOperatingSystem;
  *handle = keep(std::move(memory), size, properties->requested_handle_types == 1);
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const Call call("cuMemRelease", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  const auto& mapped = state().mapped;
  if (std::any_of(mapped.begin(), mapped.end(), [&](const auto& one) {
        return one.second.handle == handle && !is_stuck(one.first);
      })) {
    return broken("a handle released whose memory is mapped", kInvalidValue);
  }
  if (state().allocations.erase(handle) == 0) {
    return broken("a handle released that there is not", kInvalidValue);
  }
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemMap(CUdeviceptr at, std::size_t size, std::size_t offset,
                                   CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const Call call("cuMemMap", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  const auto found = state().allocations.find(handle);
  if (found == state().allocations.end()) return broken("no such handle to map", kInvalidValue);
  if (size == 0 || !is_whole(at) || !is_whole(size) || offset != 0 || flags != 0) {
    return broken("a mapping of a wrong place, size, offset or flags", kInvalidValue);
  }
  if (!is_reserved(at, size) || has_mapping(at, size)) {
    return broken("a mapping where nothing is reserved, or something mapped", kInvalidValue);
  }
  if (size > found->second.size) return kInvalidValue;
  if (::mmap(address(at), size, PROT_NONE, MAP_SHARED | MAP_FIXED, found->second.file.get(), 0) ==
      MAP_FAILED) {
    return kOutOfMemory;
  }
  state().mapped[at] = {size, handle, {}};
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemUnmap(CUdeviceptr at, std::size_t size) {
  const Call call("cuMemUnmap", Needs::kInit);
  if (call.refused() != kSuccess) {
    state().stuck.insert(at);
    return call.refused();
  }
  const auto found = state().mapped.find(at);
  if (found == state().mapped.end() || found->second.size != size) {
    return broken("something unmapped that was not mapped so", kInvalidValue);
  }
  if (is_busy(at, size)) {
    (void)broken("memory unmapped that the device is still at", kSuccess);
    state().fills.clear();
  }
  ::mmap(address(at), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0);
  state().mapped.erase(found);
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemSetAccess(CUdeviceptr start, std::size_t size,
                                         const MemAccessDesc* access, std::size_t count) {
  const Call call("cuMemSetAccess", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  if (count != 1 || access->location.type != kLocationDevice || access->location.id < 0 ||
      access->location.id >= knob("devices") || access->flags != kAccessReadWrite) {
    return broken("access for what is no device", kInvalidValue);
  }
  std::vector<MappedRange*> ranges;
  CUdeviceptr at = start;
  while (at < start + size) {
    const auto found = state().mapped.find(at);
    if (found == state().mapped.end()) return broken("access to what is not mapped", kInvalidValue);
    ranges.push_back(&found->second);
    at += found->second.size;
  }
  if (at != start + size) return broken("access to half of a mapping", kInvalidValue);
  for (MappedRange* const range : ranges)
    range->access.insert(access->location.id);
  ::mprotect(address(start), size, PROT_READ | PROT_WRITE);
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemExportToShareableHandle(void* place,
                                                       CUmemGenericAllocationHandle handle,
                                                       int type, unsigned long long flags) {
  const Call call("cuMemExportToShareableHandle", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  const auto found = state().allocations.find(handle);
  if (found == state().allocations.end() || !found->second.exportable ||
      type != kHandlePosixDescriptor || flags != 0) {
    return broken("an export of what cannot be exported so", kInvalidValue);
  }
  // Without O_CLOEXEC: nothing is documented of it.
  const std::string path = cat("/proc/self/fd/", found->second.file.get());
  const int file = ::open(path.c_str(), O_RDWR);  // NOLINT(android-cloexec-open)
  if (file < 0) return kOperatingSystem;
  if (call.done() != kSuccess) {
    ::close(file);
    return call.done();
  }
  *static_cast<int*>(place) = file;
  return kSuccess;
}

#ifndef FAKE_CUDA_OLD
FAKE_CUDA_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                         void* file, int type) {
  const Call call("cuMemImportFromShareableHandle", Needs::kInit);
  if (call.refused() != kSuccess) return call.refused();
  const int descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(file));
  if (type != kHandlePosixDescriptor || !is_own_file(descriptor)) return kInvalidValue;
  UniqueFd copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
  if (!copy) return kOperatingSystem;
  const std::size_t size = length_of(descriptor);
  *handle = keep(std::move(copy), size, true);
  return call.done();
}
#endif
