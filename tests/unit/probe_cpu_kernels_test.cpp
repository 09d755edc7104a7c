// The CPU engine's loops, each width that this machine has, against plain ones.

#include "engines/cpu_kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <vector>

namespace carveout::probe {
namespace {

constexpr std::uint64_t kFence = 0x5bd1e9955bd1e995;

// Aligned to a line, with a line on either side that must stay as it is.
class Buffer {
 public:
  explicit Buffer(std::size_t size) : words_(size / 8 + 16) {
    std::mt19937_64 random(size + 1);
    std::generate(begin(), end(), random);
    std::fill(lines_.get(), lines_.get() + 8, kFence);
    std::fill(end(), end() + 8, kFence);
  }
  [[nodiscard]] std::uint64_t* begin() const { return lines_.get() + 8; }
  [[nodiscard]] std::uint64_t* end() const { return lines_.get() + words_ - 8; }
  [[nodiscard]] bool is_fenced() const {
    const auto is = [](std::uint64_t word) { return word == kFence; };
    return std::all_of(lines_.get(), begin(), is) && std::all_of(end(), end() + 8, is);
  }
  [[nodiscard]] std::uint64_t sum() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t* word = begin(); word != end(); ++word)
      sum += *word;
    return sum;
  }

 private:
  struct Delete {
    void operator()(std::uint64_t* words) const {
      ::operator delete[](words, std::align_val_t(kLine));
    }
  };
  std::size_t words_;
  std::unique_ptr<std::uint64_t[], Delete> lines_{static_cast<std::uint64_t*>(
      ::operator new[](words_ * sizeof(std::uint64_t), std::align_val_t(kLine)))};
};

constexpr std::size_t kSizes[] = {0, 64, 128, 192, 448, 512, 576, 1024, 4096 + 64, 65536 + 320};

TEST(ProbeCpuKernels, AreThereInOneWidthAtLeast) {
  ASSERT_FALSE(cpu_kernels().empty());
  EXPECT_STREQ(cpu_kernels().front()->width, "128 bits");
}

TEST(ProbeCpuKernels, SumWhatTheyRead) {
  for (const CpuKernels* kernels : cpu_kernels()) {
    for (const std::size_t size : kSizes) {
      const Buffer buffer(size);
      EXPECT_EQ(kernels->read(buffer.begin(), size), buffer.sum())
          << kernels->width << ", " << size;
      if (size == 0) continue;
      ++buffer.end()[-1];
      EXPECT_EQ(kernels->read(buffer.begin(), size), buffer.sum()) << "to the last word";
    }
  }
}

TEST(ProbeCpuKernels, WriteAllAndNothingElse) {
  for (const CpuKernels* kernels : cpu_kernels()) {
    for (const auto write : {kernels->write, kernels->write_past_caches}) {
      for (const std::size_t size : kSizes) {
        const Buffer buffer(size);
        write(buffer.begin(), size, 0x0123456789abcdef);
        EXPECT_TRUE(std::all_of(buffer.begin(), buffer.end(),
                                [](std::uint64_t word) { return word == 0x0123456789abcdef; }))
            << kernels->width << ", " << size;
        EXPECT_TRUE(buffer.is_fenced()) << kernels->width << ", " << size;
      }
    }
  }
}

TEST(ProbeCpuKernels, CopyAllAndNothingElse) {
  for (const CpuKernels* kernels : cpu_kernels()) {
    for (const std::size_t size : kSizes) {
      const Buffer source(size), target(size);
      std::fill(target.begin(), target.end(), 0);
      kernels->copy(target.begin(), source.begin(), size);
      EXPECT_EQ(std::memcmp(target.begin(), source.begin(), size), 0) << kernels->width;
      EXPECT_TRUE(target.is_fenced()) << kernels->width << ", " << size;
    }
  }
}

TEST(ProbeCpuKernels, GatherSpansInAnyOrder) {
  for (const CpuKernels* kernels : cpu_kernels()) {
    const Buffer buffer(65536);
    const std::vector<std::uint64_t> offsets{65536 - 640, 0, 4096, 64, 64};
    std::uint64_t expected = 0;
    for (const std::uint64_t offset : offsets) {
      for (std::size_t word = 0; word < 640 / 8; ++word)
        expected += buffer.begin()[offset / 8 + word];
    }
    EXPECT_EQ(kernels->gather(buffer.begin(), offsets.data(), offsets.size(), 640), expected);
    EXPECT_EQ(kernels->gather(buffer.begin(), offsets.data(), 0, 640), 0U);
  }
}

TEST(ProbeCpuKernels, FollowPointers) {
  const Buffer buffer(4 * kLine);
  const auto line = [&](std::size_t i) { return buffer.begin() + i * kLine / 8; };
  const std::size_t next[] = {2, 3, 1, 0};
  for (std::size_t i = 0; i < 4; ++i)
    *line(i) = reinterpret_cast<std::uint64_t>(line(next[i]));
  EXPECT_EQ(chase(line(0), 0), line(0));
  EXPECT_EQ(chase(line(0), 3), line(3));
  EXPECT_EQ(chase(line(0), 4'000'001), line(2));
  *line(2) = 0;
  EXPECT_EQ(chase(line(0), 4'000'001), nullptr) << "and goes nowhere from there";
}

}  // namespace
}  // namespace carveout::probe
