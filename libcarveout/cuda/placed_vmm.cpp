// NVIDIA files by virtual memory management.

#include <utility>
#include <vector>

#include "cuda/placed.hpp"

namespace carveout::cuda {
namespace {

class Vmm final : public Mapping::Placed {
 public:
  Vmm(Context context, VirtualRange range)
      : context_(std::move(context)), range_(std::move(range)) {
    device_pointer = range_.address();
    device = context_.device();
  }

  void unmap(Undone& undone) override {
    undo_in(context_, undone, [&] { range_.unmap(undone); });
  }

 private:
  Context context_;
  VirtualRange range_;
};

}  // namespace

PlacedOrError place_vmm(const Order& order) {
  auto context = open_context(order.settings);
  if (!context) return std::move(context).error();
  std::vector<VirtualRange::Piece> pieces;
  pieces.reserve(order.files.size());
  for (const File& file : order.files)
    pieces.push_back({file.descriptor, file.size});
  auto range = [&]() -> Result<VirtualRange> {
    const Entered entered(*context);
    if (!entered) return entered.error(order.what);
    return VirtualRange::map(*context, pieces, order.what);
  }();
  if (!range) return std::move(range).error();
  return std::unique_ptr<Mapping::Placed>(
      std::make_unique<Vmm>(*std::move(context), *std::move(range)));
}

}  // namespace carveout::cuda
