// What is read of the host: caches, pages, by files of the kernel's own shape.

#include "host.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <string>

#include "engines/anonymous.hpp"
#include "unit/helpers.hpp"

namespace carveout::probe {
namespace {

using testing::ElementsAre;
using testing::Gt;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

void write_cache(const test::TemporaryDirectory& root, const std::string& index,
                 const std::string& level, const std::string& type, const std::string& size) {
  const std::string place = "cpu3/cache/" + index;
  (void)root.file(place + "/level", level + "\n");
  (void)root.file(place + "/type", type + "\n");
  (void)root.file(place + "/size", size + "\n");
}

TEST(ProbeHost, FindsTheDataCachesByLevel) {
  const test::TemporaryDirectory root;
  write_cache(root, "index2", "2", "Unified", "2048K");
  write_cache(root, "index0", "1", "Data", "48K");
  write_cache(root, "index1", "1", "Instruction", "64K");
  write_cache(root, "index3", "3", "Unified", "480M");
  (void)root.file("cpu3/cache/uevent", "");
  EXPECT_THAT(data_caches(3, root.path()), ElementsAre(49152, 2097152, 503316480));
  EXPECT_THAT(data_caches(4, root.path()), IsEmpty()) << "there is no such processor";
}

constexpr const char* kSmaps =
    "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n"
    "Size:               4096 kB\n"
    "KernelPageSize:        4 kB\n"
    "Rss:                4096 kB\n"
    "AnonHugePages:      4096 kB\n"
    "ShmemPmdMapped:        0 kB\n"
    "VmFlags: rd wr mr mw me ac sd\n"
    "7f0000400000-7f0000800000 rw-s 00000000 00:01 2072 /memfd:carveout (deleted)\n"
    "Size:               4096 kB\n"
    "KernelPageSize:        4 kB\n"
    "Rss:                4096 kB\n"
    "AnonHugePages:         0 kB\n"
    "7f0000800000-7f0000a00000 rw-s 00000000 00:10 2073 /memfd:carveout (deleted)\n"
    "KernelPageSize:     2048 kB\n"
    "Rss:                   0 kB\n"
    "7f0000a00000-7f0000e00000 rw-p 00000000 00:00 0 \n"
    "KernelPageSize:        4 kB\n"
    "Rss:                4096 kB\n"
    "AnonHugePages:      1024 kB\n";

TEST(ProbeHost, TellsTheSizeOfMostPagesOfAMapping) {
  EXPECT_EQ(page_bytes_in(kSmaps, 0x7f0000000000), 2097152U) << "made huge by the kernel";
  EXPECT_EQ(page_bytes_in(kSmaps, 0x7f00003fffff), 2097152U);
  EXPECT_EQ(page_bytes_in(kSmaps, 0x7f0000400000), 4096U) << "the next one";
  EXPECT_EQ(page_bytes_in(kSmaps, 0x7f0000800000), 2097152U) << "of hugetlbfs";
  EXPECT_EQ(page_bytes_in(kSmaps, 0x7f0000a00000), 4096U) << "a quarter of it huge";
  EXPECT_EQ(page_bytes_in(kSmaps, 0x7f0000e00000), 0U) << "nothing is there";
  EXPECT_EQ(page_bytes_in("", 0), 0U);
}

TEST(ProbeHost, OrdinaryMemoryIsOfThePagesThatWereAskedFor) {
  const auto mapped = Anonymous::map(mib(4), 4096);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(page_bytes_at(mapped->address()), 4096U);
  EXPECT_EQ(static_cast<const char*>(mapped->address())[mib(4).count() - 1], 0);
}

TEST(ProbeHost, MoreOrdinaryMemoryThanThereIsIsRefused) {
  const auto mapped = Anonymous::map(Bytes(std::uint64_t{1} << 46));
  ASSERT_FALSE(mapped);
  EXPECT_THAT(mapped.error().describe(),
              AllOf(HasSubstr("65536 GiB of ordinary memory"), HasSubstr("say a smaller --size")));
}

TEST(ProbeHost, KnowsItself) {
  const Machine machine = host_machine();
  std::array<char, 256> name{};
  ASSERT_EQ(::gethostname(name.data(), name.size() - 1), 0);
  EXPECT_EQ(machine.host, name.data());
  EXPECT_THAT(machine.kernel, StartsWith("Linux "));
  EXPECT_THAT(machine.processor, HasSubstr(" CPU"));
  EXPECT_EQ(machine.page_bytes, static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  EXPECT_THAT(host_moment(0).unix_s, Gt(1.7e9));
}

}  // namespace
}  // namespace carveout::probe
