#pragma once

// Lent memory as handles of the driver's, for callers that map it themselves.

#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "cuda/driver.hpp"
#include "cuda/mapping.hpp"

namespace carveout::cuda {

// Thread rule: one call at a time; handles() and device() from any threads while none runs.
// Contexts, and the process's end: as Mapping.
class Pages {
 public:
  // Finds the device (settings.device, or the current context's, or 0), and that it can import
  // pages of that size. Errors: kNotFound without a driver, a device or a call that it needs;
  // kInvalid for a size that is no whole number of the device's own pages; kSystem.
  static Result<Pages> open(Bytes page, const MapSettings& settings);

  Pages(Pages&&) noexcept = default;
  Pages& operator=(Pages&&) = delete;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();

  // Imports one more; the file may be closed then. Errors: kInvalid for what is not an NVIDIA file
  // of one page; as the driver says. Those before it stay.
  Result<void> add(const File& file);

  // Releases all, whatever fails on the way, and says what did first. There are none afterwards.
  Result<void> release();

  [[nodiscard]] const std::vector<CUmemGenericAllocationHandle>& handles() const {
    return handles_;
  }
  [[nodiscard]] Bytes page() const { return page_; }
  [[nodiscard]] int device() const { return context_.device(); }

 private:
  Pages(Bytes page, Context context, Importer importer)
      : page_(page), context_(std::move(context)), importer_(std::move(importer)) {}
  void release(Undone& undone);

  Bytes page_;
  Context context_;
  Importer importer_;
  std::vector<Held<CUmemGenericAllocationHandle>> held_;
  std::vector<CUmemGenericAllocationHandle> handles_;  // of held_, as C has them
};

}  // namespace carveout::cuda
