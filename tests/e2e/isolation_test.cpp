// A borrower that keeps its memory beyond its lease, by whatever means, never shares a byte with
// the borrower that comes after it. The reservation is one slice, so that the second grant can only
// follow the first one's release.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "support/daemon_process.hpp"
#include "support/memory.hpp"

namespace carveout::test {
namespace {

constexpr std::uint8_t kFirst = 0xA5;
constexpr std::uint8_t kSecond = 0x5A;

class Isolation : public testing::Test {
 protected:
  // The first borrower's memory, full of its pattern.
  UniqueFd first_grant() {
    first_.emplace(daemon_.connect());
    UniqueFd memory = first_->alloc(kSlice);
    Mapping(memory.get(), kSlice).fill(kFirst);
    return memory;
  }

  // Ends the first lease; the second borrower gets zeroed memory and fills it with its pattern.
  void second_grant() {
    first_.reset();
    second_.emplace(daemon_.connect());
    second_memory_ = second_->alloc(kSlice);
    ASSERT_TRUE(is_zeroed_memory(second_memory_.get(), kSlice));
    Mapping(second_memory_.get(), kSlice).fill(kSecond);
  }

  bool second_is_untouched() { return Mapping(second_memory_.get(), kSlice).all(kSecond); }

  DaemonProcess daemon_{CARVEOUTD, {"--size", "2MiB"}};
  std::optional<Peer> first_, second_;
  UniqueFd second_memory_;
};

TEST_F(Isolation, KeptDescriptor) {
  const UniqueFd kept = first_grant();
  second_grant();
  EXPECT_TRUE(Mapping(kept.get(), kSlice).all(kFirst));
  Mapping(kept.get(), kSlice).fill(0xFF);
  EXPECT_TRUE(second_is_untouched());
}

TEST_F(Isolation, KeptMapping) {
  std::optional<Mapping> kept;
  {
    const UniqueFd memory = first_grant();
    kept.emplace(memory.get(), kSlice);
  }
  second_grant();
  EXPECT_TRUE(kept->all(kFirst));
  kept->fill(0xFF);
  EXPECT_TRUE(second_is_untouched());
}

TEST_F(Isolation, KeptPathDescriptor) {
  UniqueFd path;
  {
    const UniqueFd memory = first_grant();
    const std::string name = "/proc/self/fd/" + std::to_string(memory.get());
    path = UniqueFd(::open(name.c_str(), O_PATH | O_CLOEXEC));
    ASSERT_TRUE(path);
  }
  second_grant();
  // An O_PATH descriptor keeps the file: it can be opened again for writing.
  const std::string name = "/proc/self/fd/" + std::to_string(path.get());
  const UniqueFd reopened(::open(name.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(reopened);
  EXPECT_TRUE(Mapping(reopened.get(), kSlice).all(kFirst));
  Mapping(reopened.get(), kSlice).fill(0xFF);
  EXPECT_TRUE(second_is_untouched());
}

TEST_F(Isolation, KeptSplicedPages) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd out(ends[0]);
  const UniqueFd in(ends[1]);
  std::size_t spliced = 0;
  {
    const UniqueFd memory = first_grant();
    loff_t offset = 0;
    const ssize_t moved = ::splice(memory.get(), &offset, in.get(), nullptr, 65536, 0);
    if (moved < 0 && errno == EINVAL) {
      GTEST_SKIP() << "waived: huge pages cannot be spliced into a pipe";
    }
    ASSERT_GT(moved, 0);
    spliced = static_cast<std::size_t>(moved);
  }
  // The pipe now holds the pages themselves, and nothing else does.
  second_grant();
  std::array<char, 65536> bytes{};
  ASSERT_EQ(::read(out.get(), bytes.data(), spliced), static_cast<ssize_t>(spliced));
  for (std::size_t i = 0; i < spliced; ++i) {
    ASSERT_EQ(static_cast<std::uint8_t>(bytes[i]), kFirst) << "at " << i;
  }
  EXPECT_TRUE(second_is_untouched());
}

}  // namespace
}  // namespace carveout::test
