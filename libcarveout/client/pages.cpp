#include "client/pages.hpp"

#include <utility>

#include "base/text.hpp"
#include "client/supply.hpp"

namespace carveout::client {
namespace {

Result<void> check(const Settings& settings) {
  if (settings.map != MapStrategy::kAuto && settings.map != MapStrategy::kVmm) {
    return Error{
        Code::kInvalid, 0, "CARVEOUT_MAP",
        "must be auto or vmm: pages are imported, and mapped by whoever has asked for them"};
  }
  if (settings.source == SourceKind::kMemfd || settings.source == SourceKind::kDmaHeap) {
    return Error{Code::kInvalid, 0, "CARVEOUT_SOURCE",
                 cat("must be daemon, drm or cuda: what ", name_of(settings.source),
                     " gives cannot be imported as pages")};
  }
  return {};
}

}  // namespace

Result<Pages> Pages::open(const Settings& settings, const Opening& opening) {
  auto completed = complete(settings, opening.machine.default_key_file);
  if (!completed) return std::move(completed).error();
  return open_completed(*std::move(completed), opening);
}

Result<Pages> Pages::open_completed(Settings settings, const Opening& opening) {
  if (auto checked = check(settings); !checked) return std::move(checked).error();
  settings.map = MapStrategy::kVmm;
  // CUDA before the lender: what cannot be imported need not be borrowed.
  cuda::MapSettings how{settings.map, opening.device, opening.machine.cuda_library};
  if (settings.source == SourceKind::kCuda) how.device = device_of(opening);
  auto imported = cuda::Pages::open(kSliceBytes, how);
  if (!imported) return std::move(imported).error();
  auto supply = Supply::open(settings, opening);
  if (!supply) return std::move(supply).error();
  if (auto room = supply->look_for(Slices::holding(settings.size).bytes()); !room) {
    return std::move(room).error();
  }
  // Destroyed before the supply is: released before it is given back.
  Pages pages(*std::move(imported));
  const std::uint64_t count = Slices::holding(settings.size).count();
  for (std::uint64_t i = 0; i < count; ++i) {
    auto piece = supply->take(kSliceBytes);
    if (piece && piece->size != kSliceBytes) {
      piece = Error{Code::kProtocol, 0, "the lender's grant",
                    cat("is ", format_bytes(piece->size), " in one, where 2 MiB were asked for")};
    }
    auto added = piece ? pages.imported_.add({piece->kind, piece->memory.get(), piece->size})
                       : Result<void>(std::move(piece).error());
    if (added) continue;
    Error problem = std::move(added).error();
    problem.message += cat(" (page ", i + 1, " of ", count, ")");
    return problem;
  }
  pages.lender_ = supply->take_lender();
  pages.source_ = settings.source;
  pages.lender_base_ = supply->lender_base();
  pages.description_ = cat(count, " pages of ", format_bytes(kSliceBytes), " ", supply->origin());
  say(opening, LogLevel::kInfo, pages.description_);
  return pages;
}

Result<void> Pages::close() {
  auto released = imported_.release();
  lender_.reset();
  return released;
}

Result<std::optional<Pages>> Pages::open_as_set(const Lookup& lookup, const Opening& opening,
                                                const Settings& unset) {
  auto settings = settings_from(lookup, opening.machine.default_key_file, unset);
  if (!settings) return std::move(settings).error();
  if (!*settings) return std::optional<Pages>();
  auto pages = open_completed(**std::move(settings), opening);
  if (!pages) return std::move(pages).error();
  return std::optional<Pages>(*std::move(pages));
}

}  // namespace carveout::client
