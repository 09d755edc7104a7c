#include "client/descriptor.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>

#include "base/text.hpp"
#include "source/dma_buf.hpp"

namespace carveout::client {
namespace {

// The character devices of NVIDIA's driver, nvidiactl among them: a number of its own for good
// (Documentation/admin-guide/devices.txt of Linux).
constexpr unsigned kNvidiaMajor = 195;

constexpr const char* kContext = "the lender's descriptor";

// Nobody is asked but the kernel itself: a file of a file system in user space (FUSE) would be
// waited for as long as its server likes.
Result<struct statx> look_at(int descriptor) {
  struct statx found {};
  if (::statx(descriptor, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_SIZE,
              &found) != 0) {
    return system_error(errno, kContext, "cannot be examined");
  }
  return found;
}

// By the name that the kernel gives such files, which no path has: "/dmabuf:", and "anon_inode:"
// before Linux 5.3.
bool is_dma_buf(int descriptor) {
  std::array<char, 64> name{};
  const auto length =
      ::readlink(cat("/proc/self/fd/", descriptor).c_str(), name.data(), name.size());
  if (length < 0) return false;
  const std::string_view text(name.data(), static_cast<std::size_t>(length));
  return text.starts_with("/dmabuf:") || text == "anon_inode:dmabuf";
}

}  // namespace

Result<LentFile> examine(int descriptor) {
  auto found = look_at(descriptor);
  if (!found) return found.error();
  if (S_ISCHR(found->stx_mode) && found->stx_rdev_major == kNvidiaMajor) {
    return LentFile{DescriptorKind::kNvidiaFile, std::nullopt};
  }
  if (S_ISREG(found->stx_mode) && ::fcntl(descriptor, F_GET_SEALS) >= 0) {  // shared memory only
    // Before it is measured. Where it cannot be done, the lender is trusted as with the rest.
    (void)::fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK);
    found = look_at(descriptor);
    if (!found) return found.error();
    return LentFile{DescriptorKind::kMemfd, Bytes(found->stx_size)};
  }
  if (is_dma_buf(descriptor)) {
    if (found->stx_size > 0) return LentFile{DescriptorKind::kDmaBuf, Bytes(found->stx_size)};
    // Kernels before 5.3 say it only to lseek(), which moves no dma-buf's offset.
    const auto asked = dma_buf::length(descriptor);
    if (!asked) return asked.error();
    return LentFile{DescriptorKind::kDmaBuf, *asked};
  }
  return Error{Code::kProtocol, 0, kContext,
               "is neither a memfd, nor a dma-buf, nor a file of NVIDIA's driver"};
}

}  // namespace carveout::client
