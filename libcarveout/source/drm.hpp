#pragma once

#include <memory>
#include <string>

#include "base/result.hpp"
#include "source/drm_card.hpp"
#include "source/source.hpp"

namespace carveout {

enum class LendAs { kDmaBuf, kNvidia };

struct DrmSettings {
  std::string card = "auto";  // path of a primary node, or auto
  LendAs lend_as = LendAs::kDmaBuf;
  bool allow_display = false;  // lend although a picture is being shown
  DrmCalls calls = kernel_drm_calls();
  std::string meminfo = "/proc/meminfo";
};

// Dumb buffers of a DRM card, which on GB10 lie in the display reservation. Nobody zeroes them but
// scrub(), which also has memory allocated that the driver only promises. Errors: those of DrmCard,
// and a card that shows a picture (its framebuffers lie in the same memory).
Result<std::unique_ptr<Source>> open_drm_source(const DrmSettings& settings);

}  // namespace carveout
