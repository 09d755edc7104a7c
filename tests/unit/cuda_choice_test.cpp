// Which strategy is chosen, why not the others, what is refused, and ranges of several files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text.hpp"
#include "cuda/mapping.hpp"
#include "fake_cuda/fake_driver.hpp"

namespace carveout::test {
namespace {

using cuda::File;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr Bytes kSize = mib(4);

std::vector<MapStrategy> tried(const cuda::Mapping& mapping) {
  std::vector<MapStrategy> all;
  for (const cuda::Attempt& attempt : mapping.why_not())
    all.push_back(attempt.strategy);
  return all;
}

TEST(CudaAuto, TakesAnNvidiaFileByVmm) {
  FakeDriver fake;
  const UniqueFd file = make_file(DescriptorKind::kNvidiaFile, kSize);
  const auto mapping = map({DescriptorKind::kNvidiaFile, file.get(), kSize}, fake.settings());
  ASSERT_TRUE(mapping) << mapping.error().describe();
  EXPECT_EQ(mapping->strategy(), MapStrategy::kVmm);
  EXPECT_THAT(tried(*mapping), IsEmpty());
}

TEST(CudaAuto, TakesAnNvidiaFileAsExternalMemoryWhereTheDriverImportsNone) {
  for (const char* which : {"fake_cuda", "fake_cuda_old"}) {
    FakeDriver fake(which);
    fake.hide("cuMemImportFromShareableHandle");
    const UniqueFd file = make_file(DescriptorKind::kNvidiaFile, kSize);
    const auto mapping = map({DescriptorKind::kNvidiaFile, file.get(), kSize}, fake.settings());
    ASSERT_TRUE(mapping) << mapping.error().describe();
    EXPECT_EQ(mapping->strategy(), MapStrategy::kExternal);
    EXPECT_THAT(tried(*mapping), ElementsAre(MapStrategy::kVmm));
    EXPECT_THAT(mapping->why_not()[0].reason.describe(),
                HasSubstr("this driver has no cuMemImportFromShareableHandle"));
    EXPECT_EQ(fake.calls("cuInit"), 1);
  }
}

TEST(CudaAuto, TakesADmaBufAsTheMachineCan) {
  FakeDriver fake;
  const UniqueFd file = make_file(DescriptorKind::kDmaBuf, kSize);
  const File lent{DescriptorKind::kDmaBuf, file.get(), kSize};
  fake.set("dma-buf", 1);
  const auto external = map(lent, fake.settings());
  ASSERT_TRUE(external) << external.error().describe();
  EXPECT_EQ(external->strategy(), MapStrategy::kExternal);
  EXPECT_THAT(tried(*external), IsEmpty());
  fake.set("dma-buf", 0);
  {
    const auto registered = map(lent, fake.settings());
    ASSERT_TRUE(registered) << registered.error().describe();
    EXPECT_EQ(registered->strategy(), MapStrategy::kRegister);
    EXPECT_THAT(tried(*registered), ElementsAre(MapStrategy::kExternal));
    EXPECT_THAT(registered->why_not()[0].reason.describe(),
                HasSubstr("cuImportExternalMemory failed: CUDA_ERROR_NOT_SUPPORTED"));
  }
  fake.set("register", 0);
  const auto host = map(lent, fake.settings());
  ASSERT_TRUE(host) << host.error().describe();
  EXPECT_EQ(host->strategy(), MapStrategy::kHost);
  EXPECT_THAT(tried(*host), ElementsAre(MapStrategy::kExternal, MapStrategy::kRegister));
}

TEST(CudaAuto, NeverImportsAMemfd) {
  FakeDriver fake;
  const UniqueFd file = make_file(DescriptorKind::kMemfd, kSize);
  const File lent{DescriptorKind::kMemfd, file.get(), kSize};
  const auto registered = map(lent, fake.settings());
  ASSERT_TRUE(registered) << registered.error().describe();
  EXPECT_EQ(registered->strategy(), MapStrategy::kRegister);
  EXPECT_THAT(tried(*registered), IsEmpty());
  fake.set("register", 0);
  const auto host = map(lent, fake.settings());
  ASSERT_TRUE(host) << host.error().describe();
  EXPECT_EQ(host->strategy(), MapStrategy::kHost);
  EXPECT_THAT(tried(*host), ElementsAre(MapStrategy::kRegister));
  EXPECT_EQ(fake.calls("cuMemImportFromShareableHandle"), 0);
  EXPECT_EQ(fake.calls("cuImportExternalMemory"), 0);
}

TEST(CudaAuto, WorksForTheProcessorWithoutAnyCuda) {
  const TemporaryDirectory nothing;
  const cuda::MapSettings settings{.library = nothing.path("libcuda.so.1")};
  for (const DescriptorKind kind : {DescriptorKind::kMemfd, DescriptorKind::kDmaBuf}) {
    const UniqueFd file = make_file(kind, kSize);
    const auto mapping = map({kind, file.get(), kSize}, settings);
    ASSERT_TRUE(mapping) << mapping.error().describe();
    EXPECT_EQ(mapping->strategy(), MapStrategy::kHost);
    EXPECT_EQ(mapping->device_pointer(), 0U);
    for (const cuda::Attempt& attempt : mapping->why_not()) {
      EXPECT_EQ(attempt.reason.code, Code::kNotFound);
      EXPECT_THAT(attempt.reason.describe(), HasSubstr("cannot be loaded"));
    }
  }
}

// A device that was asked for is not given up for the processor.
TEST(CudaAuto, ForADeviceNeverEndsAtTheProcessor) {
  FakeDriver fake;
  fake.set("register", 0);
  fake.set("dma-buf", 0);
  ASSERT_TRUE(cuda::Driver::load(fake.library()));
  const TemporaryDirectory nothing;
  for (const DescriptorKind kind : {DescriptorKind::kMemfd, DescriptorKind::kDmaBuf}) {
    const UniqueFd file = make_file(kind, kSize);
    const Footprint before = footprint(fake);
    for (const std::string& library : {fake.library(), nothing.path("libcuda.so.1")}) {
      const auto none = cuda::map({kind, file.get(), kSize}, {.device = 0, .library = library});
      ASSERT_FALSE(none) << library;
      EXPECT_THAT(none.error().describe(), HasSubstr("register: "));
      EXPECT_THAT(none.error().describe(), Not(HasSubstr("host: ")));
      EXPECT_EQ(none.error().code, library == fake.library() ? Code::kSystem : Code::kNotFound);
    }
    auto settings = fake.settings(MapStrategy::kHost);
    settings.device = 0;
    const int calls = fake.calls();
    const auto refused = map({kind, file.get(), kSize}, settings);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalid);
    EXPECT_THAT(refused.error().describe(), HasSubstr("cannot be done by host for device 0"));
    EXPECT_EQ(fake.calls(), calls);
    EXPECT_EQ(footprint(fake), before);
    EXPECT_FALSE(cuda::is_allowed(MapStrategy::kHost, kind, 0));
    EXPECT_TRUE(cuda::is_allowed(MapStrategy::kHost, kind, std::nullopt));
  }
}

TEST(CudaAuto, GivesEveryReasonWhereNothingWorks) {
  const TemporaryDirectory nothing;
  const UniqueFd file = make_file(DescriptorKind::kNvidiaFile, kSize);
  const File lent{DescriptorKind::kNvidiaFile, file.get(), kSize};
  const auto none = map(lent, {.library = nothing.path("libcuda.so.1")});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  FakeDriver fake;
  fake.fail("cuMemMap", 1, cuda::kOutOfMemory);
  fake.fail("cuExternalMemoryGetMappedBuffer", 1, cuda::kNotSupported);
  const auto refused = map(lent, fake.settings());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_EQ(refused.error().cuda_result, cuda::kOutOfMemory);
  EXPECT_EQ(refused.error().number, 0);
  const std::string text = refused.error().describe();
  EXPECT_THAT(text, HasSubstr("mapping 4 MiB of an NVIDIA file"));
  EXPECT_THAT(text, HasSubstr("vmm: "));
  EXPECT_THAT(text, HasSubstr("cuMemMap failed: CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_THAT(text, HasSubstr("external: "));
  EXPECT_THAT(text, HasSubstr("cuExternalMemoryGetMappedBuffer failed"));
  EXPECT_EQ(fake.live(), 0);
}

TEST(CudaMap, RefusesAStrategyThatTheKindDoesNotAllowWithoutAskingCuda) {
  FakeDriver fake;
  const auto refuses = [&fake](DescriptorKind kind, MapStrategy strategy) {
    const UniqueFd file = make_file(kind, kSize);
    const auto mapping = map({kind, file.get(), kSize}, fake.settings(strategy));
    ASSERT_FALSE(mapping) << name_of(strategy);
    EXPECT_EQ(mapping.error().code, Code::kInvalid);
    EXPECT_THAT(mapping.error().describe(),
                HasSubstr(cat("cannot be done by ", name_of(strategy))));
  };
  refuses(DescriptorKind::kMemfd, MapStrategy::kVmm);
  refuses(DescriptorKind::kMemfd, MapStrategy::kExternal);
  refuses(DescriptorKind::kDmaBuf, MapStrategy::kVmm);
  refuses(DescriptorKind::kNvidiaFile, MapStrategy::kRegister);
  refuses(DescriptorKind::kNvidiaFile, MapStrategy::kHost);
  EXPECT_EQ(fake.calls(), 0);
}

TEST(CudaMap, RefusesWhatIsNoMemory) {
  FakeDriver fake;
  const UniqueFd file = make_file(DescriptorKind::kMemfd, kSize);
  const std::size_t before = open_descriptors();
  const auto empty = map({DescriptorKind::kMemfd, file.get(), Bytes(0)}, fake.settings());
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, Code::kInvalid);
  const auto longer = map({DescriptorKind::kMemfd, file.get(), mib(6)}, fake.settings());
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().code, Code::kInvalid);
  EXPECT_THAT(longer.error().describe(), HasSubstr("has only 4194304 bytes"));
  const auto all = map({DescriptorKind::kMemfd, file.get(), Bytes(~0ULL)}, fake.settings());
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, Code::kInvalid);
  for (const DescriptorKind kind :
       {DescriptorKind::kMemfd, DescriptorKind::kDmaBuf, DescriptorKind::kNvidiaFile}) {
    EXPECT_FALSE(map({kind, -1, kSize}, fake.settings()));
  }
  const UniqueFd other = make_file(DescriptorKind::kMemfd, kSize);
  EXPECT_FALSE(map({DescriptorKind::kNvidiaFile, other.get(), kSize}, fake.settings()));
  EXPECT_FALSE(cuda::map_range({}, fake.settings()));
  EXPECT_EQ(open_descriptors(), before + 1);
  EXPECT_EQ(fake.live(), 0);
}

TEST(CudaVmm, WantsWholePagesOfTheDevices) {
  FakeDriver fake;
  fake.set("granularity", 4 << 20);
  const UniqueFd file = make_file(DescriptorKind::kNvidiaFile, mib(6));
  const auto odd =
      map({DescriptorKind::kNvidiaFile, file.get(), mib(6)}, fake.settings(MapStrategy::kVmm));
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().code, Code::kInvalid);
  EXPECT_THAT(odd.error().describe(), HasSubstr("6 MiB is not a whole number"));
  EXPECT_THAT(odd.error().describe(), HasSubstr("4 MiB"));
  EXPECT_TRUE(
      map({DescriptorKind::kNvidiaFile, file.get(), mib(4)}, fake.settings(MapStrategy::kVmm)));
  EXPECT_EQ(fake.broken_rules(), "");
}

struct Pieces {
  Pieces(DescriptorKind kind, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      files.push_back(make_file(kind, mib(2)));
      range.push_back({kind, files.back().get(), mib(2)});
    }
  }
  std::vector<UniqueFd> files;
  std::vector<File> range;
};

// Each piece begins with its number.
void expect_one_behind_the_other(volatile unsigned char* bytes, const Pieces& pieces) {
  for (std::size_t i = 0; i < pieces.files.size(); ++i) {
    const View view(pieces.files[i].get(), mib(2));
    bytes[i * 2097152] = static_cast<unsigned char>(i + 1);
    bytes[(i + 1) * 2097152 - 1] = static_cast<unsigned char>(i + 101);
    EXPECT_EQ(view[0], i + 1);
    EXPECT_EQ(view[2097151], i + 101);
  }
}

TEST(CudaRange, IsOneRangeOfAddresses) {
  FakeDriver fake;
  ASSERT_TRUE(cuda::Driver::load(fake.library()));
  const Pieces pieces(DescriptorKind::kNvidiaFile, 16);
  const Footprint before = footprint(fake);
  {
    const auto mapping = cuda::map_range(pieces.range, fake.settings());
    ASSERT_TRUE(mapping) << mapping.error().describe();
    EXPECT_EQ(mapping->strategy(), MapStrategy::kVmm);
    EXPECT_EQ(mapping->size(), mib(32));
    EXPECT_EQ(fake.calls("cuMemAddressReserve"), 1);
    EXPECT_EQ(fake.calls("cuMemSetAccess"), 1);
    expect_one_behind_the_other(at_device(mapping->device_pointer()), pieces);
  }
  EXPECT_EQ(footprint(fake), before);
  EXPECT_EQ(fake.broken_rules(), "");
}

TEST(CudaRange, IsTheGpusAlone) {
  FakeDriver fake;
  const Pieces pieces(DescriptorKind::kMemfd, 16);
  const Footprint before = footprint(fake);
  const auto mapping = cuda::map_range(pieces.range, fake.settings());
  ASSERT_FALSE(mapping);
  EXPECT_EQ(mapping.error().code, Code::kInvalid);
  EXPECT_THAT(mapping.error().message, HasSubstr("make no one range of addresses by host"));
  EXPECT_EQ(footprint(fake), before);
  EXPECT_EQ(fake.calls(), 0);
}

TEST(CudaRange, IsAllOrNothing) {
  FakeDriver fake;
  ASSERT_TRUE(cuda::Driver::load(fake.library()));
  Pieces pieces(DescriptorKind::kNvidiaFile, 8);
  const Footprint before = footprint(fake);
  for (int nth = 1; nth <= 8; ++nth) {
    for (const char* entry : {"cuMemImportFromShareableHandle", "cuMemMap"}) {
      fake.fail(entry, nth);
      EXPECT_FALSE(cuda::map_range(pieces.range, fake.settings(MapStrategy::kVmm))) << nth;
      EXPECT_EQ(footprint(fake), before);
    }
  }
  const UniqueFd strange = make_file(DescriptorKind::kMemfd, mib(2));
  pieces.range[5].descriptor = strange.get();
  EXPECT_FALSE(cuda::map_range(pieces.range, fake.settings(MapStrategy::kVmm)));
  pieces.range[5] = {DescriptorKind::kMemfd, strange.get(), mib(2)};
  EXPECT_FALSE(cuda::map_range(pieces.range, fake.settings()));
  pieces.range[5] = {DescriptorKind::kNvidiaFile, strange.get(), Bytes(0)};
  EXPECT_FALSE(cuda::map_range(pieces.range, fake.settings()));
  EXPECT_EQ(fake.live(), 0);
  EXPECT_EQ(fake.broken_rules(), "");
}

}  // namespace
}  // namespace carveout::test
