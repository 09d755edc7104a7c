// What a descriptor that somebody else sends is.

#include "client/descriptor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/memfd.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "support/scripted_lender.hpp"
#include "unit/helpers.hpp"
#include "unit/refusal.hpp"

namespace carveout::client {
namespace {

TEST(ClientDescriptor, KnowsAMemfdAndItsLength) {
  const UniqueFd memory = test::make_memory(mib(4).count());
  ASSERT_EQ(::lseek(memory.get(), 12345, SEEK_SET), 12345);
  const LentFile file = test::required(examine(memory.get()));
  EXPECT_EQ(file.kind, DescriptorKind::kMemfd);
  EXPECT_EQ(file.length, mib(4));
  EXPECT_EQ(::lseek(memory.get(), 0, SEEK_CUR), 12345) << "its offset is where it was";
  const UniqueFd empty = test::make_memory(0);
  EXPECT_EQ(test::required(examine(empty.get())).length, Bytes(0)) << "which is a length, too";
}

TEST(ClientDescriptor, LeavesAMemfdAsItIs) {
  const UniqueFd memory(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(memory.get(), 4 << 20), 0);
  EXPECT_EQ(test::required(examine(memory.get())).length, mib(4));
  EXPECT_EQ(::fcntl(memory.get(), F_GET_SEALS), 0) << "sealing would wait for a writer";
}

TEST(ClientDescriptor, TakesNoFileForADmaBufByItsName) {
  const std::string path = "/dmabuf:carveout-test";
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) GTEST_SKIP() << "waived: / cannot be written";
  ::unlink(path.c_str());
  ASSERT_EQ(::ftruncate(file.get(), 4 << 20), 0);
  const auto found = examine(file.get());
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::kProtocol);
}

TEST(ClientDescriptor, KnowsAMemfdOfHugePages) {
  const UniqueFd memory(::memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB));
  if (!memory) GTEST_SKIP() << "waived: this kernel has no huge pages of 2 MiB";
  ASSERT_EQ(::ftruncate(memory.get(), 2 << 20), 0);
  const LentFile file = test::required(examine(memory.get()));
  EXPECT_EQ(file.kind, DescriptorKind::kMemfd);
  EXPECT_EQ(file.length, mib(2));
}

TEST(ClientDescriptor, KnowsAFileOfNvidiasDriver) {
  const test::TemporaryDirectory directory;
  const std::string node = directory.path("nvidiactl");
  if (::mknod(node.c_str(), S_IFCHR | 0600, makedev(195, 255)) != 0) {
    GTEST_SKIP() << "waived: device nodes cannot be made here";
  }
  const UniqueFd device(::open(node.c_str(), O_PATH | O_CLOEXEC));
  const LentFile file = test::required(examine(device.get()));
  EXPECT_EQ(file.kind, DescriptorKind::kNvidiaFile);
  EXPECT_EQ(file.length, std::nullopt);
}

TEST(ClientDescriptor, RefusesWhatIsNoMemoryOfALenders) {
  const test::TemporaryDirectory directory;
  const auto [one, other] = test::socket_pair();
  const test::Pipe pipe = test::make_pipe();
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  const UniqueFd folder(::open(directory.path().c_str(), O_RDONLY | O_CLOEXEC));
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueFd zero(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  const UniqueFd proc(::open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  for (const UniqueFd* stranger : {&one, &pipe.read_end, &event, &folder, &null, &zero, &proc}) {
    const auto file = examine(stranger->get());
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, Code::kProtocol) << file.error().describe();
  }
  EXPECT_EQ(examine(-1).error().number, EBADF);
}

}  // namespace
}  // namespace carveout::client
