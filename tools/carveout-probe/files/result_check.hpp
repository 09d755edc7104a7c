#pragma once

// Whether a text is a result file: looked at before anything is read from it.

#include <cstddef>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "base/result.hpp"

namespace carveout::probe {

inline constexpr const char* kResultSchema = "carveout-probe/1";
inline constexpr std::size_t kMaxResultBytes = 64UL << 20U;
// What a file of that size may hold at most is not worth the memory that it takes.
inline constexpr std::size_t kMaxResultValues = 8'000'000;
inline constexpr std::size_t kMaxResultDepth = 16;

// A value that is not what it has to be: `where` is a JSON pointer.
[[nodiscard]] Error wrong(const std::string& name, std::string_view where, std::string_view what);

// The file's content, which the schema in the program allows. `name` is the file's, for errors,
// which have it as context and name the place and what is expected there (kInvalid).
Result<JsonDocument> checked_json(const std::string& text, const std::string& name);

}  // namespace carveout::probe
