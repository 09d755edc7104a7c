#pragma once

// How an opener is to go about it: what has no row in the environment.

#include <functional>
#include <optional>
#include <string>

#include "client/settings.hpp"
#include "source/cuda.hpp"
#include "source/dma_heap.hpp"
#include "source/drm.hpp"
#include "source/memfd.hpp"

namespace carveout::client {

enum class LogLevel { kError, kWarning, kInfo };
using Log = std::function<void(LogLevel, const std::string& line)>;

// Where a machine has its things; the tests put their own there. `heap.heap`, `drm.card` and
// `drm.lend_as` are the settings' to say.
struct Machine {
  MemfdSettings memfd;
  DmaHeapSettings heap;
  DrmSettings drm;
  std::string cuda_library = CudaSettings().library;
  std::string default_key_file = kDefaultKeyFile;
};

struct Opening {
  // None: the current context's, or device 0 (with the source cuda always the latter, since its
  // memory is mapped where it lies), or for the processor only. One: it is mapped for that device,
  // or not at all.
  std::optional<int> device = {};
  Log log = {};  // called during open() and close(), by the same thread
  Machine machine = {};
};

// Of the source cuda, and whatever else needs one.
[[nodiscard]] inline int device_of(const Opening& opening) {
  return opening.device.value_or(0);
}

inline void say(const Opening& opening, LogLevel level, const std::string& line) {
  if (opening.log) opening.log(level, line);
}

// A row is to blame for what went wrong: it takes the place of what its value names.
[[nodiscard]] Error blame(const char* row, Error problem);
// The same, where what its value names would be missed.
[[nodiscard]] Error blame_in_full(const char* row, Error problem);

}  // namespace carveout::client
