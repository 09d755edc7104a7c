#pragma once

// What source.hpp promises of every source, as one suite: *_contract.cpp. A source joins by a
// SourceCase and INSTANTIATE_TEST_SUITE_P(NAME, SourceContract, Values(...), source_case_name) in a
// file of its own, beside what is to be said of it alone.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <variant>

#include "source/source.hpp"

namespace carveout::test {

// This machine cannot: the test is skipped, and says why.
struct Waived {
  std::string reason;
};

using SourceOrWaived = std::variant<std::unique_ptr<Source>, Waived>;

struct SourceCase {
  std::string name;  // letters and digits
  std::function<SourceOrWaived()> make;
  // One that has kPoorSize to give, and not kBeyondPoor.
  std::function<SourceOrWaived()> make_poor;
  // How much memory stands behind a descriptor, where the kernel says so of this kind.
  std::function<std::optional<Bytes>(int descriptor)> committed = {};
  bool mappable = true;     // by mmap()
  bool has_length = true;   // lseek(SEEK_END) answers
  bool own_inode = true;    // each buffer is a file of its own
  bool opened_anew = true;  // what is shared is another open file of the same memory
};

inline constexpr Bytes kPoorSize = mib(16);
inline constexpr Bytes kBeyondPoor = mib(128);

// For ctest's lists.
inline void PrintTo(const SourceCase& which, std::ostream* out) {
  *out << which.name;
}

std::string source_case_name(const testing::TestParamInfo<SourceCase>& info);

// The first `size` bytes behind a descriptor, shared and writable.
class Mapping {
 public:
  Mapping(int descriptor, Bytes size);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Mapping(Mapping&&) = delete;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  [[nodiscard]] bool good() const { return bytes_ != nullptr; }
  [[nodiscard]] bool all(std::uint8_t byte) const;
  void fill(std::uint8_t byte) const;
  [[nodiscard]] std::uint8_t& operator[](std::size_t at) const { return bytes_[at]; }

 private:
  std::uint8_t* bytes_ = nullptr;
  std::size_t size_;
};

// Tells when the kernel has no reference to a file any more: not a descriptor, not a mapping, in no
// process. Its pages are free then.
class EndOfFile {
 public:
  explicit EndOfFile(int descriptor);
  // False where this kind of file cannot be watched.
  [[nodiscard]] bool watching() const { return watching_; }
  [[nodiscard]] bool seen();

 private:
  UniqueFd events_;
  std::optional<std::uint64_t> dma_buf_;  // its inode
  bool watching_ = false;
  bool seen_ = false;
};

[[nodiscard]] std::uint64_t inode_of(int descriptor);

class SourceContract : public testing::TestWithParam<SourceCase> {
 protected:
  void SetUp() override;
  // A source of that kind that has little to give; skips the test where there is none.
  void become_poor();

  [[nodiscard]] Buffer allocate(Bytes size);
  [[nodiscard]] UniqueFd share(const Buffer& buffer);
  // As a lender must where the kernel does not.
  void make_zero(Buffer& buffer);

  std::unique_ptr<Source> source_;
};

}  // namespace carveout::test
