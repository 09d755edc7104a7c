// When the source says no: nothing stays, and it goes on.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "contract/source_contract.hpp"
#include "unit/helpers.hpp"

namespace carveout::test {
namespace {

TEST_P(SourceContract, SaysThatThereIsNotEnough) {
  ASSERT_NO_FATAL_FAILURE(become_poor());
  if (IsSkipped()) return;
  const auto refused = source_->allocate(kBeyondPoor);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted) << refused.error().describe();
  EXPECT_NE(refused.error().describe().find("128 MiB"), std::string::npos)
      << refused.error().describe();
}

TEST_P(SourceContract, StillGivesWhatThereIsAfterARefusal) {
  ASSERT_NO_FATAL_FAILURE(become_poor());
  if (IsSkipped()) return;
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(source_->allocate(kBeyondPoor));
    const Buffer buffer = allocate(kPoorSize);
    EXPECT_EQ(buffer.size, kPoorSize);
  }
}

TEST_P(SourceContract, LeavesNothingOfARefusalBehind) {
  ASSERT_NO_FATAL_FAILURE(become_poor());
  if (IsSkipped()) return;
  (void)source_->allocate(kBeyondPoor);
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 200; ++i) {
    EXPECT_FALSE(source_->allocate(kBeyondPoor));
    EXPECT_FALSE(source_->allocate(Bytes(1)));
    EXPECT_FALSE(source_->allocate(Bytes(0)));
  }
  EXPECT_EQ(open_descriptors(), before);
}

// Lets the process open no descriptor more, as long as this lives.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit low = before_;
    low.rlim_cur = static_cast<rlim_t>(UniqueFd(::dup(STDIN_FILENO)).get());
    ::setrlimit(RLIMIT_NOFILE, &low);
  }
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors(NoMoreDescriptors&&) = delete;
  NoMoreDescriptors& operator=(NoMoreDescriptors&&) = delete;
  ~NoMoreDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_P(SourceContract, NamesTheErrnoWhenThereAreNoDescriptorsLeft) {
  const Buffer buffer = allocate(kSliceBytes);
  const std::size_t before = open_descriptors();
  {
    const NoMoreDescriptors none;
    const auto refused = source_->allocate(kSliceBytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kSystem) << refused.error().describe();
    EXPECT_EQ(refused.error().number, EMFILE);
    const auto lent = source_->share(buffer);
    ASSERT_FALSE(lent);
    EXPECT_EQ(lent.error().code, Code::kSystem);
    EXPECT_EQ(lent.error().number, EMFILE);
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_TRUE(share(buffer));
}

TEST_P(SourceContract, SaysThatItCannotShareOrScrubWhatIsNotThere) {
  Buffer none;
  none.size = kSliceBytes;
  EXPECT_FALSE(source_->share(none));
  EXPECT_FALSE(source_->scrub(none));
}

}  // namespace
}  // namespace carveout::test
