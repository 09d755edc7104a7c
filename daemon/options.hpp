#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.hpp"

namespace carveout::daemon {

// The daemon's settings, from the command line and the configuration file. The defaults are here
// and nowhere else: the help text shows them.
struct Options {
  std::string backend = "memfd";
  std::string heap;           // dma-heap
  std::string card = "auto";  // drm
  std::string lend_as = "dma-buf";
  bool allow_display = false;
  std::string hold = "auto";  // yes, no; auto: as the backend would
  bool allow_partial = false;
  Bytes size = mib(2046);            // GB10's display reservation (platform facts of the firmware)
  Bytes base = Bytes(0x280200000);   // where GB10's firmware puts it
  std::vector<std::string> sockets;  // none: the service manager's, or else kDefaultSocket
  std::string control = "/run/carveoutd/control.sock";
  std::string key_file;
  std::optional<Bytes> max_bytes_per_uid;
  std::optional<std::size_t> max_connections_per_uid;
  std::optional<std::size_t> max_connections;
  unsigned idle_timeout_s = 30;
  std::string ledger;            // empty: none
  std::size_t store_max = 1024;  // every slice of GB10's reservation on a connection of its own
  bool check = false;
};

// Whether the whole reservation is claimed at the start.
bool holds(const Options& options);

inline constexpr const char* kDefaultSocket = "/run/carveout/carveout.sock";
inline constexpr const char* kDefaultConfig = "/etc/carveout/carveoutd.conf";

// What to do: go on with these, or end at once with this exit code (help, version, or a mistake
// that has been named on standard error).
std::variant<Options, int> parse_options(int argc, const char* const* argv);

}  // namespace carveout::daemon
