#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace carveout::probe {

// Puts `text` into the file at `path` for everybody to read (0644): all of it, on the disk, or none
// of it. What was there stays whole until then, and nothing is left behind by a failure. What is no
// regular file (a terminal, a pipe), or a descriptor's (/dev/stdout), is written to as it is, at
// its end. Errors (kSystem, kInvalid) name the
// path.
Result<void> write_file(const std::string& path, std::string_view text);

// Whether write_file() will do, as far as can be told: asked before what would be lost is measured.
Result<void> check_writable(const std::string& path);

// Whether write_file() writes to it as it is, and so can lose nothing that was there.
[[nodiscard]] bool is_written_in_place(const std::string& path);

// Whether what is written to the one takes the place of the other, whatever they are called. Not of
// what takes both: a terminal, /dev/null.
[[nodiscard]] bool are_one_file(const std::string& first, const std::string& second);

}  // namespace carveout::probe
