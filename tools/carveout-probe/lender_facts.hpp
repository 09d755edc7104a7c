#pragma once

#include <string>

namespace carveout::probe {

// "carveoutd 0.1.0, backend drm (...)", by its control socket; or why that is not known.
[[nodiscard]] std::string lender_facts(const std::string& control);

}  // namespace carveout::probe
