// The descriptors: whose they are, what they share and what they do not.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "contract/source_contract.hpp"
#include "unit/helpers.hpp"
#include "wire/channel.hpp"

namespace carveout::test {
namespace {

TEST_P(SourceContract, ClosesItsDescriptorsOnExec) {
  const Buffer buffer = allocate(kSliceBytes);
  EXPECT_TRUE(is_close_on_exec(buffer.descriptor.get()));
  EXPECT_TRUE(is_close_on_exec(share(buffer).get()));
}

TEST_P(SourceContract, SharesTheSameMemory) {
  if (!GetParam().mappable) GTEST_SKIP() << "waived: this kind cannot be mapped by mmap()";
  const Buffer buffer = allocate(kSliceBytes);
  const UniqueFd one = share(buffer);
  const UniqueFd two = share(buffer);
  EXPECT_NE(one.get(), two.get());
  if (GetParam().own_inode) {
    EXPECT_EQ(inode_of(one.get()), inode_of(buffer.descriptor.get()));
  }
  const Mapping written(one.get(), kSliceBytes);
  const Mapping read(two.get(), kSliceBytes);
  ASSERT_TRUE(written.good() && read.good());
  written.fill(42);
  EXPECT_TRUE(read.all(42));
}

TEST_P(SourceContract, SharesNoOffset) {
  if (!GetParam().has_length) GTEST_SKIP() << "waived: this kind has no offset";
  if (!GetParam().opened_anew) GTEST_SKIP() << "waived: the kernel opens this kind only once";
  const Buffer buffer = allocate(kSliceBytes);
  const UniqueFd one = share(buffer);
  const UniqueFd two = share(buffer);
  ASSERT_EQ(::lseek(one.get(), 0, SEEK_END), static_cast<off_t>(kSliceBytes.count()));
  EXPECT_EQ(::lseek(two.get(), 0, SEEK_CUR), 0);
  EXPECT_EQ(::lseek(buffer.descriptor.get(), 0, SEEK_CUR), 0);
}

TEST_P(SourceContract, SharesNoStatusFlags) {
  if (!GetParam().opened_anew) GTEST_SKIP() << "waived: the kernel opens this kind only once";
  const Buffer buffer = allocate(kSliceBytes);
  const UniqueFd one = share(buffer);
  const UniqueFd two = share(buffer);
  const int before = ::fcntl(two.get(), F_GETFL);
  ASSERT_EQ(::fcntl(one.get(), F_SETFL, O_NONBLOCK), 0);
  ASSERT_NE(::fcntl(one.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(::fcntl(two.get(), F_GETFL), before);
  EXPECT_EQ(::fcntl(buffer.descriptor.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_P(SourceContract, WhatItSharedOutlivesTheBuffer) {
  if (!GetParam().mappable) GTEST_SKIP() << "waived: this kind cannot be mapped by mmap()";
  UniqueFd lent;
  {
    const Buffer buffer = allocate(mib(4));
    lent = share(buffer);
    const UniqueFd ours = share(buffer);
    const Mapping memory(ours.get(), mib(4));
    ASSERT_TRUE(memory.good());
    memory.fill(9);
  }
  const Mapping memory(lent.get(), mib(4));
  ASSERT_TRUE(memory.good());
  EXPECT_TRUE(memory.all(9));
}

// What a borrower does: takes the descriptor from a socket, maps it, writes, and ends.
int borrow_and_write(int socket, Bytes size) {
  const auto deadline = wire::Clock::now() + std::chrono::seconds(20);
  const auto datagram = wire::receive_by(socket, 64, deadline);
  if (!datagram || datagram->descriptors.size() != 1) return 1;
  const Mapping memory(datagram->descriptors.front().get(), size);
  if (!memory.good()) return 2;
  if (!memory.all(0)) return 3;
  memory.fill(0x5A);
  return 0;
}

TEST_P(SourceContract, CanBeWrittenByAnotherProcess) {
  if (!GetParam().mappable) GTEST_SKIP() << "waived: this kind cannot be mapped by mmap()";
  Buffer buffer = allocate(mib(8));
  make_zero(buffer);
  const auto [ours, theirs] = socket_pair();
  {
    const UniqueFd lent = share(buffer);
    ASSERT_EQ(wire::send(ours.get(), "grant", lent.get()), wire::Transfer::kDone);
  }
  const int socket = theirs.get();
  EXPECT_EQ(run_in_child([socket] { return borrow_and_write(socket, mib(8)); }), 0);
  const UniqueFd lent = share(buffer);
  const Mapping memory(lent.get(), mib(8));
  ASSERT_TRUE(memory.good());
  EXPECT_TRUE(memory.all(0x5A));
}

TEST_P(SourceContract, LetsNoHolderResizeIt) {
  const Buffer buffer = allocate(mib(4));
  const UniqueFd lent = share(buffer);
  for (const off_t size : {off_t{0}, off_t{4096}, off_t{2097152}, off_t{8388608}}) {
    EXPECT_NE(::ftruncate(lent.get(), size), 0) << size;
  }
  if (GetParam().has_length) {
    EXPECT_EQ(::lseek(lent.get(), 0, SEEK_END), static_cast<off_t>(mib(4).count()));
  }
}

TEST_P(SourceContract, LeavesNoDescriptorBehind) {
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 200; ++i) {
    Buffer buffer = allocate(kSliceBytes);
    const UniqueFd lent = share(buffer);
    if (i % 10 == 0) {
      ASSERT_TRUE(source_->scrub(buffer));
    }
    EXPECT_EQ(open_descriptors(), before + 2);
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace carveout::test
