// The kernels as the library launches them, over the fake driver, which does by the processor what
// they do; and that driver's own rules about them.

#include "cuda/kernels.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cuda/mapping.hpp"
#include "fake_cuda/fake_driver.hpp"

namespace carveout::test {
namespace {

using cuda::CUdeviceptr;
using testing::HasSubstr;

constexpr Bytes kSize = kib(256);
constexpr std::uint64_t kSeed = 77;

class CudaKernels : public testing::Test {
 protected:
  void SetUp() override {
    auto driver = cuda::Driver::load(fake_.library());
    ASSERT_TRUE(driver);
    auto context = cuda::Context::primary(*driver, 0);
    ASSERT_TRUE(context);
    context_.emplace(*std::move(context));
    entered_.emplace(*context_);
    auto kernels = cuda::Kernels::load(*context_);
    ASSERT_TRUE(kernels) << kernels.error().describe();
    kernels_.emplace(*std::move(kernels));
    memory_ = allocate(kSize);
    words_ = allocate(kib(4));
  }
  void TearDown() override {
    for (const CUdeviceptr at : {memory_, words_})
      EXPECT_EQ(fake_.call(cuda::kMemFree)(at), cuda::kSuccess);
    kernels_.reset();
    entered_.reset();
    context_.reset();
    EXPECT_EQ(fake_.live(), 0);
  }

  CUdeviceptr allocate(Bytes size) {
    CUdeviceptr at = 0;
    EXPECT_EQ(fake_.call(cuda::kMemAlloc)(&at, size.count()), cuda::kSuccess);
    return at;
  }
  // What the fake's device addresses lead to, once it is done.
  std::uint64_t* words(CUdeviceptr at) {
    EXPECT_EQ(fake_.call(cuda::kCtxSynchronize)(), cuda::kSuccess);
    return reinterpret_cast<std::uint64_t*>(at);
  }

  FakeDriver fake_;
  std::optional<cuda::Context> context_;
  std::optional<cuda::Entered> entered_;
  std::optional<cuda::Kernels> kernels_;
  CUdeviceptr memory_ = 0;
  CUdeviceptr words_ = 0;
};

constexpr std::size_t kWords = kSize.count() / 8;

TEST_F(CudaKernels, FillWithWhatTheHostCanSay) {
  ASSERT_TRUE(kernels_->fill(memory_, kSize, kSeed));
  for (std::size_t i = 0; i < kWords; ++i)
    ASSERT_EQ(words(memory_)[i], cuda::random_word(kSeed, i)) << i;
  // No two are alike, and what is filled from another seed begins elsewhere among them.
  EXPECT_EQ(std::set(words(memory_), words(memory_) + kWords).size(), kWords);
  EXPECT_EQ(cuda::random_word(kSeed, 5), cuda::random_word(kSeed + 5, 0));
}

TEST_F(CudaKernels, SumAsOftenAsThereArePasses) {
  ASSERT_TRUE(kernels_->fill(memory_, kSize, kSeed));
  const std::uint64_t once =
      std::accumulate(words(memory_), words(memory_) + kWords, std::uint64_t{0});
  words(words_)[0] = 3;
  ASSERT_TRUE(kernels_->read(memory_, kSize, 7, words_));
  EXPECT_EQ(words(words_)[0], 3 + 7 * once);
  fake_.set("kernel-reads", 0);
  words(words_)[0] = 0;
  ASSERT_TRUE(kernels_->read(memory_, kSize, 1, words_));
  EXPECT_NE(words(words_)[0], once);
}

TEST_F(CudaKernels, GatherSpansInAnyOrder) {
  ASSERT_TRUE(kernels_->fill(memory_, kSize, kSeed));
  const std::uint64_t offsets[] = {3 * cuda::kGatherSpan, cuda::kGatherSpan};
  std::copy(std::begin(offsets), std::end(offsets), words(words_) + 1);
  words(words_)[0] = 0;
  ASSERT_TRUE(kernels_->gather(memory_, words_ + 8, 2, words_));
  std::uint64_t expected = 0;
  for (const std::uint64_t offset : offsets) {
    const auto* const span = words(memory_ + offset);
    expected = std::accumulate(span, span + cuda::kGatherSpan / 8, expected);
  }
  EXPECT_EQ(words(words_)[0], expected);
}

TEST_F(CudaKernels, WriteAndCopyAndTellTheFirstThatIsWrong) {
  const Bytes half(kSize.count() / 2);
  const CUdeviceptr other = memory_ + half.count();
  ASSERT_TRUE(kernels_->fill(memory_, half, kSeed));
  ASSERT_TRUE(kernels_->copy(other, memory_, half));
  EXPECT_TRUE(std::equal(words(memory_), words(other), words(other)));
  const auto first_wrong = [&](std::uint64_t seed, std::uint64_t stride) {
    words(words_)[0] = ~std::uint64_t{0};
    EXPECT_TRUE(kernels_->compare(other, half, seed, stride, words_));
    return words(words_)[0];
  };
  EXPECT_EQ(first_wrong(kSeed, 1), ~std::uint64_t{0});
  EXPECT_EQ(first_wrong(kSeed + 1, 1), 0U);
  words(other)[4711] ^= 1;
  words(other)[4712] ^= 1;
  EXPECT_EQ(first_wrong(kSeed, 1), 4711U);
  ASSERT_TRUE(kernels_->write(other, half, cuda::random_word(kSeed, 0)));
  EXPECT_EQ(first_wrong(kSeed, 0), ~std::uint64_t{0});
  EXPECT_EQ(first_wrong(kSeed, 1), 1U);
  fake_.set("kernel-writes", 0);
  ASSERT_TRUE(kernels_->copy(other, memory_, half));
  ASSERT_TRUE(kernels_->write(memory_, half, 7));
  EXPECT_EQ(words(other)[1], cuda::random_word(kSeed, 0));
  EXPECT_EQ(words(memory_)[1], cuda::random_word(kSeed, 1));
}

TEST_F(CudaKernels, LinkLinesToOneCycleAndChaseIt) {
  for (const std::uint64_t lines : {1U, 2U, 3U, 5U, 64U, 65U, 1000U, 2048U}) {
    ASSERT_TRUE(kernels_->link(memory_, lines, kSeed));
    std::set<CUdeviceptr> seen;
    CUdeviceptr at = memory_;
    for (std::uint64_t i = 0; i < lines; ++i) {
      EXPECT_TRUE(seen.insert(at).second) << lines;
      EXPECT_EQ((at - memory_) % cuda::kChaseLine, 0U);
      at = *words(at);
    }
    EXPECT_EQ(at, memory_) << lines;
    const auto line = [&](std::uint64_t i) {
      return memory_ + cuda::kChaseLine * cuda::shuffled(i, lines, kSeed);
    };
    ASSERT_TRUE(kernels_->chase(line(0), lines + 1, words_));
    EXPECT_EQ(words(words_)[0], line(1 % lines)) << lines;
  }
}

TEST(CudaWords, AreShuffledOneToOne) {
  for (const std::uint64_t count : {1U, 2U, 4U, 5U, 17U, 1000U, 65536U, 70001U}) {
    std::vector<bool> seen(count);
    std::uint64_t in_place = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t at = cuda::shuffled(i, count, kSeed);
      ASSERT_LT(at, count);
      EXPECT_FALSE(seen[at]);
      seen[at] = true;
      in_place += at == i ? 1U : 0U;
    }
    EXPECT_TRUE(count < 1000 || in_place < 10) << count;
  }
}

TEST_F(CudaKernels, MayUseTheirMemoryOnly) {
  const auto answer = kernels_->read(memory_, Bytes(kSize.count() + 4096), 1, words_);
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().describe(), HasSubstr("the kernel carveout_read: cuLaunchKernel"));
  EXPECT_EQ(answer.error().cuda_result, cuda::kIllegalAddress);
  EXPECT_THAT(fake_.broken_rules(), HasSubstr("memory used by a kernel that it may not use"));
}

TEST_F(CudaKernels, AreToBeWaitedForBeforeTheirMemoryGoes) {
  for (const bool waited : {true, false}) {
    const UniqueFd file = make_file(DescriptorKind::kMemfd, mib(2));
    auto mapping = cuda::map({DescriptorKind::kMemfd, file.get(), mib(2)},
                             fake_.settings(MapStrategy::kRegister));
    ASSERT_TRUE(mapping);
    ASSERT_TRUE(kernels_->write(mapping->device_pointer(), mib(2), 1));
    ASSERT_TRUE(!waited || fake_.call(cuda::kCtxSynchronize)() == cuda::kSuccess);
    EXPECT_TRUE(mapping->unmap());
    EXPECT_EQ(fake_.broken_rules() == "", waited);
  }
  EXPECT_THAT(fake_.broken_rules(), HasSubstr("memory unregistered that the device is still at"));
}

TEST_F(CudaKernels, AreGoneWithTheirModule) {
  cuda::CUmodule module = nullptr;
  cuda::CUfunction function = nullptr;
  const char* const text = ".version 6.3\n.target sm_75\n.visible .entry f(\n.param .u64 a\n)\n";
  ASSERT_EQ(fake_.call(cuda::kModuleLoadData)(&module, text), cuda::kSuccess);
  EXPECT_EQ(fake_.call(cuda::kModuleGetFunction)(&function, module, "g"), cuda::kNoSuchName);
  ASSERT_EQ(fake_.call(cuda::kModuleGetFunction)(&function, module, "f"), cuda::kSuccess);
  EXPECT_EQ(fake_.broken_rules(), "");
  const auto launch = [&] {
    std::uint64_t word = 0;
    void* arguments[] = {&word};
    return fake_.call(cuda::kLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments,
                                           nullptr);
  };
  EXPECT_NE(launch(), cuda::kSuccess);
  EXPECT_THAT(fake_.broken_rules(), HasSubstr("a kernel launched that is not known"));
  EXPECT_EQ(fake_.call(cuda::kModuleUnload)(module), cuda::kSuccess);
  EXPECT_NE(launch(), cuda::kSuccess);
  EXPECT_THAT(fake_.broken_rules(), HasSubstr("no such kernel to launch"));
  EXPECT_NE(fake_.call(cuda::kModuleUnload)(module), cuda::kSuccess);
  EXPECT_THAT(fake_.broken_rules(), HasSubstr("no such module to unload"));
}

TEST_F(CudaKernels, ComeOfPtxOnly) {
  cuda::CUmodule module = nullptr;
  for (const char* text : {"", "nonsense", ".version 6.3\n.target sm_75\n",
                           ".version 6.3\n.visible .entry f(\n.param .u64 a\n)\n",
                           ".target sm_75\n.visible .entry f(\n.param .u64 a\n)\n"}) {
    EXPECT_EQ(fake_.call(cuda::kModuleLoadData)(&module, text), cuda::kInvalidPtx) << text;
  }
}

TEST_F(CudaKernels, AreTimedByEventsThatWereWaitedFor) {
  cuda::CUevent start = nullptr;
  cuda::CUevent end = nullptr;
  float milliseconds = -1;
  const auto elapsed = [&] {
    return fake_.call(cuda::kEventElapsedTime)(&milliseconds, start, end);
  };
  for (cuda::CUevent* const event : {&start, &end})
    ASSERT_EQ(fake_.call(cuda::kEventCreate)(event, 0), cuda::kSuccess);
  EXPECT_NE(elapsed(), cuda::kSuccess);
  EXPECT_THAT(fake_.broken_rules(), HasSubstr("the time between events that were not"));
  ASSERT_EQ(fake_.call(cuda::kEventRecord)(start, nullptr), cuda::kSuccess);
  ASSERT_TRUE(kernels_->write(memory_, kSize, 1));
  ASSERT_EQ(fake_.call(cuda::kEventRecord)(end, nullptr), cuda::kSuccess);
  EXPECT_EQ(elapsed(), cuda::kNotReady);
  EXPECT_EQ(fake_.call(cuda::kEventSynchronize)(end), cuda::kSuccess);
  EXPECT_EQ(elapsed(), cuda::kSuccess);
  EXPECT_GE(milliseconds, 0);
  for (cuda::CUevent const event : {start, end})
    EXPECT_EQ(fake_.call(cuda::kEventDestroy)(event), cuda::kSuccess);
  EXPECT_NE(fake_.call(cuda::kEventDestroy)(end), cuda::kSuccess);
  EXPECT_THAT(fake_.broken_rules(), HasSubstr("no such event to destroy"));
}

}  // namespace
}  // namespace carveout::test
