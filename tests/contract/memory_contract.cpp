// The memory: its size, its content, when it is there and when it is gone.

#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "base/text.hpp"
#include "contract/source_contract.hpp"

namespace carveout::test {
namespace {

TEST_P(SourceContract, DescribesItself) {
  const Description description = source_->describe();
  EXPECT_FALSE(description.name.empty());
  EXPECT_FALSE(description.detail.empty());
  const Description again = source_->describe();
  EXPECT_EQ(again.name, description.name);
  EXPECT_EQ(again.kernel_zeroes, description.kernel_zeroes);
}

TEST_P(SourceContract, GivesExactlyTheSizeAsked) {
  for (const std::uint64_t slices : {1U, 2U, 3U, 31U}) {
    const Buffer buffer = allocate(Slices(slices).bytes());
    const UniqueFd lent = share(buffer);
    if (!GetParam().has_length) continue;
    for (const int descriptor : {buffer.descriptor.get(), lent.get()}) {
      EXPECT_EQ(::lseek(descriptor, 0, SEEK_END), static_cast<off_t>(buffer.size.count()));
    }
  }
}

TEST_P(SourceContract, RefusesZeroAndWhatIsNotWholeSlices) {
  for (const Bytes size : {Bytes(0), Bytes(1), Bytes(4096), mib(1), kSliceBytes - Bytes(1),
                           kSliceBytes + Bytes(1), mib(3), Bytes(~std::uint64_t{0})}) {
    const auto buffer = source_->allocate(size);
    ASSERT_FALSE(buffer) << size.count();
    EXPECT_EQ(buffer.error().code, Code::kInvalid) << size.count();
    EXPECT_NE(buffer.error().describe().find(format_bytes(size)), std::string::npos)
        << buffer.error().describe();
  }
}

TEST_P(SourceContract, HasTheMemoryThereBeforeItIsTouched) {
  const Buffer buffer = allocate(mib(32));
  if (GetParam().committed) {
    const auto committed = GetParam().committed(buffer.descriptor.get());
    ASSERT_TRUE(committed);
    EXPECT_GE(*committed, buffer.size);
  }
  if (!GetParam().mappable) return;
  const UniqueFd lent = share(buffer);
  const Mapping memory(lent.get(), buffer.size);
  ASSERT_TRUE(memory.good());
  for (std::size_t at = 0; at < buffer.size.count(); at += 4096)
    memory[at] = 1;
  if (GetParam().committed) {
    EXPECT_EQ(GetParam().committed(buffer.descriptor.get()), buffer.size);  // no more than it said
  }
}

TEST_P(SourceContract, IsZeroAlsoWhereOthersHaveWritten) {
  if (!GetParam().mappable) GTEST_SKIP() << "waived: this kind cannot be mapped by mmap()";
  for (std::uint8_t round = 1; round <= 5; ++round) {
    Buffer buffer = allocate(mib(32));
    make_zero(buffer);
    const UniqueFd lent = share(buffer);
    const Mapping memory(lent.get(), buffer.size);
    ASSERT_TRUE(memory.good());
    EXPECT_TRUE(memory.all(0)) << int{round};
    memory.fill(round);
    EXPECT_TRUE(memory.all(round));
  }
}

TEST_P(SourceContract, ScrubbingZeroesWhatWasWritten) {
  if (!GetParam().mappable) GTEST_SKIP() << "waived: this kind cannot be mapped by mmap()";
  Buffer buffer = allocate(mib(32));
  const UniqueFd lent = share(buffer);
  const Mapping before(lent.get(), buffer.size);
  ASSERT_TRUE(before.good());
  for (std::uint8_t round = 1; round <= 3; ++round) {
    before.fill(0xA5);
    ASSERT_TRUE(source_->scrub(buffer));
    EXPECT_TRUE(before.all(0)) << "through a mapping that was there";
    const Mapping after(lent.get(), buffer.size);
    ASSERT_TRUE(after.good());
    EXPECT_TRUE(after.all(0)) << "through a new mapping";
  }
}

TEST_P(SourceContract, ScrubbingLeavesTheMemoryThere) {
  Buffer buffer = allocate(mib(32));
  const std::uint64_t inode = inode_of(buffer.descriptor.get());
  ASSERT_TRUE(source_->scrub(buffer));
  EXPECT_EQ(buffer.size, mib(32));
  EXPECT_EQ(inode_of(buffer.descriptor.get()), inode);
  if (GetParam().has_length) {
    EXPECT_EQ(::lseek(buffer.descriptor.get(), 0, SEEK_END), static_cast<off_t>(mib(32).count()));
  }
  if (GetParam().committed) {
    EXPECT_EQ(GetParam().committed(buffer.descriptor.get()), buffer.size);
  }
}

TEST_P(SourceContract, GivesEachBufferMemoryOfItsOwn) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < 4; ++i)
    buffers.push_back(allocate(kSliceBytes));
  for (std::size_t a = 0; a < buffers.size() && GetParam().own_inode; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_NE(inode_of(buffers[a].descriptor.get()), inode_of(buffers[b].descriptor.get()));
    }
  }
  if (!GetParam().mappable) return;
  const UniqueFd first = share(buffers[0]);
  const Mapping written(first.get(), kSliceBytes);
  ASSERT_TRUE(written.good());
  written.fill(7);
  for (std::size_t i = 1; i < buffers.size(); ++i) {
    const UniqueFd other = share(buffers[i]);
    const Mapping memory(other.get(), kSliceBytes);
    ASSERT_TRUE(memory.good());
    EXPECT_FALSE(memory.all(7)) << i;
  }
}

TEST_P(SourceContract, GivesTheMemoryBackWithTheLastReference) {
  Buffer buffer = allocate(mib(16));
  EndOfFile end(buffer.descriptor.get());
  if (!end.watching()) GTEST_SKIP() << "waived: this kind of file cannot be watched here";
  buffer = Buffer();
  EXPECT_TRUE(end.seen());
}

TEST_P(SourceContract, KeepsTheMemoryWhileSomethingRefersToIt) {
  Buffer buffer = allocate(mib(16));
  UniqueFd lent = share(buffer);
  EndOfFile end(buffer.descriptor.get());
  if (!end.watching()) GTEST_SKIP() << "waived: this kind of file cannot be watched here";
  buffer = Buffer();
  EXPECT_FALSE(end.seen());
  if (GetParam().mappable) {
    const Mapping memory(lent.get(), mib(16));
    ASSERT_TRUE(memory.good());
    lent.reset();
    EXPECT_FALSE(end.seen());
    memory.fill(1);
  }
  lent.reset();
  EXPECT_TRUE(end.seen());
}

TEST_P(SourceContract, GivesTheMemoryBackAfterScrubbingAndSharing) {
  std::vector<EndOfFile> ends;
  for (int i = 0; i < 10; ++i) {
    Buffer buffer = allocate(mib(4));
    ends.emplace_back(buffer.descriptor.get());
    if (!ends.back().watching()) GTEST_SKIP() << "waived: this kind of file cannot be watched here";
    ASSERT_TRUE(source_->scrub(buffer));
    const UniqueFd lent = share(buffer);
    const UniqueFd other = share(buffer);
  }
  for (EndOfFile& end : ends)
    EXPECT_TRUE(end.seen());
}

}  // namespace
}  // namespace carveout::test
