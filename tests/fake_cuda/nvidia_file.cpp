// Preloaded into a program, this has the memory files that the fake driver exports look like the
// files that NVIDIA's does: a character device of its number, without a length, not seekable. The
// fake driver itself looks by stat(), and sees what they are.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include "fake_cuda.hpp"

#define PRELOADED extern "C" __attribute__((visibility("default")))

namespace {

bool is_exported(int descriptor) {
  std::array<char, 32> link{};
  std::array<char, 64> target{};
  std::array<char, 64> own{};
  (void)std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", descriptor);
  (void)std::snprintf(own.data(), own.size(), "/memfd:%s (deleted)", carveout::fake_cuda::kOwnName);
  const int before = errno;
  const ssize_t length = ::readlink(link.data(), target.data(), target.size());
  errno = before;
  return length > 0 && std::string_view(target.data(), static_cast<std::size_t>(length)) ==
                           std::string_view(own.data());
}

}  // namespace

PRELOADED int fstat(int descriptor, struct stat* status) noexcept {
  const int answer = ::fstatat(descriptor, "", status, AT_EMPTY_PATH);
  if (answer == 0 && is_exported(descriptor)) {
    status->st_mode = S_IFCHR | 0666;
    status->st_rdev = makedev(195, 255);
    status->st_size = 0;
  }
  return answer;
}

PRELOADED int statx(int directory, const char* path, int flags, unsigned mask,
                    struct statx* status) noexcept {
  const auto answer = static_cast<int>(::syscall(SYS_statx, directory, path, flags, mask, status));
  if (answer == 0 && *path == '\0' && is_exported(directory)) {
    status->stx_mode = S_IFCHR | 0666;
    status->stx_rdev_major = 195;
    status->stx_rdev_minor = 255;
    status->stx_size = 0;
  }
  return answer;
}

PRELOADED off_t lseek(int descriptor, off_t offset, int whence) noexcept {
  if (is_exported(descriptor)) {
    errno = ESPIPE;
    return -1;
  }
  return static_cast<off_t>(::syscall(SYS_lseek, descriptor, offset, whence));
}
