#pragma once

#include <cstddef>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace carveout {

// Reads at most `limit` bytes of an open file from where it stands. Blocks as the file does.
Result<std::string> read_up_to(int fd, std::size_t limit, const std::string& context);

// The same of the file at `path`; for /proc, /sys and settings.
Result<std::string> read_text(const std::string& path, std::size_t limit);

}  // namespace carveout
