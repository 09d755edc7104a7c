#pragma once

#include <rapidjson/document.h>

#include <string>
#include <string_view>

namespace carveout::ctl {

// "carveoutd 0.1.0, backend drm (...), lent as dma-buf", by what the daemon answers `status`; empty
// where that names no backend.
[[nodiscard]] std::string lender_text(const rapidjson::Value& status);

// Of such a text what a measurement depends on: "backend drm (...), lent as dma-buf". Empty of any
// other text.
[[nodiscard]] std::string_view backend_in(std::string_view lender);

}  // namespace carveout::ctl
