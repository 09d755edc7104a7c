// Every call of every strategy failed in turn: nothing stays reserved, mapped, imported or open.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "cuda/mapping.hpp"
#include "fake_cuda/fake_driver.hpp"

namespace carveout::test {
namespace {

using cuda::File;
using cuda::Mapping;
using testing::HasSubstr;

constexpr std::size_t kPieces = 3;

struct Way {
  const char* name;
  DescriptorKind kind;
  MapStrategy strategy;
  std::size_t pieces;
  long takes_dma_buf;
  std::vector<std::string> takes;       // in the order of their calls
  std::vector<std::string> gives_back;  // likewise
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

const std::vector<std::string>& context_calls() {
  static const std::vector<std::string> kCalls{"cuCtxGetCurrent", "cuDeviceGet",
                                               "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent"};
  return kCalls;
}

class CudaFailure : public testing::TestWithParam<Way> {
 protected:
  CudaFailure() {
    fake_.set("dma-buf", GetParam().takes_dma_buf);
    for (std::size_t i = 0; i < GetParam().pieces; ++i) {
      files_.push_back(make_file(GetParam().kind, mib(2)));
      range_.push_back({GetParam().kind, files_.back().get(), mib(2)});
    }
  }
  void SetUp() override { ASSERT_TRUE(cuda::Driver::load(fake_.library())); }

  Result<Mapping> map() { return cuda::map_range(range_, fake_.settings(GetParam().strategy)); }
  // Mapping fails with the nth call of `entry`, for each n that there is.
  void fail_each(const std::string& entry, const Footprint& before);

  FakeDriver fake_;
  std::vector<UniqueFd> files_;
  std::vector<File> range_;
};

void CudaFailure::fail_each(const std::string& entry, const Footprint& before) {
  int nth = 1;
  for (;; ++nth) {
    ASSERT_LT(nth, 20);
    fake_.fail(entry, nth);
    auto mapping = map();
    if (!fake_.has_failed()) {
      EXPECT_TRUE(mapping) << mapping.error().describe();
      break;
    }
    // Registering is tried in two ways, of which the second may work.
    const bool second_way = entry == "cuMemHostRegister" && mapping;
    if (!second_way) {
      ASSERT_FALSE(mapping) << entry << " " << nth;
      EXPECT_THAT(mapping.error().describe(), HasSubstr(entry)) << nth;
      EXPECT_EQ(mapping.error().number, 0);
      EXPECT_EQ(footprint(fake_), before) << entry << " " << nth;
    }
    EXPECT_EQ(fake_.current(), nullptr);
  }
  EXPECT_GT(nth, 1) << entry << " is never called";
  fake_.fail(entry, 0);
}

TEST_P(CudaFailure, OfAnyCallLeavesNothing) {
  const Footprint before = footprint(fake_);
  for (const auto* const calls : {&context_calls(), &GetParam().takes}) {
    for (const std::string& entry : *calls) {
      if (entry != "cuCtxGetCurrent") fail_each(entry, before);
      EXPECT_EQ(footprint(fake_), before) << entry;
    }
  }
  EXPECT_EQ(fake_.broken_rules(), "");
}

// As a call does that reports an earlier failure: the undoing has to go on.
TEST_P(CudaFailure, OfAnUndoingThatWasDoneLeavesNothingAndIsSaid) {
  for (const std::string& entry : GetParam().gives_back) {
    for (int nth = 1;; ++nth) {
      ASSERT_LT(nth, 20);
      const Footprint before = footprint(fake_);
      auto mapping = map();
      ASSERT_TRUE(mapping) << mapping.error().describe();
      fake_.fail(entry, nth, cuda::kOperatingSystem, true);
      const auto unmapped = mapping->unmap();
      Footprint after = footprint(fake_);
      // The descriptor of memory that could not be destroyed is CUDA's, as far as we know.
      const bool kept = entry == "cuDestroyExternalMemory" && GetParam().takes_dma_buf == 2;
      if (kept && fake_.has_failed()) {
        EXPECT_EQ(after.descriptors, before.descriptors + 1);
        after.descriptors = before.descriptors;
      }
      EXPECT_EQ(after, before) << entry << " " << nth;
      if (!fake_.has_failed()) {
        EXPECT_TRUE(unmapped);
        EXPECT_GT(nth, 1) << entry << " is never called";
        break;
      }
      ASSERT_FALSE(unmapped) << entry;
      EXPECT_THAT(unmapped.error().describe(),
                  HasSubstr(entry + " failed: CUDA_ERROR_OPERATING_SYSTEM"));
    }
    fake_.fail(entry, 0);
  }
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_P(CudaFailure, OfBothLeavesNothing) {
  for (const std::string& taking : GetParam().takes) {
    for (const std::string& giving : GetParam().gives_back) {
      // See above: there the descriptor stays.
      if (giving == "cuDestroyExternalMemory" && GetParam().takes_dma_buf == 2) continue;
      const Footprint before = footprint(fake_);
      fake_.fail(giving, 1, cuda::kOperatingSystem, true);
      fail_each(taking, before);
      fake_.fail(giving, 0);
    }
  }
  EXPECT_EQ(fake_.broken_rules(), "");
}

// What the driver does not give back stays with it; all that is ours is gone, and nothing is tried
// twice.
TEST_P(CudaFailure, OfAnUndoingThatTheDriverRefusesLeavesOnlyWhatTheDriverKeeps) {
  for (const std::string& entry : GetParam().gives_back) {
    FakeDriver fake;
    fake.set("dma-buf", GetParam().takes_dma_buf);
    const auto settings = fake.settings(GetParam().strategy);
    auto mapping = cuda::map_range(range_, settings);
    ASSERT_TRUE(mapping) << mapping.error().describe();
    fake.fail(entry);
    const int before = fake.calls(entry);
    EXPECT_FALSE(mapping->unmap()) << entry;
    EXPECT_EQ(mapping->device_pointer(), 0U);
    EXPECT_EQ(mapping->host_pointer(), nullptr);
    const int asked = fake.calls(entry) - before;
    EXPECT_TRUE(mapping->unmap());
    EXPECT_EQ(fake.calls(entry) - before, asked);
    EXPECT_LE(asked, static_cast<int>(GetParam().pieces));
    EXPECT_GT(fake.live(), 0);
    EXPECT_TRUE(cuda::map_range(range_, settings)) << "the next mapping";
    EXPECT_EQ(fake.current(), nullptr);
    for (const UniqueFd& file : files_)
      EXPECT_TRUE(is_open(file.get()));
  }
}

TEST_P(CudaFailure, OfLeavingTheContextLeavesTheMemoryAlone) {
  const Footprint before = footprint(fake_);
  fake_.fail("cuCtxPopCurrent", 1, cuda::kOperatingSystem, true);
  {
    const auto mapping = map();
    EXPECT_TRUE(mapping) << mapping.error().describe();
    EXPECT_TRUE(fake_.has_failed());
  }
  EXPECT_EQ(footprint(fake_), before);
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_P(CudaFailure, IsALackOfOneCall) {
  for (const auto* const calls : {&GetParam().takes, &GetParam().gives_back}) {
    for (const std::string& entry : *calls) {
      FakeDriver fake;
      fake.set("dma-buf", GetParam().takes_dma_buf);
      ASSERT_TRUE(cuda::Driver::load(fake.library()));
      const Footprint before = footprint(fake);
      fake.hide(entry);
      const auto mapping = cuda::map_range(range_, fake.settings(GetParam().strategy));
      ASSERT_FALSE(mapping) << entry;
      EXPECT_EQ(mapping.error().code, Code::kNotFound);
      EXPECT_THAT(mapping.error().describe(), HasSubstr("this driver has no " + entry));
      EXPECT_EQ(footprint(fake), before);
      for (const std::string& call : GetParam().takes)
        EXPECT_EQ(fake.calls(call), 0) << call;
    }
  }
}

const std::vector<std::string> kVmmTakes{"cuMemGetAllocationGranularity", "cuMemAddressReserve",
                                         "cuMemImportFromShareableHandle", "cuMemMap",
                                         "cuMemSetAccess"};
const std::vector<std::string> kVmmGivesBack{"cuMemUnmap", "cuMemRelease", "cuMemAddressFree"};
const std::vector<std::string> kExternalTakes{"cuImportExternalMemory",
                                              "cuExternalMemoryGetMappedBuffer"};
const std::vector<std::string> kExternalGivesBack{"cuMemFree", "cuDestroyExternalMemory"};
const std::vector<std::string> kRegisterTakes{"cuMemHostRegister", "cuMemHostGetDevicePointer"};
const std::vector<std::string> kRegisterGivesBack{"cuMemHostUnregister"};

INSTANTIATE_TEST_SUITE_P(
    All, CudaFailure,
    testing::Values(Way{"Vmm", DescriptorKind::kNvidiaFile, MapStrategy::kVmm, 1, 0, kVmmTakes,
                        kVmmGivesBack},
                    Way{"VmmRange", DescriptorKind::kNvidiaFile, MapStrategy::kVmm, kPieces, 0,
                        kVmmTakes, kVmmGivesBack},
                    Way{"ExternalNvidiaFile", DescriptorKind::kNvidiaFile, MapStrategy::kExternal,
                        1, 0, kExternalTakes, kExternalGivesBack},
                    Way{"ExternalDmaBuf", DescriptorKind::kDmaBuf, MapStrategy::kExternal, 1, 1,
                        kExternalTakes, kExternalGivesBack},
                    Way{"ExternalDmaBufLeftToUs", DescriptorKind::kDmaBuf, MapStrategy::kExternal,
                        1, 2, kExternalTakes, kExternalGivesBack},
                    Way{"RegisterMemfd", DescriptorKind::kMemfd, MapStrategy::kRegister, 1, 0,
                        kRegisterTakes, kRegisterGivesBack},
                    Way{"RegisterDmaBuf", DescriptorKind::kDmaBuf, MapStrategy::kRegister, 1, 0,
                        kRegisterTakes, kRegisterGivesBack}),
    [](const auto& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace carveout::test
