// The cuda source on the fake driver in the contract suite, and what is true of it alone.

#include "source/cuda.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "contract/source_contract.hpp"
#include "cuda/mapping.hpp"
#include "fake_cuda/fake_driver.hpp"
#include "unit/helpers.hpp"

namespace carveout::test {
namespace {

using testing::HasSubstr;

// With a driver of its own.
class FakedSource final : public Source {
 public:
  explicit FakedSource(long limit) {
    fake_.set("limit", limit);
    auto source = open_cuda_source({.device = 0, .library = fake_.library()});
    if (!source) throw std::runtime_error(source.error().describe());
    source_ = *std::move(source);
  }
  [[nodiscard]] Description describe() const override { return source_->describe(); }
  Result<Buffer> allocate(Bytes size) override { return source_->allocate(size); }
  Result<UniqueFd> share(const Buffer& buffer) override { return source_->share(buffer); }
  Result<void> scrub(Buffer& buffer) override { return source_->scrub(buffer); }
  std::optional<std::string> take_warning() override { return source_->take_warning(); }

 private:
  FakeDriver fake_;
  std::unique_ptr<Source> source_;
};

// What is true of an NVIDIA file: the fake's are memory files all the same.
INSTANTIATE_TEST_SUITE_P(Cuda, SourceContract,
                         testing::Values(SourceCase{.name = "Fake",
                                                    .make = []() -> SourceOrWaived {
                                                      return std::make_unique<FakedSource>(0);
                                                    },
                                                    .make_poor = []() -> SourceOrWaived {
                                                      return std::make_unique<FakedSource>(
                                                          static_cast<long>(kPoorSize.count()));
                                                    },
                                                    .mappable = false,
                                                    .has_length = false,
                                                    .own_inode = false,
                                                    .opened_anew = false}),
                         source_case_name);

class CudaSource : public testing::Test {
 protected:
  void SetUp() override {
    auto source = open_cuda_source({.device = 0, .library = fake_.library()});
    ASSERT_TRUE(source) << source.error().describe();
    source_ = *std::move(source);
  }
  [[nodiscard]] Buffer allocate(Bytes size) {
    auto buffer = source_->allocate(size);
    EXPECT_TRUE(buffer) << buffer.error().describe();
    return buffer ? *std::move(buffer) : Buffer();
  }

  FakeDriver fake_;
  std::unique_ptr<Source> source_;
};

TEST_F(CudaSource, DescribesTheDevice) {
  const Description description = source_->describe();
  EXPECT_EQ(description.name, "cuda");
  EXPECT_EQ(description.kind, DescriptorKind::kNvidiaFile);
  EXPECT_FALSE(description.kernel_zeroes);
  EXPECT_FALSE(description.ordinary_memory);
  EXPECT_EQ(description.limit, std::nullopt);
  EXPECT_THAT(description.detail, HasSubstr("CUDA device 0 (Fake GPU 0)"));
}

TEST_F(CudaSource, ScrubsOnTheDevice) {
  Buffer buffer = allocate(mib(4));
  const auto lent = source_->share(buffer);
  ASSERT_TRUE(lent);
  const View view(lent->get(), mib(4));
  EXPECT_NE(view[0], 0);  // somebody's data
  EXPECT_NE(view[mib(4).count() - 1], 0);
  const Footprint before = footprint(fake_);
  ASSERT_TRUE(source_->scrub(buffer));
  for (std::size_t at = 0; at < mib(4).count(); ++at)
    ASSERT_EQ(view[at], 0) << at;
  EXPECT_EQ(footprint(fake_), before);
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_F(CudaSource, LendsWhatABorrowerMaps) {
  Buffer buffer = allocate(mib(4));
  ASSERT_TRUE(source_->scrub(buffer));
  auto lent = source_->share(buffer);
  ASSERT_TRUE(lent);
  buffer = Buffer();
  const auto mapping =
      cuda::map({DescriptorKind::kNvidiaFile, lent->get(), mib(4)}, fake_.settings());
  ASSERT_TRUE(mapping) << mapping.error().describe();
  EXPECT_EQ(mapping->strategy(), MapStrategy::kVmm);
  EXPECT_EQ(at_device(mapping->device_pointer())[mib(4).count() - 1], 0);
}

TEST_F(CudaSource, HoldsOnlyItsContext) {
  const int before = fake_.live();
  EXPECT_EQ(before, 1);
  {
    Buffer buffer = allocate(mib(2));
    ASSERT_TRUE(source_->scrub(buffer));
    const auto lent = source_->share(buffer);
    EXPECT_EQ(fake_.live(), before);
    EXPECT_EQ(fake_.current(), nullptr);
  }
  source_.reset();
  EXPECT_EQ(fake_.live(), 0);
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_F(CudaSource, LeavesNothingWhicheverCallFails) {
  Buffer buffer = allocate(mib(2));
  const Footprint before = footprint(fake_);
  const auto fails = [&](const char* entry, const auto& attempt) {
    fake_.fail(entry, 1, cuda::kInvalidValue);
    const auto error = attempt();
    ASSERT_TRUE(error) << entry;
    EXPECT_EQ(error->code, Code::kSystem);
    EXPECT_EQ(error->number, 0);
    EXPECT_THAT(error->describe(), HasSubstr(cat(entry, " failed: CUDA_ERROR_INVALID_VALUE")));
    EXPECT_EQ(footprint(fake_), before) << entry;
    EXPECT_EQ(fake_.current(), nullptr);
  };
  const auto error_of = [](auto result) {
    return result ? std::nullopt : std::optional<Error>(result.error());
  };
  for (const char* entry : {"cuCtxPushCurrent", "cuMemCreate", "cuMemExportToShareableHandle"}) {
    fails(entry, [&] { return error_of(source_->allocate(mib(2))); });
  }
  for (const char* entry :
       {"cuCtxPushCurrent", "cuMemGetAllocationGranularity", "cuMemAddressReserve",
        "cuMemImportFromShareableHandle", "cuMemMap", "cuMemSetAccess", "cuMemsetD8"}) {
    fails(entry, [&] { return error_of(source_->scrub(buffer)); });
  }
  EXPECT_EQ(fake_.broken_rules(), "");
  // What the device was told stays undone, which the fake takes for a broken rule.
  fails("cuCtxSynchronize", [&] { return error_of(source_->scrub(buffer)); });
}

TEST_F(CudaSource, RefusesToScrubWhatIsNoNvidiaFile) {
  Buffer strange{make_file(DescriptorKind::kMemfd, mib(2)), mib(2)};
  const View view(strange.descriptor.get(), mib(2));
  view[0] = 1;
  EXPECT_FALSE(source_->scrub(strange));
  EXPECT_EQ(view[0], 1);
}

TEST(CudaSourceStart, SaysWhatTheMachineLacks) {
  const auto refusal = [](FakeDriver& fake, int device) {
    const auto source = open_cuda_source({.device = device, .library = fake.library()});
    EXPECT_FALSE(source);
    EXPECT_EQ(fake.live(), 0);
    return source ? Error() : source.error();
  };
  {
    FakeDriver fake;
    const Error error = refusal(fake, 3);
    EXPECT_EQ(error.code, Code::kNotFound);
    EXPECT_THAT(error.describe(), HasSubstr("CUDA device 3"));
  }
  for (const auto& [knob, text] : {std::pair("vmm", "no virtual memory management"),
                                   std::pair("export", "cannot be exported")}) {
    FakeDriver fake;
    fake.set(knob, 0);
    const Error error = refusal(fake, 0);
    EXPECT_EQ(error.code, Code::kInvalid);
    EXPECT_THAT(error.describe(), HasSubstr(text));
  }
  {
    FakeDriver fake;
    fake.set("granularity", 4 << 20);
    const Error error = refusal(fake, 0);
    EXPECT_EQ(error.code, Code::kInvalid);
    EXPECT_THAT(error.describe(), HasSubstr("pages of 4 MiB"));
  }
  {
    FakeDriver fake("fake_cuda_old");
    const Error error = refusal(fake, 0);
    EXPECT_EQ(error.code, Code::kNotFound);
    EXPECT_THAT(error.describe(), HasSubstr("cuMemImportFromShareableHandle"));
  }
  const TemporaryDirectory nothing;
  const auto source = open_cuda_source({.library = nothing.path("libcuda.so.1")});
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace carveout::test
