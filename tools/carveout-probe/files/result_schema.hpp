#pragma once

#include <string_view>

namespace carveout::probe {

// The text of result.schema.json, which the build puts into the program.
[[nodiscard]] std::string_view result_schema();

}  // namespace carveout::probe
