#pragma once

// The opener for those who map slices themselves: each one a handle of CUDA's.

#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "client/lender.hpp"
#include "client/opening.hpp"
#include "client/settings.hpp"
#include "cuda/pages.hpp"

namespace carveout::client {

// Slices, each claimed by itself (one descriptor imports as one handle, which maps whole), on one
// connection. Destroying it releases the handles first and gives back then.
//
// Thread rule: close() and abandon_in_child() alone; the rest from any threads at once.
class Pages {
 public:
  // settings.size in whole slices from settings.source: all imported, or nothing. One descriptor at
  // a time is open. A lender is first asked whether it has as much. Blocks: settings.timeout for
  // all claims together; as the sources and CUDA do. Errors: those of complete(), Supply and
  // cuda::Pages; kInvalid for a source (CARVEOUT_SOURCE) or a way of mapping (CARVEOUT_MAP) that
  // gives no handles.
  static Result<Pages> open(const Settings& settings, const Opening& opening = {});
  // The same with settings_from(). Nothing: off.
  static Result<std::optional<Pages>> open_as_set(const Lookup& lookup, const Opening& opening = {},
                                                  const Settings& unset = {});

  Pages(Pages&&) noexcept = default;
  Pages& operator=(Pages&&) = delete;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() = default;

  // As Carveout::close(). Unmap them all before.
  Result<void> close();

  [[nodiscard]] const cuda::Pages& imported() const { return imported_; }
  [[nodiscard]] SourceKind source() const { return source_; }
  [[nodiscard]] const std::string& description() const { return description_; }  // for people
  [[nodiscard]] Bytes lender_base() const { return lender_base_; }

  // As Lender has them. Without a lender: -1, false, and nothing to do.
  [[nodiscard]] int watch() const { return lender_ ? lender_->watch() : -1; }
  [[nodiscard]] bool lender_gone() const { return lender_ && lender_->gone(); }
  void abandon_in_child() noexcept {
    if (lender_) lender_->abandon_in_child();
  }

 private:
  static Result<Pages> open_completed(Settings settings, const Opening& opening);
  explicit Pages(cuda::Pages imported) : imported_(std::move(imported)) {}

  // In the order of their making: released before it is given back.
  std::optional<Lender> lender_;
  cuda::Pages imported_;
  SourceKind source_ = SourceKind::kDaemon;
  Bytes lender_base_;
  std::string description_;
};

}  // namespace carveout::client
