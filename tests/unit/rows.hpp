#pragma once

// An environment of a test's own.

#include <map>
#include <optional>
#include <string>

#include "client/settings.hpp"

namespace carveout::test {

using Rows = std::map<std::string, std::string>;

[[nodiscard]] inline client::Lookup lookup_in(Rows rows) {
  return [rows = std::move(rows)](const char* row) -> std::optional<std::string> {
    const auto found = rows.find(row);
    if (found == rows.end()) return std::nullopt;
    return found->second;
  };
}

}  // namespace carveout::test
