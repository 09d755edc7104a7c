#pragma once

// Whether this machine's L2 keeps lent memory: as carveout-probe has measured it once, for whoever
// cannot measure it himself each time.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace carveout::client {

// Where root leaves it: carveout-probe residency --engine gpu --json FILE.
inline constexpr const char* kL2ClassFile = "/var/lib/carveout/residency.json";
inline constexpr std::size_t kMaxL2ClassBytes = 16UL << 20U;

struct L2Class {
  std::string engine;  // "gpu"; "cpu": it is about the processor's caches, and says nothing of L2
  std::string gpu;     // "" where it is not known, as the next four
  std::string driver;  // "580.82.07"
  std::string lender;  // "carveoutd 0.1.0, backend drm (...)", or why it is not known
  std::string host;    // its name
  std::string kernel;  // "Linux 6.18.44 x86_64"
  double measured_unix_s = 0;

  struct Arm {
    std::string name;       // "daemon/vmm"
    std::string source;     // as CARVEOUT_SOURCE has them
    std::string map;        // as CARVEOUT_MAP has them
    std::string residency;  // "resident", "partly", "not_resident", "inconclusive"
    std::string why;        // for people
  };
  std::vector<Arm> arms;  // those that there is a verdict on
};

// Whether memory of that source is on loan: of others (a GPU's own, ordinary memory) there are
// verdicts, too, for comparison.
[[nodiscard]] bool is_lent(std::string_view source);

// Of a file's text. The error (kInvalid) names the file and what to do.
Result<L2Class> parse_l2_class(std::string_view text, const std::string& file);

// Nothing where there is no file. Blocks as reading a regular file does; a FIFO is not waited for.
// Errors: those of parse_l2_class(), and kSystem for a file that cannot be read.
Result<std::optional<L2Class>> read_l2_class(const std::string& file = kL2ClassFile);

// The version in what NVIDIA's driver says of itself (/sys/module/nvidia/version,
// /proc/driver/nvidia/version); empty where there is none.
[[nodiscard]] std::string nvidia_driver_in(std::string_view text);

// What a result depends on, as it is now; each empty where it is not known.
struct Here {
  std::string driver;  // NVIDIA's, the one that is loaded
  std::string host;
  std::string kernel;
};
[[nodiscard]] Here here();

}  // namespace carveout::client
