#pragma once

// The strategies. Inside cuda/ only.

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.hpp"
#include "cuda/mapping.hpp"

namespace carveout::cuda {

// Memory in place by one strategy. Whoever destroys it has called unmap().
class Mapping::Placed {
 public:
  Placed() = default;
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;
  Placed(Placed&&) = delete;
  Placed& operator=(Placed&&) = delete;
  virtual ~Placed() = default;

  virtual void unmap(Undone& undone) = 0;

  CUdeviceptr device_pointer = 0;
  std::optional<int> device;  // of device_pointer
  void* host_pointer = nullptr;
};

// Undoes `work` in the context that it was done in, and gives that back.
template <typename Work>
void undo_in(Context& context, Undone& undone, const Work& work) {
  {
    const Entered entered(context, undone);
    work();
  }
  context.give_back(undone);
}

using PlacedOrError = Result<std::unique_ptr<Mapping::Placed>>;

// The files have been found fit for the strategy; `what` names them in errors.
struct Order {
  std::span<const File> files;
  Bytes size;  // of all of them
  const MapSettings& settings;
  std::string what;
};

PlacedOrError place_vmm(const Order& order);
PlacedOrError place_external(const Order& order);
PlacedOrError place_registered(const Order& order);
PlacedOrError place_on_host(const Order& order);

// Loads the driver and finds the context.
Result<Context> open_context(const MapSettings& settings);

}  // namespace carveout::cuda
