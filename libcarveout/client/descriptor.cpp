#include "client/descriptor.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.hpp"
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

// The kernel says of what a dma-buf is, and of nothing else; before Linux 5.3 it only named it, as
// no path can be.
bool is_dma_buf(int descriptor) {
  const auto about = read_text(cat("/proc/self/fdinfo/", descriptor), 4096);
  if (about && about->find("\nexp_name:") != std::string::npos) return true;
  std::array<char, 64> name{};
  const auto length =
      ::readlink(cat("/proc/self/fd/", descriptor).c_str(), name.data(), name.size());
  return length > 0 &&
         std::string_view(name.data(), static_cast<std::size_t>(length)) == "anon_inode:dmabuf";
}

}  // namespace

Result<LentFile> examine(int descriptor) {
  const auto found = look_at(descriptor);
  if (!found) return found.error();
  if (S_ISCHR(found->stx_mode) && found->stx_rdev_major == kNvidiaMajor) {
    return LentFile{DescriptorKind::kNvidiaFile, std::nullopt};
  }
  // Of shared memory only. (It is not sealed here: that would wait for whoever is writing to it.)
  if (S_ISREG(found->stx_mode) && ::fcntl(descriptor, F_GET_SEALS) >= 0) {
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
