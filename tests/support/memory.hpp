#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace carveout::test {

// A shared, writable mapping of the first `size` bytes behind a descriptor.
class Mapping {
 public:
  Mapping(int descriptor, std::size_t size);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Mapping(Mapping&&) = delete;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  [[nodiscard]] bool all_zero() const { return all(0); }
  [[nodiscard]] bool all(std::uint8_t byte) const;
  void fill(std::uint8_t byte);

 private:
  std::uint8_t* bytes_;
  std::size_t size_;
};

// Every byte behind the descriptor is zero, and there are exactly `size`.
bool is_zeroed_memory(int descriptor, std::size_t size);

}  // namespace carveout::test
