#include "source/available_memory.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "base/text.hpp"
#include "unit/helpers.hpp"

namespace carveout {
namespace {

class Meminfo : public testing::Test {
 protected:
  // The host has this much more to spare than the margin.
  void spare(Bytes size) { available(AvailableMemory::kMargin + size); }
  void available(Bytes size) {
    test::write_file(path_, cat("MemTotal:       99999999 kB\nMemFree:  1 kB\nMemAvailable:   ",
                                size.count() / 1024, " kB\nBuffers:  5 kB\n"));
  }

  test::TemporaryDirectory directory_;
  std::string path_ = directory_.path("meminfo");
};

TEST_F(Meminfo, IsReadInKibibytes) {
  available(mib(1000));
  const auto size = read_mem_available(path_);
  ASSERT_TRUE(size);
  EXPECT_EQ(*size, mib(1000));
  test::write_file(path_, "MemAvailable: 0 kB\n");
  EXPECT_EQ(*read_mem_available(path_), Bytes(0));
  test::write_file(path_, "MemAvailable:18014398509481983 kB");
  EXPECT_EQ(*read_mem_available(path_), kib(18014398509481983));
}

TEST_F(Meminfo, OfThisHostIsReadable) {
  const auto size = read_mem_available();
  ASSERT_TRUE(size) << size.error().describe();
  EXPECT_GT(*size, mib(1));
}

TEST_F(Meminfo, MustSayHowMuchThereIs) {
  for (const std::string_view text :
       {"", "\n", "MemFree: 12 kB\n", "MemAvailable:", "MemAvailable: ", "MemAvailable: \n12 kB",
        "MemAvailable: -1 kB\n", "MemAvailable: lots\n", "MemAvailable 12 kB\n",
        "memavailable: 12 kB\n", "MemAvailable: 18014398509481984 kB\n",
        "MemAvailable: 99999999999999999999 kB\n"}) {
    test::write_file(path_, text);
    const auto size = read_mem_available(path_);
    ASSERT_FALSE(size) << text;
    EXPECT_EQ(size.error().code, Code::kSystem);
    EXPECT_EQ(size.error().context, path_);
  }
  const auto missing = read_mem_available(directory_.path("missing"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kSystem);
}

TEST_F(Meminfo, GivesUpToTheMargin) {
  spare(mib(100));
  EXPECT_TRUE(AvailableMemory(path_).take(mib(100)));
  const auto more = AvailableMemory(path_).take(mib(102));
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kExhausted);
  EXPECT_NE(more.error().describe().find("102 MiB"), std::string::npos);
  EXPECT_NE(more.error().describe().find("100 MiB"), std::string::npos);
}

TEST_F(Meminfo, BelowTheMarginGivesNothing) {
  for (const Bytes size : {AvailableMemory::kMargin, AvailableMemory::kMargin - mib(1), Bytes(0)}) {
    available(size);
    const auto taken = AvailableMemory(path_).take(mib(2));
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, Code::kExhausted);
  }
}

TEST_F(Meminfo, IsReadAnewForALargeAsk) {
  spare(mib(800));
  AvailableMemory memory(path_);
  ASSERT_TRUE(memory.take(mib(2)));
  spare(mib(300));
  EXPECT_FALSE(memory.take(mib(400)));
  EXPECT_TRUE(memory.take(mib(300)));
  spare(mib(900));
  EXPECT_TRUE(memory.take(mib(900)));
}

TEST_F(Meminfo, IsNotReadForEverySmallAsk) {
  spare(mib(800));
  AvailableMemory memory(path_);
  ASSERT_TRUE(memory.take(mib(2)));
  test::write_file(path_, "unreadable");
  EXPECT_TRUE(memory.take(mib(2)));
  EXPECT_TRUE(memory.take(mib(50)));
  const auto large = memory.take(mib(200));
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, Code::kSystem);
}

TEST_F(Meminfo, SmallAsksAddUp) {
  spare(mib(100));
  AvailableMemory memory(path_);
  ASSERT_TRUE(memory.take(mib(10)));
  // What was given away already is not seen in this file: each ask must be counted.
  Bytes given = mib(10);
  test::write_file(path_, "MemAvailable: 0 kB\n");
  while (given < mib(200) && memory.take(mib(2)))
    given = given + mib(2);
  EXPECT_LE(given, mib(100));
  EXPECT_GE(given, mib(80));
}

TEST_F(Meminfo, IsReadAnewWhenItIsOld) {
  spare(mib(800));
  AvailableMemory memory(path_);
  ASSERT_TRUE(memory.take(mib(2)));
  spare(Bytes(0));
  EXPECT_TRUE(memory.take(mib(2)));
  std::this_thread::sleep_for(std::chrono::milliseconds(1050));
  EXPECT_FALSE(memory.take(mib(2)));
}

}  // namespace
}  // namespace carveout
