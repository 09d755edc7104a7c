// The processor's addresses, as `host` and `register` use them: what the kernel refuses, pages that
// cannot be had, and the neighbours.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "cuda/mapping.hpp"
#include "fake_cuda/fake_driver.hpp"

namespace {
// What the next calls of madvise() fail with, the last first; the kernel answers the rest.
std::vector<int> madvise_failures;
std::atomic<int> madvise_calls = 0;
}  // namespace

// The linker has all calls of this program come here (--wrap).
extern "C" {
int __real_madvise(void* start, std::size_t size, int advice);
int __wrap_madvise(void* start, std::size_t size, int advice) {
  if (advice != MADV_POPULATE_READ) return __real_madvise(start, size, advice);
  ++madvise_calls;
  if (madvise_failures.empty()) return __real_madvise(start, size, advice);
  errno = madvise_failures.back();
  madvise_failures.pop_back();
  return -1;
}
}

namespace carveout::test {
namespace {

using cuda::File;
using cuda::Mapping;
using testing::HasSubstr;

constexpr Bytes kSize = mib(4);

class CudaHost : public testing::TestWithParam<MapStrategy> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(cuda::Driver::load(fake_.library()));
    madvise_failures.clear();
    madvise_calls = 0;
    // What takes memory only once has taken it.
    const UniqueFd file = make_file(DescriptorKind::kMemfd, kSize);
    ASSERT_TRUE(map_it(file.get()));
    (void)changes(footprint(fake_), footprint(fake_));
  }
  Result<Mapping> map_it(int descriptor, Bytes size = kSize,
                         DescriptorKind kind = DescriptorKind::kMemfd) {
    return map({kind, descriptor, size}, fake_.settings(GetParam()));
  }
  // It fails so, and leaves nothing.
  void expect_refused(int descriptor, Bytes size, DescriptorKind kind, Code code, int number,
                      const std::string& words) {
    const Footprint before = footprint(fake_);
    const auto refused = map_it(descriptor, size, kind);
    ASSERT_FALSE(refused) << words;
    EXPECT_EQ(refused.error().code, code) << refused.error().describe();
    EXPECT_EQ(refused.error().number, number) << refused.error().describe();
    EXPECT_THAT(refused.error().describe(), HasSubstr(words));
    EXPECT_EQ(footprint(fake_), before) << words;
    EXPECT_EQ(fake_.broken_rules(), "");
  }

  FakeDriver fake_;
};

UniqueFd reopened(const UniqueFd& file, int flags) {
  return UniqueFd(::open(cat("/proc/self/fd/", file.get()).c_str(), flags | O_CLOEXEC));
}

TEST_P(CudaHost, IsRefusedWhatCannotBeMapped) {
  const UniqueFd file = make_file(DescriptorKind::kMemfd, kSize);
  const UniqueFd readable = reopened(file, O_RDONLY);
  const UniqueFd named = reopened(file, O_PATH);
  const UniqueFd sealed(::memfd_create("carveout", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(sealed.get(), static_cast<off_t>(kSize.count())), 0);
  ASSERT_EQ(::fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  // More than a process has addresses.
  constexpr Bytes kHuge(1ULL << 50U);
  const UniqueFd huge = make_file(DescriptorKind::kMemfd, kHuge);
  const int closed = UniqueFd(::dup(file.get())).get();
  for (const DescriptorKind kind : {DescriptorKind::kMemfd, DescriptorKind::kDmaBuf}) {
    const bool memfd = kind == DescriptorKind::kMemfd;
    const char* const bad = memfd ? "cannot be asked for its length" : "mmap failed";
    expect_refused(readable.get(), kSize, kind, Code::kSystem, EACCES, "mmap failed");
    expect_refused(named.get(), kSize, kind, Code::kSystem, EBADF, "mmap failed");
    expect_refused(sealed.get(), kSize, kind, Code::kSystem, EPERM, "mmap failed");
    expect_refused(huge.get(), kHuge, kind, Code::kSystem, ENOMEM, "mmap failed");
    expect_refused(closed, kSize, kind, Code::kSystem, EBADF, bad);
    expect_refused(-1, kSize, kind, Code::kSystem, EBADF, bad);
  }
  expect_refused(file.get(), kSize + Bytes(1), DescriptorKind::kMemfd, Code::kInvalid, 0,
                 "the file has only 4194304 bytes");
}

// The pages of addresses beside it are as they were.
class Neighbours {
 public:
  // One beside the other, with gaps of just the size that is mapped next, and of so much that huge
  // pages fit in.
  Neighbours() {
    for (std::size_t i = 0; i < 64; ++i)
      add(i % 8 == 3 ? kSize.count() : i % 8 == 7 ? kSize.count() + 2097152 : (i % 3 + 1) * 4096);
    for (std::size_t i = 3; i < pages_.size(); i += 4)
      remove(i);
  }
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;
  Neighbours(Neighbours&&) = delete;
  Neighbours& operator=(Neighbours&&) = delete;
  ~Neighbours() {
    for (std::size_t i = 0; i < pages_.size(); ++i)
      remove(i);
  }

  void add(std::size_t size) {
    void* const start =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(start, MAP_FAILED);
    auto* const bytes = static_cast<volatile unsigned char*>(start);
    bytes[0] = static_cast<unsigned char>(pages_.size() % 255 + 1);
    bytes[size - 1] = bytes[0];
    pages_.push_back({bytes, size});
  }
  // By the bytes of their first and last pages: a missing one is a SIGSEGV.
  void expect_whole() const {
    for (std::size_t i = 0; i < pages_.size(); ++i) {
      const auto& [bytes, size] = pages_[i];
      if (bytes == nullptr) continue;
      EXPECT_EQ(bytes[0], i % 255 + 1);
      EXPECT_EQ(bytes[size - 1], i % 255 + 1);
    }
  }

 private:
  struct Page {
    volatile unsigned char* bytes;
    std::size_t size;
  };
  void remove(std::size_t i) {
    if (pages_[i].bytes == nullptr) return;
    ::munmap(const_cast<unsigned char*>(std::exchange(pages_[i].bytes, nullptr)), pages_[i].size);
  }
  std::vector<Page> pages_;
};

void expect_neighbours_whole(FakeDriver& fake, const UniqueFd& file, MapStrategy strategy) {
  Neighbours neighbours;
  for (int round = 0; round < 4; ++round) {
    const Footprint before = footprint(fake);
    auto mapping = map({DescriptorKind::kMemfd, file.get(), kSize}, fake.settings(strategy));
    ASSERT_TRUE(mapping) << mapping.error().describe();
    auto* const bytes = static_cast<volatile unsigned char*>(mapping->host_pointer());
    bytes[0] = 1;
    bytes[kSize.count() - 1] = 1;
    neighbours.expect_whole();
    EXPECT_TRUE(mapping->unmap());
    EXPECT_EQ(footprint(fake), before);
    neighbours.expect_whole();
    neighbours.add(4096U << static_cast<unsigned>(round));
  }
}

TEST_P(CudaHost, LeavesItsNeighboursAlone) {
  const UniqueFd file = make_file(DescriptorKind::kMemfd, kSize);
  expect_neighbours_whole(fake_, file, GetParam());
}

// 4 MiB of huge pages of 2 MiB, or none.
UniqueFd make_huge_file() {
  constexpr unsigned kOf2MiB = 21U << 26U;  // MFD_HUGE_2MB
  UniqueFd file(::memfd_create("carveout", MFD_CLOEXEC | MFD_HUGETLB | kOf2MiB));
  if (!file || ::fallocate(file.get(), 0, 0, static_cast<off_t>(kSize.count())) != 0) return {};
  return file;
}
constexpr const char* kNoHugePages = "waived: no huge pages have been set aside";

TEST_P(CudaHost, HugePagesAreMappedAndLeaveTheirNeighboursAlone) {
  const UniqueFd file = make_huge_file();
  if (!file) GTEST_SKIP() << kNoHugePages;
  expect_neighbours_whole(fake_, file, GetParam());
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_P(CudaHost, HugePagesAreRefusedInParts) {
  const UniqueFd file = make_huge_file();
  if (!file) GTEST_SKIP() << kNoHugePages;
  const Neighbours neighbours;
  for (const Bytes size : {mib(1), mib(3), mib(2) + Bytes(4096), mib(4) - Bytes(1)}) {
    expect_refused(file.get(), size, DescriptorKind::kMemfd, Code::kInvalid, 0,
                   "its pages are of 2 MiB, which that is no multiple of");
  }
  neighbours.expect_whole();
  auto half = map_it(file.get(), mib(2));
  ASSERT_TRUE(half) << half.error().describe();
}

INSTANTIATE_TEST_SUITE_P(All, CudaHost, testing::Values(MapStrategy::kHost, MapStrategy::kRegister),
                         [](const auto& strategy) -> std::string {
                           return strategy.param == MapStrategy::kHost ? "Host" : "Register";
                         });

// --- pages that are touched before they are registered ---

using CudaPopulate = CudaHost;
INSTANTIATE_TEST_SUITE_P(Register, CudaPopulate, testing::Values(MapStrategy::kRegister));

TEST_P(CudaPopulate, GoesOnAfterASignal) {
  const UniqueFd file = make_file(DescriptorKind::kMemfd, kSize);
  madvise_calls = 0;
  madvise_failures = {EINTR, EINTR};
  const auto mapping = map_it(file.get());
  ASSERT_TRUE(mapping) << mapping.error().describe();
  EXPECT_EQ(madvise_calls, 3);
}

// Linux before 5.14, and memory that has no pages of its own. The fake registers nothing that was
// not touched.
TEST_P(CudaPopulate, TouchesEveryPageWhereTheKernelDoesNot) {
  for (const DescriptorKind kind : {DescriptorKind::kMemfd, DescriptorKind::kDmaBuf}) {
    const UniqueFd file = make_file(kind, kSize);
    {
      const View view(file.get(), kSize);
      view[0] = 9;
      view[kSize.count() - 1] = 9;
    }
    madvise_failures = {EINVAL};
    const Footprint before = footprint(fake_);
    auto mapping = map_it(file.get(), kSize, kind);
    ASSERT_TRUE(mapping) << mapping.error().describe();
    EXPECT_TRUE(madvise_failures.empty());
    auto* const bytes = static_cast<volatile unsigned char*>(mapping->host_pointer());
    EXPECT_EQ(bytes[0], 9);
    EXPECT_EQ(bytes[4096], 0);
    EXPECT_EQ(bytes[kSize.count() - 1], 9);
    EXPECT_TRUE(mapping->unmap());
    EXPECT_EQ(footprint(fake_), before);
  }
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_P(CudaPopulate, SaysWhatTheKernelSays) {
  const UniqueFd file = make_file(DescriptorKind::kMemfd, kSize);
  for (const int number : {ENOMEM, EFAULT, EHWPOISON}) {
    madvise_failures = {number};
    expect_refused(file.get(), kSize, DescriptorKind::kMemfd, Code::kSystem, number,
                   "a page cannot be had");
  }
  EXPECT_EQ(fake_.calls("cuMemHostRegister"), 1) << "but for the first, which worked";
}

// A file of more than its file system has room for: to touch it would be a SIGBUS.
TEST(CudaPopulateSparse, IsAnErrorAndNoSignal) {
  constexpr int kNoPrivilege = 77;
  const TemporaryDirectory directory;
  const int code = run_in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", directory.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
      return kNoPrivilege;
    }
    FakeDriver fake;
    if (!cuda::Driver::load(fake.library())) return 2;
    const UniqueFd file(
        ::open(directory.path("sparse").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (::ftruncate(file.get(), static_cast<off_t>(kSize.count())) != 0) return 3;
    const File lent{DescriptorKind::kMemfd, file.get(), kSize};
    if (!map(lent, fake.settings(MapStrategy::kHost))) return 4;
    const Footprint before = footprint(fake);
    const auto refused = map(lent, fake.settings(MapStrategy::kRegister));
    if (refused || refused.error().code != Code::kSystem || refused.error().number == 0) return 5;
    if (!changes(before, footprint(fake)).empty()) return 6;
    return fake.live() == 0 && fake.calls("cuMemHostRegister") == 0 ? 0 : 7;
  });
  if (code == kNoPrivilege) GTEST_SKIP() << "waived: nothing can be mounted here";
  EXPECT_EQ(code, 0);
}

// --- a descriptor for CUDA ---

TEST(CudaExternalDescriptor, IsAnErrorWhereThereIsNone) {
  FakeDriver fake;
  fake.set("dma-buf", 1);
  for (const DescriptorKind kind : {DescriptorKind::kNvidiaFile, DescriptorKind::kDmaBuf}) {
    const UniqueFd file = make_file(kind, kSize);
    const File lent{kind, file.get(), kSize};
    ASSERT_TRUE(map(lent, fake.settings(MapStrategy::kExternal)));
    const Footprint before = footprint(fake);
    const int imports = fake.calls("cuImportExternalMemory");
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    rlimit low = limit;
    low.rlim_cur = static_cast<rlim_t>(UniqueFd(::dup(file.get())).get());
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
    const auto refused = map(lent, fake.settings(MapStrategy::kExternal));
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kSystem);
    EXPECT_EQ(refused.error().number, EMFILE);
    EXPECT_THAT(refused.error().describe(), HasSubstr("its descriptor cannot be duplicated"));
    EXPECT_EQ(footprint(fake), before);
    EXPECT_EQ(fake.calls("cuImportExternalMemory"), imports);
    EXPECT_EQ(fake.current(), nullptr);
  }
  EXPECT_EQ(fake.broken_rules(), "");
}

}  // namespace
}  // namespace carveout::test
