// What a heap refuses before the kernel has one to ask: tests/guest asks real ones.

#include "source/dma_heap.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>

#include "base/text.hpp"
#include "source/available_memory.hpp"
#include "unit/helpers.hpp"
#include "unit/refusal.hpp"

namespace carveout {
namespace {

using test::refusal;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class DmaHeapTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(test::open_descriptors(), descriptors_); }
  // A device that answers no ioctl stands for a heap.
  void add(const std::string& name) {
    std::filesystem::create_symlink("/dev/null", directory_.path(name));
  }
  Result<std::unique_ptr<Source>> open(const std::string& heap) {
    return open_dma_heap_source(
        {.heap = heap, .directory = directory_.path(), .meminfo = meminfo_});
  }
  std::unique_ptr<Source> opened(const std::string& heap) { return test::required(open(heap)); }
  void host_can_spare(Bytes size) {
    test::write_file(
        meminfo_, cat("MemAvailable: ", (AvailableMemory::kMargin + size).count() >> 10U, " kB\n"));
  }

  test::TemporaryDirectory directory_, host_;
  std::string meminfo_ = host_.path("meminfo");
  std::size_t descriptors_ = test::open_descriptors();
};

TEST_F(DmaHeapTest, ThatIsNotThereNamesThoseThatAre) {
  for (const char* name : {"system", "linux,cma", "reserved"})
    add(name);
  const auto none = open("default_cma_region");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_EQ(none.error().number, ENOENT);
  EXPECT_THAT(refusal(none), AllOf(HasSubstr(directory_.path("default_cma_region") + ": "),
                                   HasSubstr("no such heap"),
                                   HasSubstr("there are: linux,cma, reserved, system (--heap)")));
}

TEST_F(DmaHeapTest, WhereThereAreNoneSaysWhatTheKernelNeeds) {
  const std::string wants =
      "there are no dma-heaps on this machine: the kernel needs "
      "CONFIG_DMABUF_HEAPS";
  EXPECT_THAT(refusal(open("system")), HasSubstr(wants));
  const auto missing = open_dma_heap_source({.heap = "system", .directory = "/nowhere"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_THAT(refusal(missing), AllOf(HasSubstr("/nowhere/system: "), HasSubstr(wants),
                                      HasSubstr("a CMA or reserved region")));
}

TEST_F(DmaHeapTest, HasANameWithoutDirectories) {
  add("system");
  for (const char* name : {"", "a/b", "/", "../null", "system/", "/dev/null"}) {
    const auto bad = open(name);
    ASSERT_FALSE(bad) << name;
    EXPECT_EQ(bad.error().code, Code::kInvalid);
    EXPECT_THAT(refusal(bad), HasSubstr(cat("heap \"", std::string_view(name),
                                            "\": is not the name of a heap (--heap)")));
  }
}

TEST_F(DmaHeapTest, IsADevice) {
  (void)directory_.file("file", "text");
  ASSERT_EQ(::mkfifo(directory_.path("fifo").c_str(), 0600), 0);
  for (const char* name : {"file", "fifo"}) {
    const auto bad = open(name);
    ASSERT_FALSE(bad) << name;
    EXPECT_EQ(bad.error().code, Code::kInvalid);
    EXPECT_THAT(refusal(bad), HasSubstr(directory_.path(name) + ": is not a device"));
  }
  for (const char* name : {".", ".."}) {
    const auto bad = open(name);
    ASSERT_FALSE(bad) << name;
    EXPECT_THAT(refusal(bad), HasSubstr("the heap cannot be opened"));
  }
}

TEST_F(DmaHeapTest, OfAnotherUserMayNotBeOpened) {
  (void)directory_.file("reserved", "", 0);
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  const int code = test::run_as_nobody([&] {
    const auto denied = open("reserved");
    if (denied || denied.error().code != Code::kSystem || denied.error().number != EACCES) return 2;
    const bool told = refusal(denied).find(
                          "the heap may not be opened: run as root, or give the "
                          "daemon's user the device") != std::string::npos;
    return told ? 0 : 3;
  });
  EXPECT_EQ(code, 0);
}

TEST_F(DmaHeapTest, ControlCharactersOfANameAreNotPrinted) {
  add("a\x1b[2J");
  for (const char* name : {"b\n", "c/\n"})
    EXPECT_THAT(refusal(open(name)), AllOf(HasSubstr("\\x0a"), Not(HasSubstr("\n"))));
  EXPECT_THAT(refusal(open("b")), HasSubstr("there are: a\\x1b[2J (--heap)"));
  EXPECT_THAT(opened("a\x1b[2J")->describe().detail, HasSubstr("a\\x1b[2J"));
}

TEST_F(DmaHeapTest, SaysWhatItIs) {
  add("reserved");
  const Description is = opened("reserved")->describe();
  EXPECT_EQ(is.name, "dma-heap");
  EXPECT_EQ(is.kind, DescriptorKind::kDmaBuf);
  EXPECT_TRUE(is.kernel_zeroes);
  EXPECT_EQ(is.limit, std::nullopt);
  EXPECT_FALSE(is.ordinary_memory);
  EXPECT_EQ(is.detail, "dma-bufs of the heap reserved");
}

TEST_F(DmaHeapTest, WithoutMemoryOfItsOwnIsOrdinaryMemory) {
  for (const char* name : {"system", "system-uncached"}) {
    add(name);
    EXPECT_TRUE(opened(name)->describe().ordinary_memory) << name;
  }
  for (const char* name : {"systematic", "linux,cma", "my-system"}) {
    add(name);
    EXPECT_FALSE(opened(name)->describe().ordinary_memory) << name;
  }
}

TEST_F(DmaHeapTest, CalledSystemIsNotAskedBeyondWhatTheHostCanSpare) {
  add("system");
  host_can_spare(mib(100));
  const auto heap = opened("system");
  const auto refused = heap->allocate(mib(102));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_THAT(refusal(refused), AllOf(HasSubstr("allocating 102 MiB"),
                                      HasSubstr("the host has only 100 MiB to spare"),
                                      HasSubstr("MemAvailable less 256 MiB")));
  // Less than that is asked of the kernel, whose answer it then is.
  const auto asked = heap->allocate(mib(100));
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().number, ENOTTY);
}

TEST_F(DmaHeapTest, CalledSystemIsNotAskedWhenTheHostDoesNotSay) {
  add("system");
  const auto refused = opened("system")->allocate(kSliceBytes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kSystem);
  EXPECT_EQ(refused.error().context, meminfo_);
}

TEST_F(DmaHeapTest, WithMemoryOfItsOwnIsAskedWhateverTheHostHas) {
  add("reserved");
  host_can_spare(Bytes(0));
  const auto refused = opened("reserved")->allocate(mib(102));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kSystem);
  EXPECT_EQ(refused.error().number, ENOTTY);
  EXPECT_THAT(refusal(refused), AllOf(HasSubstr("allocating 102 MiB of the heap reserved: "),
                                      HasSubstr("the heap refused (DMA_HEAP_IOCTL_ALLOC)")));
}

TEST_F(DmaHeapTest, AllocatesWholeSlicesOnly) {
  add("system");
  host_can_spare(gib(1));
  const auto heap = opened("system");
  for (const Bytes size : {Bytes(0), Bytes(1), mib(1), kSliceBytes + Bytes(1), Bytes(~0ULL)}) {
    const auto refused = heap->allocate(size);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalid);
    EXPECT_THAT(refusal(refused),
                AllOf(HasSubstr("of the heap system"), HasSubstr("a slice is 2 MiB")));
  }
}

TEST_F(DmaHeapTest, SaysThatItCannotShareOrScrubWhatIsNotThere) {
  add("reserved");
  const auto heap = opened("reserved");
  Buffer none;
  none.size = kSliceBytes;
  EXPECT_THAT(refusal(heap->share(none)), HasSubstr("its descriptor cannot be duplicated"));
  EXPECT_THAT(refusal(heap->scrub(none)), HasSubstr("the dma-buf cannot be mapped"));
  EXPECT_EQ(heap->take_warning(), std::nullopt);
}

}  // namespace
}  // namespace carveout
