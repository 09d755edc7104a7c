#pragma once

// Device memory for callers that ask for it piece by piece (PyTorch): carved from a carveout while
// that has room, and allocated by the driver otherwise.

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "arena/best_fit.hpp"
#include "base/result.hpp"
#include "client/carveout.hpp"
#include "client/opening.hpp"
#include "client/settings.hpp"
#include "cuda/driver.hpp"

namespace carveout::client {

// The carveout is opened once, by the first request or before it, and closed by the destructor,
// when nobody uses what it gave any more. A device's primary context is retained, once the driver
// was asked for its memory, until then.
//
// Thread rule: any calls from any threads at once. Fork: in a child nothing is given or taken back,
// unless start_in_child() has found that it can be.
class DeviceAllocator {
 public:
  struct State {
    bool tried = false;                // to open it
    std::optional<Error> problem;      // why that failed
    std::optional<int> device;         // the carveout's; none where there is none
    const Carveout* opened = nullptr;  // likewise; lives as long as the allocator
    arena::BestFit::Statistics carveout;
    std::uint64_t waiting = 0;  // pieces given back while the device could not be waited for
    std::uint64_t carved = 0;   // requests that the carveout served
    std::uint64_t fell_back = 0;
    std::uint64_t failed = 0;   // that neither served
    std::uint64_t refused = 0;  // given back, and not allocated; or the driver did not take it
  };

  // How the carveout is opened: whether it is on, and then, in the device's primary context, for
  // that device (nothing: off all the same).
  struct Way {
    std::function<Result<bool>()> is_on;
    std::function<Result<std::optional<Carveout>>(int device)> open;
  };

  // Requests open it as `lookup` says.
  explicit DeviceAllocator(const Lookup& lookup, const Machine& machine = {});
  DeviceAllocator(const DeviceAllocator&) = delete;
  DeviceAllocator& operator=(const DeviceAllocator&) = delete;
  DeviceAllocator(DeviceAllocator&&) = delete;
  DeviceAllocator& operator=(DeviceAllocator&&) = delete;
  ~DeviceAllocator();

  // True once there is a carveout of that device, false where it is off. Tried anew unless it is
  // open. Errors: those of Carveout::open_as_set(); kInvalid where it is open for another device,
  // and for a number below 0; kNotFound where there is no such device, which is no opening.
  Result<bool> open(int device);
  Result<bool> open(int device, const Way& way);

  // At a multiple of BestFit::kUnit where it is carved, as the driver has it otherwise. 0 where
  // neither has as much, for 0 bytes, and where this process's own heap has nothing left.
  cuda::CUdeviceptr allocate(std::size_t bytes, int device);

  // Waits for what the device has been given to do before a carved piece can be had again. What
  // the driver gave is given to it again, once, whatever it answers. What neither gave is refused.
  // Needs no memory.
  void free(cuda::CUdeviceptr pointer) noexcept;

  [[nodiscard]] State state() const;

  // In a child after fork(), once and alone: takes it for one from now on, even where that has its
  // parent's number (pid 1, in a PID namespace of its own), and gives up its copy of the
  // connection. Where the parent has not used CUDA here, the child can, as if nothing had been
  // asked for before. Calls close(), and takes no lock that is held.
  void start_in_child() noexcept;

 private:
  struct Carved;
  // Under mutex_.
  Result<bool> open_now(int device, const Way& way);
  Result<const cuda::Context*> primary(int device);
  // Null where the driver was not asked for that device's memory, or cannot be used any more.
  [[nodiscard]] const cuda::Context* known_primary(int device) const noexcept;

  [[nodiscard]] bool is_forked() const;
  cuda::CUdeviceptr carve(Carved& carved, std::size_t bytes);
  void take_waiting(Carved& carved) noexcept;
  cuda::CUdeviceptr allocate_by_driver(std::size_t bytes, int device);
  bool free_by_driver(cuda::CUdeviceptr pointer) noexcept;

  const std::string library_;
  const Way way_;
  pid_t process_;  // that may use it: changed in a child only
  std::atomic<bool> forked_ = false;
  mutable std::mutex mutex_;
  bool tried_ = false;
  std::optional<Error> problem_;
  std::map<int, cuda::Context> primaries_;      // once there, they stay
  std::unique_ptr<Carved> owned_;               // likewise; destroyed before them
  std::atomic<Carved*> carved_ = nullptr;       // the same, without the mutex
  std::map<cuda::CUdeviceptr, int> by_driver_;  // what the driver gave, and of which device
  // Offsets, the oldest first. Room for all pieces that are taken.
  std::vector<Bytes> waiting_;
  std::uint64_t taken_back_ = 0;  // so many have been in waiting_, and are not any more
  State counted_;
};

}  // namespace carveout::client
