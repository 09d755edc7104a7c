#pragma once

// What a process has open and mapped, to see that it has the same again.

#include <string>
#include <vector>

namespace carveout::test {

struct Holdings {
  std::vector<std::string> descriptors;  // "5 -> /dev/null", as /proc/self/fd has them
  std::vector<std::string> mappings;     // the lines of /proc/self/maps

  bool operator==(const Holdings&) const = default;
};

// Now. Left out: the heap and the main stack, which grow as they like. (Under a sanitizer, too, all
// anonymous private memory: its allocator keeps what is freed.) Whoever compares runs the same once
// before: what is made at the first time stays.
[[nodiscard]] Holdings holdings();

// What is in one and not in the other, for people: "" if nothing is.
[[nodiscard]] std::string difference(const Holdings& before, const Holdings& after);
[[nodiscard]] inline std::string changed_since(const Holdings& before) {
  return difference(before, holdings());
}

}  // namespace carveout::test
