#pragma once

// The one opener: memory from whatever source the settings name, mapped for use.

#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "client/lender.hpp"
#include "client/opening.hpp"
#include "client/settings.hpp"
#include "cuda/mapping.hpp"

namespace carveout::client {

// Memory in place, and the lease that it is held by if it was lent. Destroying it unmaps first and
// gives back then.
//
// Thread rule: close() and abandon_in_child() alone; the rest from any threads at once.
class Carveout {
 public:
  // Takes settings.size, rounded up to whole slices, from settings.source and maps it by
  // settings.map. All or nothing: after an error nothing is borrowed, allocated, mapped or open
  // that was not before. Blocks: settings.timeout at the longest with a lender; as
  // Source::allocate(), scrub() and cuda::map() say. Errors: those of complete(), borrow(), the
  // sources and map(); where a row is to blame, it is the context.
  static Result<Carveout> open(const Settings& settings, const Opening& opening = {});
  // The same with settings_from(). Nothing: off.
  static Result<std::optional<Carveout>> open_as_set(const Lookup& lookup,
                                                     const Opening& opening = {},
                                                     const Settings& unset = {});

  Carveout(Carveout&&) noexcept = default;
  Carveout& operator=(Carveout&&) = delete;
  Carveout(const Carveout&) = delete;
  Carveout& operator=(const Carveout&) = delete;
  ~Carveout() = default;

  // Unmaps, then gives back. The error is the first step that could not be undone; the memory is
  // given back all the same, and nothing is mapped afterwards.
  Result<void> close();

  [[nodiscard]] Bytes size() const { return mapping_.size(); }
  [[nodiscard]] const cuda::Mapping& mapping() const { return mapping_; }
  [[nodiscard]] SourceKind source() const { return source_; }
  [[nodiscard]] DescriptorKind kind() const { return kind_; }
  [[nodiscard]] const std::string& description() const { return description_; }  // for people
  // What kAuto tried before and why it failed: "vmm: ...; external: ...". Empty if nothing did.
  [[nodiscard]] const std::string& why_not() const { return why_not_; }
  // Of the lender's reservation; 0 where there is no lender.
  [[nodiscard]] Bytes lender_base() const { return lender_base_; }

  // As Lender has them. Without a lender: -1, false, and nothing to do.
  [[nodiscard]] int watch() const { return lender_ ? lender_->watch() : -1; }
  [[nodiscard]] bool lender_gone() const { return lender_ && lender_->gone(); }
  void abandon_in_child() noexcept {
    if (lender_) lender_->abandon_in_child();
  }

 private:
  static Result<Carveout> open_completed(const Settings& settings, const Opening& opening);

  explicit Carveout(cuda::Mapping mapping) : mapping_(std::move(mapping)) {}

  // In the order of their making: unmapped before it is given back.
  std::optional<Lender> lender_;
  cuda::Mapping mapping_;
  SourceKind source_ = SourceKind::kDaemon;
  DescriptorKind kind_ = DescriptorKind::kMemfd;
  Bytes lender_base_;
  std::string description_;
  std::string why_not_;
};

}  // namespace carveout::client
