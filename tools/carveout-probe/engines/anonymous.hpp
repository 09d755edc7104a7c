#pragma once

// Ordinary memory of the process's own.

#include <cstdint>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace carveout::probe {

// Zeroed and there: no page of it is still to be found. Unmapped when destroyed.
class Anonymous {
 public:
  // Of pages of that size if they can be had, else of ordinary ones; 0: as the kernel likes.
  static Result<Anonymous> map(Bytes size, std::uint64_t page_bytes = 0);

  Anonymous(Anonymous&& other) noexcept;
  Anonymous& operator=(Anonymous&&) = delete;
  Anonymous(const Anonymous&) = delete;
  Anonymous& operator=(const Anonymous&) = delete;
  ~Anonymous();

  [[nodiscard]] void* address() const { return address_; }
  [[nodiscard]] Bytes size() const { return size_; }

 private:
  Anonymous(void* address, Bytes size) : address_(address), size_(size) {}
  void* address_;
  Bytes size_;
};

}  // namespace carveout::probe
