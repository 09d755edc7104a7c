// Virtual memory management: a range of addresses, and memory mapped into it.

#include <utility>

#include "base/text.hpp"
#include "cuda/driver.hpp"

namespace carveout::cuda {

struct VirtualRange::Calls {
  Importer importer;
  decltype(kMemAddressReserve)::Type* reserve = nullptr;
  decltype(kMemAddressFree)::Type* free = nullptr;
  decltype(kMemMap)::Type* map = nullptr;
  decltype(kMemUnmap)::Type* unmap = nullptr;
  decltype(kMemSetAccess)::Type* set_access = nullptr;
};

Result<VirtualRange> VirtualRange::map(const Context& context, std::span<const Piece> pieces,
                                       const std::string& what) {
  const Driver& driver = *context.driver();
  // All that undoing needs is found before anything is done.
  auto importer = Importer::find(context.driver());
  if (!importer) return std::move(importer).error();
  Finder find(driver);
  const Calls calls{*std::move(importer), find(kMemAddressReserve), find(kMemAddressFree),
                    find(kMemMap),        find(kMemUnmap),          find(kMemSetAccess)};
  if (find.missing()) return *find.missing();
  const auto page = granularity(context, what);
  if (!page) return page.error();
  std::size_t whole = 0;
  for (const Piece& piece : pieces) {
    if (auto checked = check_whole(piece.size, *page, what); !checked) return checked.error();
    whole += piece.size.count();
  }
  CUdeviceptr address = 0;
  if (const CUresult answer = calls.reserve(&address, whole, page->count(), 0, 0);
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
  auto handle = calls.importer.import(piece.descriptor, what);
  if (!handle) return std::move(handle).error();
  Mapped& mapped = mapped_.emplace_back();
  mapped.handle = *std::move(handle);
  const std::size_t size = piece.size.count();
  if (const CUresult answer = calls.map(at, size, 0, mapped.handle.get<0>(), 0);
      answer != kSuccess) {
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
