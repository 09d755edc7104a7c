#pragma once

// The design's "Who may include whom", as a function over a source tree.

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace carveout::test {

struct Violation {
  std::string file;  // relative to the tree
  std::size_t line = 0;
  std::string what;
};

struct IncludeReport {
  std::size_t files = 0;     // looked at
  std::size_t includes = 0;  // of the project's own files
  std::vector<Violation> violations;
};

// Looks at every C++ file of include/, libcarveout/, daemon/, tools/carveoutctl/ and
// tools/carveout-probe/.
IncludeReport check_includes(const std::filesystem::path& tree);

}  // namespace carveout::test
