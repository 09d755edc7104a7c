#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace carveout {

// A count of bytes. Converting from and to a plain integer is always written out.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::uint64_t count) : count_(count) {}

  [[nodiscard]] constexpr std::uint64_t count() const { return count_; }

  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.count_ + b.count_); }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes(a.count_ - b.count_); }

 private:
  std::uint64_t count_ = 0;
};

constexpr Bytes kib(std::uint64_t n) {
  return Bytes(n << 10);
}
constexpr Bytes mib(std::uint64_t n) {
  return Bytes(n << 20);
}
constexpr Bytes gib(std::uint64_t n) {
  return Bytes(n << 30);
}

// The lending protocol's unit (lending-protocol: "a whole 2 MiB slice"), which is also the
// granularity of CUDA's virtual memory management on GB10.
inline constexpr Bytes kSliceBytes = mib(2);

// A count of slices.
class Slices {
 public:
  constexpr Slices() = default;
  constexpr explicit Slices(std::uint64_t count) : count_(count) {}

  // The slices that hold `size`, the last one perhaps not full. Exact for every Bytes.
  static constexpr Slices holding(Bytes size) {
    const std::uint64_t unit = kSliceBytes.count();
    return Slices(size.count() / unit + (size.count() % unit != 0 ? 1 : 0));
  }

  [[nodiscard]] constexpr std::uint64_t count() const { return count_; }
  [[nodiscard]] constexpr Bytes bytes() const { return Bytes(count_ * kSliceBytes.count()); }

  friend constexpr auto operator<=>(Slices, Slices) = default;
  friend constexpr Slices operator+(Slices a, Slices b) { return Slices(a.count_ + b.count_); }
  friend constexpr Slices operator-(Slices a, Slices b) { return Slices(a.count_ - b.count_); }

 private:
  std::uint64_t count_ = 0;
};

// "2046MiB", "2 GiB", "64KiB", "4096": decimal digits and perhaps KiB, MiB or GiB, in any case.
Result<Bytes> parse_bytes(std::string_view text);

// Exact and short: "2046 MiB", "2 GiB", "1536 KiB", "4097 B".
std::string format_bytes(Bytes size);

}  // namespace carveout
