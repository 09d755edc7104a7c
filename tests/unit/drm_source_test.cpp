// Lending dumb buffers: what is allocated, scrubbed and shared, and that nothing stays of it.

#include <drm.h>
#include <drm_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/dma-buf.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "source/drm.hpp"
#include "unit/drm_fake.hpp"
#include "unit/helpers.hpp"
#include "unit/refusal.hpp"

namespace carveout {
namespace {

using test::refusal;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// How many bytes of it are zero.
std::size_t zeros(const UniqueFd& memory, Bytes size) {
  void* at = ::mmap(nullptr, size.count(), PROT_READ, MAP_SHARED, memory.get(), 0);
  if (at == MAP_FAILED) throw std::runtime_error("mmap");
  const auto* bytes = static_cast<const unsigned char*>(at);
  const auto found = std::count(bytes, bytes + size.count(), 0);
  ::munmap(at, size.count());
  return static_cast<std::size_t>(found);
}

ino_t inode(const UniqueFd& file) {
  struct stat status {};
  (void)::fstat(file.get(), &status);
  return status.st_ino;
}

class DrmSourceTest : public testing::Test {
 protected:
  void TearDown() override {
    source_.reset();
    EXPECT_EQ(fake_.handles(), 0U);
    EXPECT_EQ(fake_.buffers(), 0U);
    EXPECT_THAT(fake_.complaints(), IsEmpty());
    EXPECT_EQ(test::open_descriptors(), descriptors_);
  }
  [[nodiscard]] DrmSettings settings(LendAs lend_as = LendAs::kDmaBuf) const {
    return {.card = fake_.path("card0"),
            .lend_as = lend_as,
            .calls = fake_.calls(),
            .meminfo = fake_.meminfo()};
  }
  void open(test::FakeCard is, LendAs lend_as = LendAs::kDmaBuf) {
    fake_.add("card0", std::move(is));
    source_ = test::required(open_drm_source(settings(lend_as)));
  }
  void open_nvidia() {
    open({.driver = "nvidia-drm", .capacity = mib(16), .nvkms = true}, LendAs::kNvidia);
  }
  Buffer allocate(Bytes size) { return test::required(source_->allocate(size)); }

  test::DrmFake fake_;
  std::size_t descriptors_ = test::open_descriptors();
  std::unique_ptr<Source> source_;
};

TEST_F(DrmSourceTest, SaysWhatItIs) {
  open({.driver = "nvidia-drm", .capacity = mib(16)});
  const Description is = source_->describe();
  EXPECT_EQ(is.name, "drm");
  EXPECT_EQ(is.kind, DescriptorKind::kDmaBuf);
  EXPECT_FALSE(is.kernel_zeroes);
  EXPECT_EQ(is.limit, std::nullopt);
  EXPECT_FALSE(is.ordinary_memory);
  EXPECT_EQ(is.detail, "dumb buffers of " + fake_.path("card0") + " (nvidia-drm)");
  EXPECT_EQ(source_->take_warning(), std::nullopt);
}

TEST_F(DrmSourceTest, ThatShowsAPictureIsRefused) {
  fake_.add("card0", {.driver = "nvidia-drm", .picture = 1});
  const auto lit = open_drm_source(settings());
  ASSERT_FALSE(lit);
  EXPECT_EQ(lit.error().code, Code::kInvalid);
  EXPECT_THAT(refusal(lit), AllOf(HasSubstr("card " + fake_.path("card0") + " (nvidia-drm)"),
                                  HasSubstr("shows a picture"), HasSubstr("desktop session"),
                                  HasSubstr("fbdev=0"), HasSubstr("--allow-display")));
  EXPECT_EQ(fake_.asked(DRM_IOCTL_MODE_CREATE_DUMB), 0U);
}

TEST_F(DrmSourceTest, ThatShowsAPictureLendsWhenToldTo) {
  fake_.add("card0", {.picture = 1, .capacity = mib(16)});
  DrmSettings allowed = settings();
  allowed.allow_display = true;
  EXPECT_TRUE(open_drm_source(allowed));
}

TEST_F(DrmSourceTest, WhoseOutputsAreUnknownIsRefused) {
  fake_.add("card0", {.picture = -1, .picture_errno = EIO});
  const auto unknown = open_drm_source(settings());
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().number, EIO);
  EXPECT_THAT(refusal(unknown), HasSubstr("its outputs cannot be examined"));
}

TEST_F(DrmSourceTest, WithoutOutputsShowsNothing) {
  fake_.add("card0", {.picture = -1, .picture_errno = EOPNOTSUPP, .capacity = mib(16)});
  EXPECT_TRUE(open_drm_source(settings()));
}

TEST_F(DrmSourceTest, AllocatesExactlyWhatIsAskedAndKeepsNoHandle) {
  open({.capacity = mib(64)});
  for (const Bytes size : {mib(2), mib(6), mib(62)}) {
    const Buffer buffer = allocate(size);
    EXPECT_EQ(buffer.size, size);
    EXPECT_TRUE(test::is_close_on_exec(buffer.descriptor.get()));
    EXPECT_EQ(fake_.handles(), 0U);
    EXPECT_EQ(fake_.buffers(), 1U);
  }
  EXPECT_EQ(fake_.buffers(), 0U);
}

TEST_F(DrmSourceTest, AllocatesWholeSlicesOnly) {
  open({.capacity = mib(16)});
  const std::size_t before = fake_.tried().size();
  for (const Bytes size : {Bytes(0), Bytes(1), mib(1), kSliceBytes + Bytes(1), Bytes(~0ULL)}) {
    const auto refused = source_->allocate(size);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalid);
    EXPECT_THAT(refusal(refused), HasSubstr("a slice is 2 MiB"));
  }
  EXPECT_EQ(fake_.tried().size(), before);
}

TEST_F(DrmSourceTest, IsExhaustedWhenItIs) {
  open({.capacity = mib(16)});
  const Buffer most = allocate(mib(14));
  const auto more = source_->allocate(mib(4));
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kExhausted);
  EXPECT_THAT(refusal(more),
              HasSubstr("gives no dumb buffer of 4 MiB: it has no such memory left"));
  const auto beyond = source_->allocate(gib(4));
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, Code::kExhausted);
  EXPECT_EQ(allocate(mib(2)).size, mib(2));
}

TEST_F(DrmSourceTest, ScrubsWhatTheLastBorrowerLeft) {
  open({.capacity = mib(16)});
  Buffer buffer = allocate(mib(4));
  EXPECT_EQ(zeros(buffer.descriptor, mib(4)), 0U);
  const std::size_t before = fake_.asked(DMA_BUF_IOCTL_SYNC);
  const auto scrubbed = source_->scrub(buffer);
  ASSERT_TRUE(scrubbed) << refusal(scrubbed);
  EXPECT_EQ(zeros(buffer.descriptor, mib(4)), mib(4).count());
  EXPECT_EQ(fake_.asked(DMA_BUF_IOCTL_SYNC), before + 2);
}

TEST_F(DrmSourceTest, SaysThatItCannotScrub) {
  open({.capacity = mib(16)});
  Buffer buffer = allocate(mib(2));
  for (const unsigned nth : {1U, 2U}) {
    fake_.refuse(DMA_BUF_IOCTL_SYNC, EIO, nth);
    const auto refused = source_->scrub(buffer);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().number, EIO);
    EXPECT_THAT(refusal(refused), HasSubstr("DMA_BUF_IOCTL_SYNC"));
    // What was begun and could not be ended is ended here.
    if (nth == 1) continue;
    dma_buf_sync end{DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE};
    EXPECT_EQ(fake_.calls().ioctl(buffer.descriptor.get(), DMA_BUF_IOCTL_SYNC, &end), 0);
  }
  Buffer none;
  none.size = kSliceBytes;
  EXPECT_THAT(refusal(source_->scrub(none)), HasSubstr("the dma-buf cannot be mapped"));
}

TEST_F(DrmSourceTest, SharesTheDmaBuf) {
  open({.capacity = mib(16)});
  std::optional<UniqueFd> lent;
  {
    const Buffer buffer = allocate(mib(2));
    auto shared = source_->share(buffer);
    ASSERT_TRUE(shared) << refusal(shared);
    EXPECT_EQ(inode(*shared), inode(buffer.descriptor));
    EXPECT_NE(shared->get(), buffer.descriptor.get());
    EXPECT_TRUE(test::is_close_on_exec(shared->get()));
    lent = *std::move(shared);
  }
  EXPECT_EQ(fake_.buffers(), 1U);
  lent.reset();
  EXPECT_EQ(fake_.buffers(), 0U);
  EXPECT_EQ(fake_.asked(DRM_IOCTL_PRIME_FD_TO_HANDLE), 0U);
}

TEST_F(DrmSourceTest, SharesAnNvidiaFileAfreshEachTime) {
  open_nvidia();
  EXPECT_EQ(source_->describe().kind, DescriptorKind::kNvidiaFile);
  const std::size_t tried = fake_.attached();
  const Buffer buffer = allocate(mib(2));
  const auto one = source_->share(buffer);
  ASSERT_TRUE(one) << refusal(one);
  const auto two = source_->share(buffer);
  ASSERT_TRUE(two) << refusal(two);
  EXPECT_EQ(fake_.attached(), tried + 2);
  EXPECT_EQ(fake_.handles(), 0U);
  for (const UniqueFd* file : {&*one, &*two}) {
    EXPECT_TRUE(test::is_close_on_exec(file->get()));
    struct stat status {};
    ASSERT_EQ(::fstat(file->get(), &status), 0);
    EXPECT_TRUE(S_ISCHR(status.st_mode));
  }
}

TEST_F(DrmSourceTest, ScrubsWhatItLendsAsNvidiaFile) {
  open_nvidia();
  Buffer buffer = allocate(mib(2));
  ASSERT_TRUE(source_->scrub(buffer));
  EXPECT_EQ(zeros(buffer.descriptor, mib(2)), mib(2).count());
}

TEST_F(DrmSourceTest, SaysThatItCannotShareWhatIsNotThere) {
  open_nvidia();
  Buffer none;
  none.size = kSliceBytes;
  EXPECT_THAT(refusal(source_->share(none)), HasSubstr("does not take its own dma-buf back"));
  fake_.add("card1", {.capacity = mib(16)});
  DrmSettings other = settings();
  other.card = fake_.path("card1");
  const auto dma_bufs = open_drm_source(other);
  ASSERT_TRUE(dma_bufs) << refusal(dma_bufs);
  EXPECT_THAT(refusal((*dma_bufs)->share(none)), HasSubstr("its descriptor cannot be duplicated"));
}

// Opens, allocates, scrubs and shares, and drops it all. The first refusal, if there was one.
template <typename Settings>
std::optional<Error> lend_once(const Settings& settings) {
  auto source = open_drm_source(settings);
  if (!source) return source.error();
  auto buffer = (*source)->allocate(mib(4));
  if (!buffer) return buffer.error();
  if (auto scrubbed = (*source)->scrub(*buffer); !scrubbed) return scrubbed.error();
  for (int i = 0; i < 2; ++i) {
    if (auto shared = (*source)->share(*buffer); !shared) return shared.error();
  }
  return std::nullopt;
}

class DrmFailureTest : public testing::TestWithParam<LendAs> {
 protected:
  // Each of the calls that lending makes fails once with `number`; `check` sees what came of it.
  template <typename Check>
  void fail_each(int number, const Check& check) {
    for (std::size_t earlier = 0;; ++earlier) {
      test::DrmFake fake;
      fake.add("card0", {.driver = "nvidia-drm", .capacity = mib(6), .nvkms = true});
      const DrmSettings settings{.card = fake.path("card0"),
                                 .lend_as = GetParam(),
                                 .calls = fake.calls(),
                                 .meminfo = fake.meminfo()};
      const std::size_t descriptors = test::open_descriptors();
      fake.refuse_after(earlier, number);
      const auto problem = lend_once(settings);
      if (fake.asked().size() <= earlier) break;
      const unsigned long request = fake.asked()[earlier];
      SCOPED_TRACE(testing::Message() << "call " << earlier << " is " << std::hex << request);
      check(request, problem);
      // A handle that the kernel does not close is beyond us, until the card itself is closed.
      const bool keeps = request == DRM_IOCTL_MODE_DESTROY_DUMB || request == DRM_IOCTL_GEM_CLOSE;
      EXPECT_LE(fake.handles(), keeps ? 1U : 0U);
      if (fake.handles() == 0) {
        EXPECT_EQ(fake.buffers(), 0U);
        EXPECT_EQ(test::open_descriptors(), descriptors);
      }
      EXPECT_THAT(fake.complaints(), Not(Contains(HasSubstr("closed"))));
      // It goes on as if nothing had been.
      if (!keeps) {
        const auto again = lend_once(settings);
        EXPECT_FALSE(again) << again->describe();
      }
    }
  }
};

TEST_P(DrmFailureTest, OfAnyCallLeavesNothing) {
  fail_each(EIO, [](unsigned long request, const std::optional<Error>& problem) {
    const bool harmless = request == DRM_IOCTL_DROP_MASTER || request == DRM_IOCTL_GEM_CLOSE ||
                          request == DRM_IOCTL_MODE_DESTROY_DUMB;
    EXPECT_EQ(problem.has_value(), !harmless);
    if (!problem || request == DRM_IOCTL_VERSION) return;
    EXPECT_EQ(problem->code, Code::kSystem);
    EXPECT_EQ(problem->number, EIO) << problem->describe();
  });
}

TEST_P(DrmFailureTest, ForWantOfMemoryLeavesNothing) {
  std::size_t exhausted = 0;
  fail_each(ENOMEM, [&](unsigned long request, const std::optional<Error>& problem) {
    if (request == DRM_IOCTL_MODE_CREATE_DUMB && problem) {
      EXPECT_EQ(problem->code, Code::kExhausted);
      ++exhausted;
    }
  });
  // That of the trial at the start is none.
  EXPECT_EQ(exhausted, 1U);
}

INSTANTIATE_TEST_SUITE_P(As, DrmFailureTest, testing::Values(LendAs::kDmaBuf, LendAs::kNvidia),
                         [](const auto& one) {
                           return one.param == LendAs::kDmaBuf ? "DmaBuf" : "NvidiaFile";
                         });

}  // namespace
}  // namespace carveout
