// Memory of the driver's own making, by descriptor.

#include <cstdint>
#include <utility>

#include "base/text.hpp"
#include "cuda/driver.hpp"

namespace carveout::cuda {

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

Result<Bytes> granularity(const Context& context, const std::string& what) {
  const Driver& driver = *context.driver();
  Finder find(driver);
  auto* const get = find(kMemGetGranularity);
  if (find.missing()) return *find.missing();
  const MemAllocationProp properties = shareable_memory(context.device());
  std::size_t size = 0;
  if (const CUresult answer = get(&size, &properties, kGranularityMinimum); answer != kSuccess) {
    return driver.failed(kMemGetGranularity.name, answer, what);
  }
  return Bytes(size);
}

Result<void> check_whole(Bytes size, Bytes granularity, const std::string& what) {
  const std::uint64_t unit = granularity.count();
  if (unit != 0 && size != Bytes(0) && size.count() % unit == 0) return {};
  return Error{Code::kInvalid, 0, what,
               cat(format_bytes(size), " is not a whole number of this device's pages of ",
                   format_bytes(granularity))};
}

Result<Importer> Importer::find(const DriverPointer& driver) {
  Finder find(*driver);
  Importer importer(driver, find(kMemImport), find(kMemRelease));
  if (find.missing()) return *find.missing();
  return importer;
}

Result<Held<CUmemGenericAllocationHandle>> Importer::import(int descriptor,
                                                            const std::string& what) const {
  CUmemGenericAllocationHandle handle = 0;
  if (const CUresult answer = import_(&handle, in_pointer(descriptor), kHandlePosixDescriptor);
      answer != kSuccess) {
    return driver_->failed(kMemImport.name, answer, what);
  }
  return Held<CUmemGenericAllocationHandle>(driver_, kMemRelease.name, release_, handle);
}

}  // namespace carveout::cuda
