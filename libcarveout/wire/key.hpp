#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace carveout::wire {

// The shared secret of the lending protocol. Never printed: it has no way out but bytes().
class Key {
 public:
  // The protocol names no bound; 255 is this project's (a first line of 1 to 255 bytes).
  static constexpr std::size_t kMaxLength = 255;

  // Refuses an empty or longer text, and one that no JSON string can carry (not UTF-8).
  static Result<Key> from(std::string_view text);

  // Takes the same time for every candidate of at most kMaxLength bytes, and says no to a longer
  // one at once (the key's own length is not part of that decision).
  [[nodiscard]] bool matches(std::string_view candidate) const;

  [[nodiscard]] std::string_view bytes() const { return {text_.data(), length_}; }

 private:
  std::array<char, kMaxLength + 1> text_{};
  std::size_t length_ = 0;
};

enum class KeyAudience {
  kLender,    // refuses a file that others may read or change
  kBorrower,  // does not care: the file is the operator's business
};

// The first line of a regular file, without its end ("\n" or "\r\n"). Does not block on a FIFO or
// a device. Errors name the file and what to do, never its content.
Result<Key> read_key_file(const std::string& path, KeyAudience audience);

}  // namespace carveout::wire
