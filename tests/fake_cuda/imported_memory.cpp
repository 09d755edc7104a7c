// The fake driver's view of what is not its own: external memory and the host's.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/text.hpp"
#include "fake_cuda.hpp"
#include "state.hpp"

namespace carveout::fake_cuda {
namespace {

bool is_dma_buf(const std::string& name) {
  return name == kDmaBufName || name.starts_with("/dmabuf:");
}

struct Vma {
  std::uint64_t start = 0, end = 0, inode = 0;
  std::string permissions, path;
};

// The one that an address is in, by /proc/self/maps.
std::optional<Vma> vma_at(std::uint64_t at) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    Vma vma;
    char dash = 0;
    std::string offset, device;
    std::istringstream words(line);
    words >> std::hex >> vma.start >> dash >> vma.end >> vma.permissions >> offset >> device >>
        std::dec >> vma.inode >> vma.path;
    if (at >= vma.start && at < vma.end) return vma;
  }
  return std::nullopt;
}

// Whether every page has been touched.
bool is_present(const void* start, std::size_t size) {
  const UniqueFd file(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<std::uint64_t> entries(size / page);
  const std::size_t bytes = entries.size() * sizeof entries[0];
  const auto from = static_cast<off_t>(pointer(start) / page * sizeof entries[0]);
  if (::pread(file.get(), entries.data(), bytes, from) != static_cast<ssize_t>(bytes)) return false;
  return std::all_of(entries.begin(), entries.end(),
                     [](std::uint64_t entry) { return (entry >> 63U) != 0; });
}

bool overlaps_registered(const void* start, std::size_t size) {
  const auto& all = state().registered;
  return std::any_of(all.begin(), all.end(), [&](const auto& one) {
    return pointer(one.first) < pointer(start) + size &&
           pointer(start) < pointer(one.first) + one.second.size;
  });
}

// What importing answers, before it is done.
CUresult judge(const ExternalMemoryHandleDesc& wanted) {
  const auto* const end = wanted.reserved + 16;
  if (wanted.size == 0 || wanted.flags != 0 ||
      std::any_of(wanted.reserved, end, [](unsigned word) { return word != 0; })) {
    return broken("external memory of a wrong size or flags", kInvalidValue);
  }
  if (wanted.type == kExternalDmaBufFd) {
    if (knob("dma-buf") == 0) return kNotSupported;
    if (!is_dma_buf(name_of_file(wanted.handle.fd))) return kInvalidHandle;
  } else if (wanted.type != kExternalOpaqueFd || !is_own_file(wanted.handle.fd)) {
    return kInvalidHandle;
  }
  return wanted.size <= length_of(wanted.handle.fd) ? kSuccess : kInvalidValue;
}

}  // namespace
}  // namespace carveout::fake_cuda

using namespace carveout;             // NOLINT(google-build-using-namespace): its own
using namespace carveout::fake_cuda;  // NOLINT(google-build-using-namespace): its own

FAKE_CUDA_EXPORT CUresult cuImportExternalMemory(CUexternalMemory* memory,
                                                 const ExternalMemoryHandleDesc* wanted) {
  const Call call("cuImportExternalMemory", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  if (const CUresult answer = judge(*wanted); answer != kSuccess) return answer;
  const int given = wanted->handle.fd;
  const bool takes = wanted->type == kExternalOpaqueFd || knob("dma-buf") == 1;
  UniqueFd file(takes ? given : ::fcntl(given, F_DUPFD_CLOEXEC, 3));
  *memory = new carveout::cuda::OpaqueExternalMemory{
      std::move(file), inode_of(given), static_cast<std::size_t>(wanted->size), current()};
  state().imported.insert(*memory);
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr* start,
                                                          CUexternalMemory memory,
                                                          const ExternalMemoryBufferDesc* wanted) {
  const Call call("cuExternalMemoryGetMappedBuffer", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  if (!state().imported.contains(memory)) return broken("no such external memory", kInvalidHandle);
  if (memory->context != current()) return broken("another context's memory", kInvalidContext);
  if (wanted->size == 0 || wanted->offset > memory->size ||
      wanted->size > memory->size - wanted->offset || wanted->flags != 0) {
    return broken("a buffer of a wrong place, size or flags", kInvalidValue);
  }
  void* const place = ::mmap(nullptr, wanted->size, PROT_READ | PROT_WRITE, MAP_SHARED,
                             memory->file.get(), static_cast<off_t>(wanted->offset));
  if (place == MAP_FAILED) return kOutOfMemory;
  *start = pointer(place);
  state().buffers[*start] = {static_cast<std::size_t>(wanted->size), memory, current()};
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* start, std::size_t size) {
  const Call call("cuMemAlloc", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  if (size == 0) return broken("an allocation of nothing", kInvalidValue);
  const long limit = knob("limit");
  if (limit != 0 && size > static_cast<std::size_t>(limit)) return kOutOfMemory;
  void* const place = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return kOutOfMemory;
  *start = pointer(place);
  state().buffers[*start] = {size, nullptr, current()};
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemFree_v2(CUdeviceptr start) {
  const Call call("cuMemFree", Needs::kContext);
  if (call.refused() != kSuccess) {
    state().stuck.insert(start);
    return call.refused();
  }
  const auto found = state().buffers.find(start);
  if (found == state().buffers.end()) return broken("no such buffer to free", kInvalidValue);
  if (found->second.context != current()) return broken("another's buffer freed", kInvalidContext);
  // Of memory of the driver's own, freeing waits.
  if (found->second.memory != nullptr && is_busy(start, found->second.size)) {
    (void)broken("a buffer freed that the device is still at", kSuccess);
  }
  finish_fills();
  ::munmap(address(start), found->second.size);
  state().buffers.erase(found);
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
  const Call call("cuDestroyExternalMemory", Needs::kContext);
  if (call.refused() != kSuccess) {
    state().stuck.insert(pointer(memory));
    return call.refused();
  }
  if (!state().imported.contains(memory)) return broken("no such external memory", kInvalidHandle);
  const auto& buffers = state().buffers;
  if (std::any_of(buffers.begin(), buffers.end(), [&](const auto& one) {
        return one.second.memory == memory && !is_stuck(one.first);
      })) {
    return broken("external memory destroyed that a buffer is in", kInvalidHandle);
  }
  if (inode_of(memory->file.get()) != memory->inode) {
    (void)memory->file.release();
    (void)broken("a descriptor closed that was given away", kSuccess);
  }
  state().imported.erase(memory);
  delete memory;
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemHostRegister_v2(void* start, std::size_t size, unsigned flags) {
  const Call call("cuMemHostRegister", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  if (knob("register") == 0) return kNotSupported;
  const auto vma = vma_at(pointer(start));
  if (size == 0 || !vma || (flags & ~6U) != 0) {
    return broken("a registration of a wrong place, size or flags", kInvalidValue);
  }
  if (overlaps_registered(start, size)) return kHostMemoryAlreadyRegistered;
  if (pointer(start) + size > vma->end || vma->permissions != "rw-s") {
    return broken("a registration of more than one writable VMA", kInvalidValue);
  }
  if (!is_present(start, size)) {
    return broken("a registration of pages that were not touched", kInvalidValue);
  }
  const bool is_io = vma->path == cat("/memfd:", kDmaBufName) || vma->path.starts_with("/dmabuf:");
  if (is_io != ((flags & kHostRegisterIoMemory) != 0)) return kInvalidValue;
  state().registered[start] = {size, flags, current(), nullptr, vma->inode};
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* start,
                                                       unsigned flags) {
  const Call call("cuMemHostGetDevicePointer", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  const auto found = state().registered.find(start);
  if (found == state().registered.end() || flags != 0 ||
      (found->second.flags & kHostRegisterDeviceMap) == 0) {
    return broken("the device pointer of what is not mapped for the device", kInvalidValue);
  }
  if (found->second.context != current()) return broken("another context's", kInvalidContext);
  if (found->second.alias == nullptr) {
    // The same pages at another address: whoever takes the host's pointer for the device's is seen.
    void* const alias = ::mremap(start, 0, found->second.size, MREMAP_MAYMOVE);
    if (alias == MAP_FAILED && errno != EINVAL) return kOutOfMemory;
    if (alias != MAP_FAILED) found->second.alias = alias;  // there is none of huge pages
  }
  *device = pointer(found->second.alias != nullptr ? found->second.alias : start);
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemHostUnregister(void* start) {
  const Call call("cuMemHostUnregister", Needs::kContext);
  if (call.refused() != kSuccess) {
    state().stuck.insert(pointer(start));
    return call.refused();
  }
  const auto found = state().registered.find(start);
  if (found == state().registered.end()) {
    return broken("memory unregistered that was not registered", kHostMemoryNotRegistered);
  }
  if (found->second.context != current()) return broken("another context's", kInvalidContext);
  const auto vma = vma_at(pointer(start));
  if (!vma || vma->inode != found->second.inode) {
    (void)broken("memory unmapped that was registered", kSuccess);
  }
  if (is_busy(pointer(found->second.alias), found->second.size)) {
    (void)broken("memory unregistered that the device is still at", kSuccess);
    state().fills.clear();
  }
  if (found->second.alias != nullptr) ::munmap(found->second.alias, found->second.size);
  state().registered.erase(found);
  return call.done();
}
