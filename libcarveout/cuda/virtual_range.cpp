// Virtual memory management: a range of addresses, and memory mapped into it.

#include <cstdint>

#include "base/text.hpp"
#include "cuda/driver.hpp"

namespace carveout::cuda {

struct VirtualRange::Calls {
  decltype(kMemGetGranularity)::Type* granularity;
  decltype(kMemAddressReserve)::Type* reserve;
  decltype(kMemAddressFree)::Type* free;
  decltype(kMemImport)::Type* import;
  decltype(kMemRelease)::Type* release;
  decltype(kMemMap)::Type* map;
  decltype(kMemUnmap)::Type* unmap;
  decltype(kMemSetAccess)::Type* set_access;
};

MemAllocationProp shareable_memory(CUdevice device) {
  MemAllocationProp properties;
  properties.type = kAllocationPinned;
  properties.requested_handle_types = kHandlePosixDescriptor;
  properties.location = {kLocationDevice, device};
  return properties;
}

void* in_pointer(int descriptor) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the number itself travels in the pointer
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));
}

Result<VirtualRange> VirtualRange::map(const Context& context, std::span<const Piece> pieces,
                                       const std::string& what) {
  const Driver& driver = *context.driver();
  // All that undoing needs is found before anything is done.
  Finder find(driver);
  const Calls calls{find(kMemGetGranularity), find(kMemAddressReserve), find(kMemAddressFree),
                    find(kMemImport),         find(kMemRelease),        find(kMemMap),
                    find(kMemUnmap),          find(kMemSetAccess)};
  if (find.missing()) return *find.missing();
  const MemAllocationProp properties = shareable_memory(context.device());
  std::size_t granularity = 0;
  if (const CUresult answer = calls.granularity(&granularity, &properties, kGranularityMinimum);
      answer != kSuccess) {
    return driver.failed(kMemGetGranularity.name, answer, what);
  }
  std::size_t whole = 0;
  for (const Piece& piece : pieces) {
    const std::size_t size = piece.size.count();
    if (granularity == 0 || size == 0 || size % granularity != 0) {
      return Error{
          Code::kInvalid, 0, what,
          cat(format_bytes(piece.size), " is not a whole number of this device's pages of ",
              format_bytes(Bytes(granularity)))};
    }
    whole += size;
  }
  CUdeviceptr address = 0;
  if (const CUresult answer = calls.reserve(&address, whole, granularity, 0, 0);
      answer != kSuccess) {
    return driver.failed(kMemAddressReserve.name, answer, what);
  }
  VirtualRange range;
  range.addresses_ = {context.driver(), kMemAddressFree.name, calls.free, address, whole};
  range.mapped_.reserve(pieces.size());
  CUdeviceptr at = address;
  for (const Piece& piece : pieces) {
    if (auto added = range.add(calls, context, piece, at, what); !added) {
      return std::move(added).error();
    }
    at += piece.size.count();
  }
  const MemAccessDesc access{{kLocationDevice, context.device()}, kAccessReadWrite};
  if (const CUresult answer = calls.set_access(address, whole, &access, 1); answer != kSuccess) {
    return driver.failed(kMemSetAccess.name, answer, what);
  }
  return range;
}

Result<void> VirtualRange::add(const Calls& calls, const Context& context, const Piece& piece,
                               CUdeviceptr at, const std::string& what) {
  const Driver& driver = *context.driver();
  CUmemGenericAllocationHandle handle = 0;
  if (const CUresult answer =
          calls.import(&handle, in_pointer(piece.descriptor), kHandlePosixDescriptor);
      answer != kSuccess) {
    return driver.failed(kMemImport.name, answer, what);
  }
  Mapped& mapped = mapped_.emplace_back();
  mapped.handle = {context.driver(), kMemRelease.name, calls.release, handle};
  const std::size_t size = piece.size.count();
  if (const CUresult answer = calls.map(at, size, 0, handle, 0); answer != kSuccess) {
    return driver.failed(kMemMap.name, answer, what);
  }
  mapped.place = {context.driver(), kMemUnmap.name, calls.unmap, at, size};
  return {};
}

void VirtualRange::unmap(Undone& undone) {
  for (Mapped& mapped : mapped_) {
    mapped.place.give_back(undone);
    mapped.handle.give_back(undone);
  }
  mapped_.clear();
  addresses_.give_back(undone);
}

}  // namespace carveout::cuda
