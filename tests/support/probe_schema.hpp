#pragma once

// Whether what carveout-probe writes is what the schemas in the tree say: by RapidJSON alone,
// without anything of the probe's own.

#include <string>
#include <string_view>

namespace carveout::test {

// What is wrong with `text`; empty where it passes. `schema` is a file of tools/carveout-probe.
[[nodiscard]] std::string validate_against_schema(std::string_view text,
                                                  const std::string& schema = "result.schema.json");

}  // namespace carveout::test
