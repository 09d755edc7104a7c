// The strategies where they work, which one is chosen, and what is said of the others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "cuda/mapping.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "fake_cuda/fake_driver.hpp"

namespace carveout::test {
namespace {

using cuda::File;
using cuda::Mapping;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Bytes kSize = mib(4);

// What is written through any pointer is read through all.
void expect_same_memory(const Mapping& mapping, int descriptor) {
  const View view(descriptor, mapping.size());
  const std::size_t last = mapping.size().count() - 1;
  for (const std::size_t at : {std::size_t{0}, std::size_t{2097151}, last}) {
    const auto byte = static_cast<unsigned char>(at % 251 + 1);
    if (mapping.device_pointer() != 0) {
      at_device(mapping.device_pointer())[at] = byte;
      EXPECT_EQ(view[at], byte);
    }
    if (mapping.host_pointer() != nullptr) {
      auto* const host = static_cast<volatile unsigned char*>(mapping.host_pointer());
      host[at] = static_cast<unsigned char>(byte + 1);
      EXPECT_EQ(view[at], byte + 1);
      if (mapping.device_pointer() != 0) {
        EXPECT_EQ(at_device(mapping.device_pointer())[at], byte + 1);
      }
    }
  }
}

struct Way {
  const char* name;
  DescriptorKind kind;
  MapStrategy strategy;
  bool has_device_pointer;
  bool has_host_pointer;
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

class CudaStrategy : public testing::TestWithParam<Way> {
 protected:
  CudaStrategy() { fake_.set("dma-buf", 1); }
  [[nodiscard]] static std::optional<int> device_zero() {
    return GetParam().has_device_pointer ? std::optional<int>(0) : std::nullopt;
  }
  FakeDriver fake_;
};

TEST_P(CudaStrategy, MapsTheMemoryAndTakesItsHandsOffIt) {
  // The driver stays loaded, and is no part of what a mapping takes.
  ASSERT_TRUE(cuda::Driver::load(fake_.library()));
  UniqueFd file = make_file(GetParam().kind, kSize);
  const Footprint before = footprint(fake_);
  {
    auto mapping = map({GetParam().kind, file.get(), kSize}, fake_.settings(GetParam().strategy));
    ASSERT_TRUE(mapping) << mapping.error().describe();
    EXPECT_EQ(mapping->strategy(), GetParam().strategy);
    EXPECT_EQ(mapping->size(), kSize);
    EXPECT_TRUE(mapping->why_not().empty());
    EXPECT_EQ(mapping->device_pointer() != 0, GetParam().has_device_pointer);
    EXPECT_EQ(mapping->device(), device_zero());
    EXPECT_EQ(mapping->host_pointer() != nullptr, GetParam().has_host_pointer);
    expect_same_memory(*mapping, file.get());
    if (GetParam().has_device_pointer) {
      EXPECT_EQ(fake_.current(), nullptr);
    }
  }
  EXPECT_EQ(footprint(fake_), before);
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_P(CudaStrategy, KeepsTheMemoryWhenTheDescriptorIsClosed) {
  UniqueFd file = make_file(GetParam().kind, kSize);
  const View view(file.get(), kSize);
  auto mapping = map({GetParam().kind, file.get(), kSize}, fake_.settings(GetParam().strategy));
  ASSERT_TRUE(mapping) << mapping.error().describe();
  file.reset();
  auto* const bytes = GetParam().has_device_pointer
                          ? at_device(mapping->device_pointer())
                          : static_cast<volatile unsigned char*>(mapping->host_pointer());
  bytes[kSize.count() - 1] = 77;
  EXPECT_EQ(view[kSize.count() - 1], 77);
}

TEST_P(CudaStrategy, ChangesNothingInTheMemory) {
  const UniqueFd file = make_file(GetParam().kind, kSize);
  const View view(file.get(), kSize);
  for (std::size_t at = 0; at < kSize.count(); at += 4096)
    view[at] = static_cast<unsigned char>(at / 4096 + 1);
  for (int round = 0; round < 2; ++round) {
    const auto mapping =
        map({GetParam().kind, file.get(), kSize}, fake_.settings(GetParam().strategy));
    ASSERT_TRUE(mapping) << mapping.error().describe();
  }
  for (std::size_t at = 0; at < kSize.count(); at += 4096)
    ASSERT_EQ(view[at], static_cast<unsigned char>(at / 4096 + 1)) << at;
}

TEST_P(CudaStrategy, UnmapsOnceAndIsThenNothing) {
  ASSERT_TRUE(cuda::Driver::load(fake_.library()));
  const UniqueFd file = make_file(GetParam().kind, kSize);
  const Footprint before = footprint(fake_);
  auto mapping = map({GetParam().kind, file.get(), kSize}, fake_.settings(GetParam().strategy));
  ASSERT_TRUE(mapping) << mapping.error().describe();
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(mapping->unmap());
    EXPECT_EQ(mapping->device_pointer(), 0U);
    EXPECT_EQ(mapping->host_pointer(), nullptr);
    EXPECT_EQ(mapping->device(), std::nullopt);
    EXPECT_EQ(footprint(fake_), before);
  }
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_P(CudaStrategy, MovesWithItsMemory) {
  ASSERT_TRUE(cuda::Driver::load(fake_.library()));
  const UniqueFd one = make_file(GetParam().kind, kSize);
  const UniqueFd two = make_file(GetParam().kind, kSize);
  const Footprint before = footprint(fake_);
  {
    auto first = map({GetParam().kind, one.get(), kSize}, fake_.settings(GetParam().strategy));
    ASSERT_TRUE(first);
    const Footprint with_one = footprint(fake_);
    auto second = map({GetParam().kind, two.get(), kSize}, fake_.settings(GetParam().strategy));
    ASSERT_TRUE(second);
    Mapping moved(*std::move(first));
    EXPECT_EQ(first->device_pointer(), 0U);  // NOLINT(bugprone-use-after-move): it is nothing now
    EXPECT_TRUE(first->unmap());
    expect_same_memory(moved, one.get());
    moved = *std::move(second);
    EXPECT_THAT(changes(with_one, footprint(fake_)), IsEmpty());
    expect_same_memory(moved, two.get());
    Mapping& itself = moved;
    moved = std::move(itself);
    expect_same_memory(moved, two.get());
  }
  EXPECT_EQ(footprint(fake_), before);
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_P(CudaStrategy, MapsTheSameMemoryTwice) {
  ASSERT_TRUE(cuda::Driver::load(fake_.library()));
  const UniqueFd file = make_file(GetParam().kind, kSize);
  const Footprint before = footprint(fake_);
  for (const bool first_goes_first : {true, false}) {
    auto first = map({GetParam().kind, file.get(), kSize}, fake_.settings(GetParam().strategy));
    auto second = map({GetParam().kind, file.get(), kSize}, fake_.settings(GetParam().strategy));
    ASSERT_TRUE(first && second);
    EXPECT_TRUE((first_goes_first ? first : second)->unmap());
    expect_same_memory(first_goes_first ? *second : *first, file.get());
  }
  EXPECT_EQ(footprint(fake_), before);
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_P(CudaStrategy, BelongsToTheCallersContextIfThereIsOne) {
  if (!GetParam().has_device_pointer) GTEST_SKIP() << "waived: needs no context";
  ASSERT_TRUE(cuda::Driver::load(fake_.library()));
  const cuda::CUcontext own = fake_.make_context(0);
  ASSERT_EQ(fake_.call(cuda::kCtxPushCurrent)(own), cuda::kSuccess);
  const UniqueFd file = make_file(GetParam().kind, kSize);
  const Footprint before = footprint_of_files(fake_);
  auto mapping = map({GetParam().kind, file.get(), kSize}, fake_.settings(GetParam().strategy));
  ASSERT_TRUE(mapping);
  EXPECT_EQ(fake_.current(), own);
  EXPECT_EQ(fake_.calls("cuDevicePrimaryCtxRetain"), 0);
  // From a thread that has none.
  std::jthread([&] {
    EXPECT_TRUE(mapping->unmap());
    EXPECT_EQ(fake_.current(), nullptr);
  }).join();
  EXPECT_EQ(fake_.current(), own);
  EXPECT_EQ(footprint_of_files(fake_), before);
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_P(CudaStrategy, MapsForTheDeviceAskedFor) {
  if (!GetParam().has_device_pointer) GTEST_SKIP() << "waived: needs no device";
  fake_.set("devices", 2);
  const UniqueFd file = make_file(GetParam().kind, kSize);
  auto settings = fake_.settings(GetParam().strategy);
  settings.device = 1;
  {
    const auto mapping = map({GetParam().kind, file.get(), kSize}, settings);
    ASSERT_TRUE(mapping) << mapping.error().describe();
    EXPECT_EQ(mapping->device(), 1);
  }
  // The current context's, where none is asked for.
  ASSERT_EQ(fake_.call(cuda::kCtxPushCurrent)(fake_.make_context(1)), cuda::kSuccess);
  settings.device = std::nullopt;
  EXPECT_EQ(map({GetParam().kind, file.get(), kSize}, settings)->device(), 1);
  cuda::CUcontext popped = nullptr;
  ASSERT_EQ(fake_.call(cuda::kCtxPopCurrent)(&popped), cuda::kSuccess);
  settings.device = 2;
  const auto none = map({GetParam().kind, file.get(), kSize}, settings);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_EQ(fake_.live(), 0);
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_P(CudaStrategy, MapsInManyThreadsAtOnce) {
  ASSERT_TRUE(cuda::Driver::load(fake_.library()));
  const UniqueFd file = make_file(GetParam().kind, kSize);
  const Footprint before = footprint_of_files(fake_);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < 10; ++round) {
          const auto mapping =
              map({GetParam().kind, file.get(), kSize}, fake_.settings(GetParam().strategy));
          EXPECT_TRUE(mapping) << mapping.error().describe();
        }
      });
    }
  }
  EXPECT_EQ(footprint_of_files(fake_), before);
  EXPECT_EQ(fake_.broken_rules(), "");
}

// The fake ends a process that calls it after its end (kBroken).
TEST_P(CudaStrategy, CallsNothingAtTheEndOfTheProcess) {
  static FakeDriver* fake = nullptr;
  static std::optional<Mapping> kept;
  static int calls = 0;
  fake = &fake_;
  const UniqueFd file = make_file(GetParam().kind, kSize);
  EXPECT_EQ(run_in_child([&] {
              // Last of all, after `kept` is gone.
              std::atexit([] { ::_exit(fake->calls() == calls ? 0 : 3); });
              std::atexit([] { kept.reset(); });
              auto mapping =
                  map({GetParam().kind, file.get(), kSize}, fake_.settings(GetParam().strategy));
              if (!mapping) return 2;
              kept.emplace(*std::move(mapping));
              calls = fake_.calls();
              std::exit(0);  // NOLINT(concurrency-mt-unsafe)
            }),
            0);
}

TEST_P(CudaStrategy, CallsNothingInAForkedChild) {
  const UniqueFd file = make_file(GetParam().kind, kSize);
  auto mapping = map({GetParam().kind, file.get(), kSize}, fake_.settings(GetParam().strategy));
  ASSERT_TRUE(mapping) << mapping.error().describe();
  EXPECT_EQ(run_in_child([&] {
              const int before = fake_.calls();
              if (!mapping->unmap()) return 1;
              if (fake_.calls() != before) return 2;
              if (mapping->host_pointer() != nullptr) return 3;
              return 0;
            }),
            0);
  expect_same_memory(*mapping, file.get());
  EXPECT_TRUE(mapping->unmap());
  EXPECT_EQ(fake_.live(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaStrategy,
    testing::Values(
        Way{"VmmOfAnNvidiaFile", DescriptorKind::kNvidiaFile, MapStrategy::kVmm, true, false},
        Way{"ExternalOfAnNvidiaFile", DescriptorKind::kNvidiaFile, MapStrategy::kExternal, true,
            false},
        Way{"ExternalOfADmaBuf", DescriptorKind::kDmaBuf, MapStrategy::kExternal, true, false},
        Way{"RegisterOfADmaBuf", DescriptorKind::kDmaBuf, MapStrategy::kRegister, true, true},
        Way{"RegisterOfAMemfd", DescriptorKind::kMemfd, MapStrategy::kRegister, true, true},
        Way{"HostOfADmaBuf", DescriptorKind::kDmaBuf, MapStrategy::kHost, false, true},
        Way{"HostOfAMemfd", DescriptorKind::kMemfd, MapStrategy::kHost, false, true}),
    [](const auto& way) { return std::string(way.param.name); });

TEST(CudaExternal, ClosesADmaBufsDescriptorThatCudaLeft) {
  FakeDriver fake;
  ASSERT_TRUE(cuda::Driver::load(fake.library()));
  const UniqueFd file = make_file(DescriptorKind::kDmaBuf, kSize);
  const Footprint before = footprint(fake);
  for (const long takes : {1L, 2L}) {
    fake.set("dma-buf", takes);
    EXPECT_TRUE(
        map({DescriptorKind::kDmaBuf, file.get(), kSize}, fake.settings(MapStrategy::kExternal)));
    EXPECT_EQ(footprint(fake), before);
    EXPECT_TRUE(is_open(file.get()));
  }
  EXPECT_EQ(fake.broken_rules(), "");
}

TEST(CudaRegister, TakesIoMemoryOnlyWhereTheOtherIsRefused) {
  FakeDriver fake;
  const UniqueFd memory = make_file(DescriptorKind::kMemfd, kSize);
  const UniqueFd io = make_file(DescriptorKind::kDmaBuf, kSize);
  EXPECT_TRUE(
      map({DescriptorKind::kMemfd, memory.get(), kSize}, fake.settings(MapStrategy::kRegister)));
  EXPECT_EQ(fake.calls("cuMemHostRegister"), 1);
  EXPECT_TRUE(
      map({DescriptorKind::kDmaBuf, io.get(), kSize}, fake.settings(MapStrategy::kRegister)));
  EXPECT_EQ(fake.calls("cuMemHostRegister"), 3);
  fake.set("register", 0);
  const auto refused =
      map({DescriptorKind::kDmaBuf, io.get(), kSize}, fake.settings(MapStrategy::kRegister));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().describe(), HasSubstr("CUDA_ERROR_NOT_SUPPORTED"));
  EXPECT_THAT(refused.error().describe(), HasSubstr("as I/O memory: cuMemHostRegister failed"));
}

// They are equal on GB10, and not everywhere: not in the fake.
TEST(CudaRegister, AsksForTheDevicesPointer) {
  FakeDriver fake;
  const UniqueFd file = make_file(DescriptorKind::kMemfd, kSize);
  const auto mapping =
      map({DescriptorKind::kMemfd, file.get(), kSize}, fake.settings(MapStrategy::kRegister));
  ASSERT_TRUE(mapping) << mapping.error().describe();
  EXPECT_NE(at_device(mapping->device_pointer()), mapping->host_pointer());
}

}  // namespace
}  // namespace carveout::test
