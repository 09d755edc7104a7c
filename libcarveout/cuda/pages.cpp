#include "cuda/pages.hpp"

#include <utility>

#include "base/text.hpp"
#include "cuda/placed.hpp"

namespace carveout::cuda {

Result<Pages> Pages::open(Bytes page, const MapSettings& settings) {
  const std::string what = cat("pages of ", format_bytes(page));
  auto context = open_context(settings);
  if (!context) return std::move(context).error();
  auto importer = Importer::find(context->driver());
  if (!importer) return std::move(importer).error();
  const auto size = [&]() -> Result<Bytes> {
    const Entered entered(*context);
    if (!entered) return entered.error(what);
    return granularity(*context, what);
  }();
  if (!size) return size.error();
  if (auto checked = check_whole(page, *size, what); !checked) return std::move(checked).error();
  return Pages(page, *std::move(context), *std::move(importer));
}

Result<void> Pages::add(const File& file) {
  const std::string what = cat("importing ", format_bytes(file.size), " of ", name_of(file.kind));
  if (!is_allowed(MapStrategy::kVmm, file.kind, std::nullopt)) {
    return Error{Code::kInvalid, 0, what,
                 "only NVIDIA files can be imported (of carveoutd --backend cuda, or drm with "
                 "--lend-as nvidia)"};
  }
  if (file.size != page_) {
    return Error{Code::kInvalid, 0, what, cat("a page is ", format_bytes(page_))};
  }
  // So that nothing fails once it is imported.
  if (held_.size() == held_.capacity()) held_.reserve(held_.size() * 2 + 1);
  handles_.reserve(held_.capacity());
  const Entered entered(context_);
  if (!entered) return entered.error(what);
  auto handle = importer_.import(file.descriptor, what);
  if (!handle) return std::move(handle).error();
  handles_.push_back(handle->get<0>());
  held_.push_back(*std::move(handle));
  return {};
}

void Pages::release(Undone& undone) {
  undo_in(context_, undone, [&] {
    for (auto& handle : held_)
      handle.give_back(undone);
  });
  held_.clear();
  handles_.clear();
}

Result<void> Pages::release() {
  const std::size_t count = handles_.size();
  if (count == 0) return {};  // the context has been given back as well
  Undone undone;
  release(undone);
  if (undone.failed()) {
    return undone.error(cat("releasing ", count, " pages of ", format_bytes(page_)));
  }
  return {};
}

Pages::~Pages() {
  if (held_.empty()) return;
  Undone ignored;
  release(ignored);
}

}  // namespace carveout::cuda
