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
using cuda::FileKind;
using cuda::Strategy;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Bytes kSize = mib(4);

std::vector<Strategy> tried(const cuda::Mapping& mapping) {
  std::vector<Strategy> all;
  for (const cuda::Attempt& attempt : mapping.why_not())
    all.push_back(attempt.strategy);
  return all;
}

TEST(CudaStrategyName, IsReadAsItIsWritten) {
  for (const Strategy strategy : {Strategy::kAuto, Strategy::kVmm, Strategy::kExternal,
                                  Strategy::kRegister, Strategy::kHost}) {
    const auto parsed = cuda::parse_strategy(cuda::name_of(strategy));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(*parsed, strategy);
  }
  for (const char* text : {"", "VMM", "vmm ", "managed", "\x1b[31m"}) {
    const auto parsed = cuda::parse_strategy(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalid);
    EXPECT_EQ(parsed.error().describe().find('\x1b'), std::string::npos);
  }
}

TEST(CudaAuto, TakesAnNvidiaFileByVmm) {
  FakeDriver fake;
  const UniqueFd file = make_file(FileKind::kNvidiaFile, kSize);
  const auto mapping = map({FileKind::kNvidiaFile, file.get(), kSize}, fake.settings());
  ASSERT_TRUE(mapping) << mapping.error().describe();
  EXPECT_EQ(mapping->strategy(), Strategy::kVmm);
  EXPECT_THAT(tried(*mapping), IsEmpty());
}

TEST(CudaAuto, TakesAnNvidiaFileAsExternalMemoryWhereTheDriverImportsNone) {
  for (const char* which : {"fake_cuda", "fake_cuda_old"}) {
    FakeDriver fake(which);
    fake.hide("cuMemImportFromShareableHandle");
    const UniqueFd file = make_file(FileKind::kNvidiaFile, kSize);
    const auto mapping = map({FileKind::kNvidiaFile, file.get(), kSize}, fake.settings());
    ASSERT_TRUE(mapping) << mapping.error().describe();
    EXPECT_EQ(mapping->strategy(), Strategy::kExternal);
    EXPECT_THAT(tried(*mapping), ElementsAre(Strategy::kVmm));
    EXPECT_THAT(mapping->why_not()[0].reason.describe(),
                HasSubstr("this driver has no cuMemImportFromShareableHandle"));
    EXPECT_EQ(fake.calls("cuInit"), 1);
  }
}

TEST(CudaAuto, TakesADmaBufAsTheMachineCan) {
  FakeDriver fake;
  const UniqueFd file = make_file(FileKind::kDmaBuf, kSize);
  const File lent{FileKind::kDmaBuf, file.get(), kSize};
  fake.set("dma-buf", 1);
  const auto external = map(lent, fake.settings());
  ASSERT_TRUE(external) << external.error().describe();
  EXPECT_EQ(external->strategy(), Strategy::kExternal);
  EXPECT_THAT(tried(*external), IsEmpty());
  fake.set("dma-buf", 0);
  {
    const auto registered = map(lent, fake.settings());
    ASSERT_TRUE(registered) << registered.error().describe();
    EXPECT_EQ(registered->strategy(), Strategy::kRegister);
    EXPECT_THAT(tried(*registered), ElementsAre(Strategy::kExternal));
    EXPECT_THAT(registered->why_not()[0].reason.describe(),
                HasSubstr("cuImportExternalMemory failed: CUDA_ERROR_NOT_SUPPORTED"));
  }
  fake.set("register", 0);
  const auto host = map(lent, fake.settings());
  ASSERT_TRUE(host) << host.error().describe();
  EXPECT_EQ(host->strategy(), Strategy::kHost);
  EXPECT_THAT(tried(*host), ElementsAre(Strategy::kExternal, Strategy::kRegister));
}

TEST(CudaAuto, NeverImportsAMemfd) {
  FakeDriver fake;
  const UniqueFd file = make_file(FileKind::kMemfd, kSize);
  const File lent{FileKind::kMemfd, file.get(), kSize};
  const auto registered = map(lent, fake.settings());
  ASSERT_TRUE(registered) << registered.error().describe();
  EXPECT_EQ(registered->strategy(), Strategy::kRegister);
  EXPECT_THAT(tried(*registered), IsEmpty());
  fake.set("register", 0);
  const auto host = map(lent, fake.settings());
  ASSERT_TRUE(host) << host.error().describe();
  EXPECT_EQ(host->strategy(), Strategy::kHost);
  EXPECT_THAT(tried(*host), ElementsAre(Strategy::kRegister));
  EXPECT_EQ(fake.calls("cuMemImportFromShareableHandle"), 0);
  EXPECT_EQ(fake.calls("cuImportExternalMemory"), 0);
}

TEST(CudaAuto, WorksForTheProcessorWithoutAnyCuda) {
  const TemporaryDirectory nothing;
  const cuda::MapSettings settings{.library = nothing.path("libcuda.so.1")};
  for (const FileKind kind : {FileKind::kMemfd, FileKind::kDmaBuf}) {
    const UniqueFd file = make_file(kind, kSize);
    const auto mapping = map({kind, file.get(), kSize}, settings);
    ASSERT_TRUE(mapping) << mapping.error().describe();
    EXPECT_EQ(mapping->strategy(), Strategy::kHost);
    EXPECT_EQ(mapping->device_pointer(), 0U);
    for (const cuda::Attempt& attempt : mapping->why_not()) {
      EXPECT_EQ(attempt.reason.code, Code::kNotFound);
      EXPECT_THAT(attempt.reason.describe(), HasSubstr("cannot be loaded"));
    }
  }
}

TEST(CudaAuto, GivesEveryReasonWhereNothingWorks) {
  const TemporaryDirectory nothing;
  const UniqueFd file = make_file(FileKind::kNvidiaFile, kSize);
  const File lent{FileKind::kNvidiaFile, file.get(), kSize};
  const auto none = map(lent, {.library = nothing.path("libcuda.so.1")});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  FakeDriver fake;
  fake.fail("cuMemMap", 1, cuda::kOutOfMemory);
  fake.fail("cuExternalMemoryGetMappedBuffer", 1, cuda::kNotSupported);
  const auto refused = map(lent, fake.settings());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
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
  const auto refuses = [&fake](FileKind kind, Strategy strategy) {
    const UniqueFd file = make_file(kind, kSize);
    const auto mapping = map({kind, file.get(), kSize}, fake.settings(strategy));
    ASSERT_FALSE(mapping) << cuda::name_of(strategy);
    EXPECT_EQ(mapping.error().code, Code::kInvalid);
    EXPECT_THAT(mapping.error().describe(),
                HasSubstr(cat("cannot be done by ", cuda::name_of(strategy))));
  };
  refuses(FileKind::kMemfd, Strategy::kVmm);
  refuses(FileKind::kMemfd, Strategy::kExternal);
  refuses(FileKind::kDmaBuf, Strategy::kVmm);
  refuses(FileKind::kNvidiaFile, Strategy::kRegister);
  refuses(FileKind::kNvidiaFile, Strategy::kHost);
  EXPECT_EQ(fake.calls(), 0);
}

TEST(CudaMap, RefusesWhatIsNoMemory) {
  FakeDriver fake;
  const UniqueFd file = make_file(FileKind::kMemfd, kSize);
  const std::size_t before = open_descriptors();
  const auto empty = map({FileKind::kMemfd, file.get(), Bytes(0)}, fake.settings());
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, Code::kInvalid);
  const auto longer = map({FileKind::kMemfd, file.get(), mib(6)}, fake.settings());
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().code, Code::kInvalid);
  EXPECT_THAT(longer.error().describe(), HasSubstr("has only 4194304 bytes"));
  const auto all = map({FileKind::kMemfd, file.get(), Bytes(~0ULL)}, fake.settings());
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, Code::kInvalid);
  for (const FileKind kind : {FileKind::kMemfd, FileKind::kDmaBuf, FileKind::kNvidiaFile}) {
    EXPECT_FALSE(map({kind, -1, kSize}, fake.settings()));
  }
  const UniqueFd other = make_file(FileKind::kMemfd, kSize);
  EXPECT_FALSE(map({FileKind::kNvidiaFile, other.get(), kSize}, fake.settings()));
  EXPECT_FALSE(cuda::map_range({}, fake.settings()));
  EXPECT_EQ(open_descriptors(), before + 1);
  EXPECT_EQ(fake.live(), 0);
}

TEST(CudaVmm, WantsWholePagesOfTheDevices) {
  FakeDriver fake;
  fake.set("granularity", 4 << 20);
  const UniqueFd file = make_file(FileKind::kNvidiaFile, mib(6));
  const auto odd = map({FileKind::kNvidiaFile, file.get(), mib(6)}, fake.settings(Strategy::kVmm));
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().code, Code::kInvalid);
  EXPECT_THAT(odd.error().describe(), HasSubstr("6 MiB is not a whole number"));
  EXPECT_THAT(odd.error().describe(), HasSubstr("4 MiB"));
  EXPECT_TRUE(map({FileKind::kNvidiaFile, file.get(), mib(4)}, fake.settings(Strategy::kVmm)));
  EXPECT_EQ(fake.broken_rules(), "");
}

struct Pieces {
  Pieces(FileKind kind, std::size_t count) {
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
  const Pieces pieces(FileKind::kNvidiaFile, 16);
  const Footprint before = footprint(fake);
  {
    const auto mapping = cuda::map_range(pieces.range, fake.settings());
    ASSERT_TRUE(mapping) << mapping.error().describe();
    EXPECT_EQ(mapping->strategy(), Strategy::kVmm);
    EXPECT_EQ(mapping->size(), mib(32));
    EXPECT_EQ(fake.calls("cuMemAddressReserve"), 1);
    EXPECT_EQ(fake.calls("cuMemSetAccess"), 1);
    expect_one_behind_the_other(at_device(mapping->device_pointer()), pieces);
  }
  EXPECT_EQ(footprint(fake), before);
  EXPECT_EQ(fake.broken_rules(), "");
}

TEST(CudaRange, IsOneOfTheProcessorsToo) {
  FakeDriver fake;
  const Pieces pieces(FileKind::kMemfd, 16);
  const Footprint before = footprint(fake);
  {
    const auto mapping = cuda::map_range(pieces.range, fake.settings());
    ASSERT_TRUE(mapping) << mapping.error().describe();
    EXPECT_EQ(mapping->strategy(), Strategy::kHost);
    EXPECT_THAT(tried(*mapping), ElementsAre(Strategy::kRegister));
    EXPECT_THAT(mapping->why_not()[0].reason.describe(), HasSubstr("no one range of addresses"));
    expect_one_behind_the_other(static_cast<unsigned char*>(mapping->host_pointer()), pieces);
  }
  EXPECT_EQ(footprint(fake), before);
  EXPECT_EQ(fake.calls(), 0);
}

TEST(CudaRange, IsAllOrNothing) {
  FakeDriver fake;
  ASSERT_TRUE(cuda::Driver::load(fake.library()));
  Pieces pieces(FileKind::kNvidiaFile, 8);
  const Footprint before = footprint(fake);
  for (int nth = 1; nth <= 8; ++nth) {
    for (const char* entry : {"cuMemImportFromShareableHandle", "cuMemMap"}) {
      fake.fail(entry, nth);
      EXPECT_FALSE(cuda::map_range(pieces.range, fake.settings(Strategy::kVmm))) << nth;
      EXPECT_EQ(footprint(fake), before);
    }
  }
  const UniqueFd strange = make_file(FileKind::kMemfd, mib(2));
  pieces.range[5].descriptor = strange.get();
  EXPECT_FALSE(cuda::map_range(pieces.range, fake.settings(Strategy::kVmm)));
  pieces.range[5] = {FileKind::kMemfd, strange.get(), mib(2)};
  EXPECT_FALSE(cuda::map_range(pieces.range, fake.settings()));
  pieces.range[5] = {FileKind::kNvidiaFile, strange.get(), Bytes(0)};
  EXPECT_FALSE(cuda::map_range(pieces.range, fake.settings()));
  EXPECT_EQ(fake.live(), 0);
  EXPECT_EQ(fake.broken_rules(), "");
}

}  // namespace
}  // namespace carveout::test
