#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace carveout {

// Opens /dev/null for each of the descriptors 0 to 2 that the process was started without, so that
// nothing that is opened later (a connection, lent memory) is taken for standard input, output or
// error. The first thing in main(). False if that failed.
[[nodiscard]] bool fill_standard_descriptors();

// The directory that `path` stands in.
[[nodiscard]] std::string directory_of(const std::string& path);

// What is in a directory, sorted; nothing where it cannot be read.
[[nodiscard]] std::vector<std::string> names_in(const std::string& directory);

// Another descriptor of the same open file, close-on-exec, and none of the standard three.
Result<UniqueFd> duplicate(int descriptor, const std::string& context);

// Reads at most `limit` bytes of an open file from where it stands. Blocks as the file does.
Result<std::string> read_up_to(int fd, std::size_t limit, const std::string& context);

// The same of the file at `path`; for /proc, /sys and settings. Does not wait for a FIFO's writer.
Result<std::string> read_text(const std::string& path, std::size_t limit);

}  // namespace carveout
