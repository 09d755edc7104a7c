#pragma once

// The one opener: memory from whatever source the settings name, mapped for use.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "client/lender.hpp"
#include "client/settings.hpp"
#include "cuda/mapping.hpp"
#include "source/dma_heap.hpp"
#include "source/drm.hpp"
#include "source/memfd.hpp"
#include "source/source.hpp"

namespace carveout::client {

enum class LogLevel { kError, kWarning, kInfo };
using Log = std::function<void(LogLevel, const std::string& line)>;

// Where a machine has its things; the tests put their own there. `heap.heap`, `drm.card` and
// `drm.lend_as` are the settings' to say.
struct Machine {
  MemfdSettings memfd;
  DmaHeapSettings heap;
  DrmSettings drm;
  std::string cuda_library = cuda::kLibrary;
  std::string default_key_file = kDefaultKeyFile;
};

// What has no row in the environment.
struct Opening {
  // None: the current context's, or device 0 (with the source cuda always the latter, since its
  // memory is mapped where it lies), or for the processor only. One: it is mapped for that device,
  // or not at all.
  std::optional<int> device = {};
  Log log = {};  // called during open() and close(), by the same thread
  Machine machine = {};
};

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

  // As Lease has them. Without a lender: -1, false, and nothing to do.
  [[nodiscard]] int watch() const { return lease_ ? lease_->watch() : -1; }
  [[nodiscard]] bool lender_gone() const { return lease_ && lease_->lender_gone(); }
  void abandon_in_child() noexcept {
    if (lease_) lease_->abandon_in_child();
  }

 private:
  struct Taken;
  static Result<Carveout> open_completed(const Settings& settings, const Opening& opening);
  static Result<Taken> take(const Settings& settings, const Opening& opening);
  static Result<Taken> borrow_from_lender(const Settings& settings);
  static Result<Taken> allocate(const Settings& settings, const Opening& opening);

  Carveout(std::optional<Lease> lease, cuda::Mapping mapping)
      : lease_(std::move(lease)), mapping_(std::move(mapping)) {}

  // In the order of their making: unmapped before it is given back.
  std::optional<Lease> lease_;
  cuda::Mapping mapping_;
  SourceKind source_ = SourceKind::kDaemon;
  DescriptorKind kind_ = DescriptorKind::kMemfd;
  Bytes lender_base_;
  std::string description_;
  std::string why_not_;
};

}  // namespace carveout::client
