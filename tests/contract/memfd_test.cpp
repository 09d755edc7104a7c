// The memfd source in the contract suite, and what is true of it alone.

#include "source/memfd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/text.hpp"
#include "contract/source_contract.hpp"
#include "source/available_memory.hpp"
#include "unit/helpers.hpp"

namespace carveout::test {
namespace {

// The host's 2 MiB pages: "free_hugepages", or "nr_hugepages" for all of them.
std::uint64_t huge_pages(const std::string& which) {
  const auto text = read_text("/sys/kernel/mm/hugepages/hugepages-2048kB/" + which, 32);
  return text ? std::strtoull(text->c_str(), nullptr, 10) : 0;
}

// A host made of files.
class Host {
 public:
  Host& huge_pages(std::uint64_t count) {
    settings_.huge_pages = directory_.file("nr_hugepages", cat(count, "\n"));
    return *this;
  }
  Host& spare(Bytes size) {
    const Bytes available = AvailableMemory::kMargin + size;
    settings_.meminfo =
        directory_.file("meminfo", cat("MemAvailable: ", available.count() / 1024, " kB\n"));
    return *this;
  }
  [[nodiscard]] const MemfdSettings& settings() const { return settings_; }
  [[nodiscard]] std::unique_ptr<Source> source() const { return make_memfd_source(settings_); }

 private:
  TemporaryDirectory directory_;
  MemfdSettings settings_;
};

// A source on a host whose files must live as long as it does.
class HostedSource final : public Source {
 public:
  explicit HostedSource(std::unique_ptr<Host> host) : host_(std::move(host)) {}
  [[nodiscard]] Description describe() const override { return source_->describe(); }
  Result<Buffer> allocate(Bytes size) override { return source_->allocate(size); }
  Result<UniqueFd> share(const Buffer& buffer) override { return source_->share(buffer); }
  Result<void> scrub(Buffer& buffer) override { return source_->scrub(buffer); }
  std::optional<std::string> take_warning() override { return source_->take_warning(); }

 private:
  std::unique_ptr<Host> host_;
  std::unique_ptr<Source> source_ = host_->source();
};

SourceOrWaived make_poor_memfd() {
  auto host = std::make_unique<Host>();
  host->huge_pages(0).spare(kPoorSize + mib(2));
  return std::make_unique<HostedSource>(std::move(host));
}

SourceOrWaived make_ordinary_memfd() {
  auto host = std::make_unique<Host>();
  host->huge_pages(0);
  return std::make_unique<HostedSource>(std::move(host));
}

SourceOrWaived make_huge_memfd() {
  constexpr std::uint64_t kNeeded = 40;  // the contract has up to 64 MiB out at once
  if (huge_pages("free_hugepages") >= kNeeded) return make_memfd_source();
  return Waived{cat("fewer than ", kNeeded, " free 2 MiB huge pages (sysctl vm.nr_hugepages)")};
}

SourceOrWaived no_poor_huge_memfd() {
  return Waived{"what lacks huge pages falls back to ordinary ones"};
}

std::optional<Bytes> committed_memfd(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return std::nullopt;
  return Bytes(static_cast<std::uint64_t>(status.st_blocks) * 512);
}

INSTANTIATE_TEST_SUITE_P(Memfd, SourceContract,
                         testing::Values(SourceCase{.name = "OrdinaryPages",
                                                    .make = make_ordinary_memfd,
                                                    .make_poor = make_poor_memfd,
                                                    .committed = committed_memfd},
                                         SourceCase{.name = "HugePages",
                                                    .make = make_huge_memfd,
                                                    .make_poor = no_poor_huge_memfd,
                                                    .committed = committed_memfd}),
                         source_case_name);

std::int64_t page_size_of(int descriptor) {
  struct stat status {};
  EXPECT_EQ(::fstat(descriptor, &status), 0);
  return status.st_blksize;
}

TEST(Memfd, NeedsNothingButItsDefaults) {
  const auto source = make_memfd_source();
  const Description description = source->describe();
  EXPECT_EQ(description.name, "memfd");
  EXPECT_EQ(description.kind, DescriptorKind::kMemfd);
  EXPECT_TRUE(description.kernel_zeroes);
  EXPECT_EQ(description.limit, std::nullopt);
  EXPECT_TRUE(source->allocate(kSliceBytes));
}

TEST(Memfd, IsSealedAgainstResizingAndAgainstOtherSeals) {
  const auto source = Host().huge_pages(0).source();
  const auto buffer = source->allocate(mib(4));
  ASSERT_TRUE(buffer);
  const auto lent = source->share(*buffer);
  ASSERT_TRUE(lent);
  const int seals = ::fcntl(lent->get(), F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_EQ(seals & F_SEAL_WRITE, 0);
  for (const off_t size : {off_t{0}, off_t{2097152}, off_t{8388608}}) {
    EXPECT_EQ(::ftruncate(lent->get(), size), -1);
    EXPECT_EQ(errno, EPERM) << size;
  }
  EXPECT_EQ(::fallocate(lent->get(), 0, 0, 8388608), -1);
  EXPECT_EQ(errno, EPERM);
  // Another holder's mapping would be cut off.
  EXPECT_EQ(::fcntl(lent->get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(Memfd, CannotBeExecutedWhereTheKernelHasThat) {
  const auto source = Host().huge_pages(0).source();
  const auto buffer = source->allocate(kSliceBytes);
  ASSERT_TRUE(buffer);
  const UniqueFd probe(::memfd_create("probe", MFD_CLOEXEC | 0x0008U /* MFD_NOEXEC_SEAL */));
  if (!probe) GTEST_SKIP() << "MFD_NOEXEC_SEAL needs Linux 6.3";
  struct stat status {};
  ASSERT_EQ(::fstat(buffer->descriptor.get(), &status), 0);
  EXPECT_EQ(status.st_mode & 0111U, 0U);
  EXPECT_NE(::fchmod(buffer->descriptor.get(), 0777), 0);
}

TEST(Memfd, WithoutHugePagesSaysSoOnceAndUsesOrdinaryOnes) {
  const auto source = Host().huge_pages(0).source();
  const auto warning = source->take_warning();
  ASSERT_TRUE(warning);
  EXPECT_NE(warning->find("ordinary pages"), std::string::npos);
  EXPECT_EQ(source->take_warning(), std::nullopt);
  const auto buffer = source->allocate(kSliceBytes);
  ASSERT_TRUE(buffer);
  EXPECT_LT(page_size_of(buffer->descriptor.get()), 2097152);
  EXPECT_EQ(source->take_warning(), std::nullopt);
}

TEST(Memfd, TakesAHostThatSaysNothingForOneWithoutHugePages) {
  const TemporaryDirectory directory;
  for (const std::string& text : {std::string(), std::string("\n"), std::string("none\n"),
                                  std::string("0\n"), std::string("-1\n")}) {
    const auto source = make_memfd_source({.huge_pages = directory.file("nr_hugepages", text)});
    EXPECT_TRUE(source->take_warning()) << text;
    EXPECT_TRUE(source->allocate(kSliceBytes));
  }
  const auto source = make_memfd_source({.huge_pages = directory.path("missing")});
  EXPECT_TRUE(source->take_warning());
  EXPECT_TRUE(source->allocate(kSliceBytes));
}

TEST(Memfd, FallsBackWithOneWarningWhenHugePagesRunOut) {
  const std::uint64_t all = huge_pages("nr_hugepages");
  if (all > 100) GTEST_SKIP() << "waived: this host has more than 200 MiB of huge pages";
  const auto source = Host().huge_pages(1000).source();
  EXPECT_EQ(source->take_warning(), std::nullopt);
  const Bytes more = Slices(all + 1).bytes();
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 3; ++i) {
    const auto buffer = source->allocate(more);
    ASSERT_TRUE(buffer) << buffer.error().describe();
    EXPECT_EQ(committed_memfd(buffer->descriptor.get()), more);
    EXPECT_LT(page_size_of(buffer->descriptor.get()), 2097152);
    EXPECT_EQ(open_descriptors(), before + 1);
    const auto warning = source->take_warning();
    EXPECT_EQ(warning.has_value(), i == 0);
    EXPECT_NE(warning.value_or(format_bytes(more)).find(format_bytes(more)), std::string::npos);
  }
}

TEST(Memfd, FallsBackOnlyAsFarAsTheHostCanSpare) {
  if (huge_pages("nr_hugepages") > 0) GTEST_SKIP() << "waived: this host has huge pages";
  Host host;
  const auto source = host.huge_pages(1000).spare(mib(4)).source();
  const auto refused = source->allocate(mib(64));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_TRUE(source->allocate(mib(4)));
}

TEST(Memfd, UsesHugePagesWhileThereAreSome) {
  if (huge_pages("free_hugepages") < 8)
    GTEST_SKIP() << "waived: fewer than 8 free 2 MiB huge pages here";
  // Such pages were set aside beforehand: what else the host can spare does not matter.
  const auto source = make_memfd_source({.meminfo = "/dev/null"});
  EXPECT_EQ(source->take_warning(), std::nullopt);
  const auto buffer = source->allocate(mib(8));
  ASSERT_TRUE(buffer) << buffer.error().describe();
  EXPECT_EQ(page_size_of(buffer->descriptor.get()), 2097152);
  const auto lent = source->share(*buffer);
  ASSERT_TRUE(lent);
  const Mapping memory(lent->get(), mib(8));
  ASSERT_TRUE(memory.good());
  EXPECT_TRUE(memory.all(0));
}

TEST(Memfd, AsksTheHostBeforeItTakesMemory) {
  Host host;
  host.huge_pages(0).spare(mib(8));
  const auto source = host.source();
  EXPECT_TRUE(source->allocate(mib(8)));
  const auto refused = source->allocate(mib(10));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  const auto blind = make_memfd_source(
      {.huge_pages = host.settings().huge_pages, .meminfo = "/nonexistent/meminfo"});
  const auto unknown = blind->allocate(kSliceBytes);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Code::kSystem);
}

// With the signal's default action, which would be the process's end.
TEST(Memfd, SaysThatItIsLargerThanFilesMayBe) {
  EXPECT_EQ(run_in_child([] {
              ::signal(SIGXFSZ, SIG_DFL);
              const rlimit limit{1 << 20, RLIM_INFINITY};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              const auto buffer = make_memfd_source({})->allocate(kSliceBytes);
              return !buffer && buffer.error().number == EFBIG ? 0 : 2;
            }),
            0);
}

}  // namespace
}  // namespace carveout::test
