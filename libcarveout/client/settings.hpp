#pragma once

// What a user of the library has set, from the environment or from code.

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/map_strategy.hpp"
#include "base/result.hpp"
#include "wire/key.hpp"

namespace carveout::client {

enum class SourceKind { kDaemon, kDrm, kDmaHeap, kMemfd, kCuda };

// As CARVEOUT_SOURCE has them. A literal.
[[nodiscard]] constexpr const char* name_of(SourceKind source) {
  switch (source) {
    case SourceKind::kDaemon:
      break;
    case SourceKind::kDrm:
      return "drm";
    case SourceKind::kDmaHeap:
      return "dma-heap";
    case SourceKind::kMemfd:
      return "memfd";
    case SourceKind::kCuda:
      return "cuda";
  }
  return "daemon";
}

inline constexpr const char* kDefaultKeyFile = "/etc/carveout/key";

// The rows of the environment, with what holds where nothing is set. Only the rows of the chosen
// source are looked at.
struct Settings {
  // Of every source.
  SourceKind source = SourceKind::kDaemon;  // CARVEOUT_SOURCE: daemon drm dma-heap memfd cuda
  Bytes size = mib(1792);                   // CARVEOUT_MIB: never "whatever is free"
  MapStrategy map = MapStrategy::kAuto;     // CARVEOUT_MAP: auto vmm external register host
  // Of the daemon.
  std::string socket = "/run/carveout/carveout.sock";  // CARVEOUT_SOCKET
  std::optional<wire::Key> key;                        // CARVEOUT_KEY
  std::optional<std::string> key_file;                 // CARVEOUT_KEY_FILE: or kDefaultKeyFile
  std::chrono::milliseconds timeout{10'000};           // CARVEOUT_TIMEOUT_MS: of a whole exchange
  // Of drm.
  std::string card = "auto";  // CARVEOUT_DRM_CARD: a primary node's absolute path, or auto
  // Of dma-heap.
  std::string heap;  // CARVEOUT_HEAP: a name in /dev/dma_heap; there is no default
};

// The value of a row, nothing where it is not set.
using Lookup = std::function<std::optional<std::string>(const char* row)>;

// The process's environment by secure_getenv(): where the process has more rights than its user (a
// set-user-id program), nothing is set. Thread rule: not while another thread changes the
// environment.
[[nodiscard]] Lookup environment();

// What the row CARVEOUT says. The error is that it says neither.
Result<bool> is_on(const Lookup& lookup);

// Validates the rows of settings.source and reads the key file unless the key is given: what comes
// back has a key if the source is the daemon, and a key file if it is from there. Blocks as reading
// a regular file does; a FIFO or a device is refused without waiting. Errors (kInvalid, or kSystem
// for a file that cannot be read) have the row as their context, and show neither a path, nor the
// key, nor any other value.
Result<Settings> complete(Settings settings, const std::string& default_key_file = kDefaultKeyFile);

// Nothing: off, which is what CARVEOUT unset or 0 says, whatever the other rows hold. Otherwise
// complete() settings, with what `unset` has where no row is set (for the key: neither of its two).
// A row that is set and empty is a bad row, not an unset one: somebody meant to say something.
// Errors: those of complete().
Result<std::optional<Settings>> settings_from(const Lookup& lookup,
                                              const std::string& default_key_file = kDefaultKeyFile,
                                              const Settings& unset = {});

}  // namespace carveout::client
