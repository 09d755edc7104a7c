#pragma once

// Lent memory mapped for use, by the GPU where there is one.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/descriptor_kind.hpp"
#include "base/map_strategy.hpp"
#include "base/result.hpp"
#include "cuda/driver.hpp"

namespace carveout::cuda {

// The first `size` bytes of lent memory. The descriptor is only borrowed, for the call.
struct File {
  DescriptorKind kind = DescriptorKind::kMemfd;
  int descriptor = -1;
  Bytes size = {};
};

struct MapSettings {
  MapStrategy strategy = MapStrategy::kAuto;
  // One: for that device, or not at all. None: the calling thread's current context's, or device 0,
  // or (under kAuto, where all else fails) the processor alone.
  std::optional<int> device = {};
  std::string library = kLibrary;
};

// A strategy that was tried, and why it did not work.
struct Attempt {
  MapStrategy strategy = MapStrategy::kAuto;
  Error reason = {};
};

// For people: "vmm: why not; external: why not".
[[nodiscard]] std::string describe(const std::vector<Attempt>& failed);

// Whether memory of that kind can be mapped so at all, for that device if there is one.
[[nodiscard]] bool is_allowed(MapStrategy strategy, DescriptorKind kind, std::optional<int> device);

// Memory in place. What it was mapped from may be closed; the memory stays as long as the mapping.
//
// Contexts: it belongs to the context that was the calling thread's current one when it was made,
// if that is of the device asked for, and to the device's primary one (retained) otherwise. The
// caller's own context must outlive it. The current context of the thread that maps or unmaps is
// the same before and after.
//
// Thread rule: one call at a time on each; different ones and map() from any thread at once.
// Unmapping waits for nothing: whoever uses the memory on the GPU must have finished.
//
// Not a call goes to CUDA once exit() has come to what the driver registered when it was loaded,
// and none in a forked child: only what the processor sees is unmapped then, and the kernel takes
// back the rest. (A static object made after the driver was loaded is destroyed before that point,
// while the driver is whole; one made before it, or never destroyed, after.)
class Mapping {
 public:
  class Placed;
  Mapping(MapStrategy strategy, Bytes size, std::unique_ptr<Placed> placed,
          std::vector<Attempt> failed);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  // Undoes all of it, whatever fails on the way, and says what did first: what that step held may
  // stay with the driver until the process ends. Nothing is mapped afterwards, and the pointers
  // are null.
  Result<void> unmap();

  // Of device_pointer(); none where it is mapped for the processor alone.
  [[nodiscard]] std::optional<int> device() const;

  // Null where the GPU (kHost) or the processor (kVmm, kExternal) has no pointer to it.
  [[nodiscard]] CUdeviceptr device_pointer() const;
  [[nodiscard]] void* host_pointer() const;

  [[nodiscard]] Bytes size() const { return size_; }
  [[nodiscard]] MapStrategy strategy() const { return strategy_; }  // never kAuto
  // What kAuto tried before, in order.
  [[nodiscard]] const std::vector<Attempt>& why_not() const { return why_not_; }

 private:
  MapStrategy strategy_;
  Bytes size_;
  std::unique_ptr<Placed> placed_;  // none once unmapped or moved from
  std::vector<Attempt> why_not_;
};

// Maps one file. Everything done is undone after an error. Blocks as long as the driver needs to
// start and to map (seconds), and under kRegister until every page has been touched. Errors:
// kInvalid for a strategy that the kind of file does not allow, kHost for a device, a size of zero
// or one that the device's granularity does not divide, and a memfd that is shorter; kNotFound
// without a driver, a device or a call that it needs; kExhausted, kSystem as the driver or the
// kernel says. Under kAuto the message has every reason, and the code and numbers are the first
// one's that is not kNotFound.
Result<Mapping> map(const File& file, const MapSettings& settings = {});

// Maps files of one kind one behind the other as one range of addresses, which kVmm can do; the
// others can where it is one file. Under kAuto they are passed over with that reason.
Result<Mapping> map_range(std::span<const File> files, const MapSettings& settings = {});

}  // namespace carveout::cuda
