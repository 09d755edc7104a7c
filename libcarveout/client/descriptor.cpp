#include "client/descriptor.hpp"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstdint>

#include "source/dma_buf.hpp"

namespace carveout::client {
namespace {

// The character devices of NVIDIA's driver, nvidiactl among them: a number of its own for good
// (Documentation/admin-guide/devices.txt of Linux).
constexpr unsigned kNvidiaMajor = 195;

constexpr const char* kContext = "the lender's descriptor";

}  // namespace

Result<LentFile> examine(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    return system_error(errno, kContext, "cannot be examined");
  }
  if (S_ISCHR(status.st_mode) && major(status.st_rdev) == kNvidiaMajor) {
    return LentFile{DescriptorKind::kNvidiaFile, std::nullopt};
  }
  struct statfs system {};
  int answer = -1;
  do {
    answer = ::fstatfs(descriptor, &system);
  } while (answer != 0 && errno == EINTR);
  if (answer != 0) return system_error(errno, kContext, "cannot be examined");
  const auto magic = static_cast<std::uint64_t>(system.f_type);
  const Bytes length(static_cast<std::uint64_t>(status.st_size));
  if (magic == DMA_BUF_MAGIC) {
    if (length > Bytes(0)) return LentFile{DescriptorKind::kDmaBuf, length};
    // Kernels before 5.3 say it only to lseek(), which moves no dma-buf's offset.
    const auto asked = dma_buf::length(descriptor);
    if (!asked) return asked.error();
    return LentFile{DescriptorKind::kDmaBuf, *asked};
  }
  if (S_ISREG(status.st_mode) && (magic == TMPFS_MAGIC || magic == HUGETLBFS_MAGIC)) {
    return LentFile{DescriptorKind::kMemfd, length};
  }
  return Error{Code::kProtocol, 0, kContext,
               "is neither a memfd, nor a dma-buf, nor a file of NVIDIA's driver"};
}

}  // namespace carveout::client
