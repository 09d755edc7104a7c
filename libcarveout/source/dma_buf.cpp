#include "source/dma_buf.hpp"

#include <fcntl.h>
#include <linux/dma-buf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/text.hpp"

namespace carveout::dma_buf {
namespace {

Result<void> sync(int descriptor, std::uint64_t flags, Ioctl ioctl) {
  dma_buf_sync bracket{flags};
  if (ioctl(descriptor, DMA_BUF_IOCTL_SYNC, &bracket) == 0) return {};
  return system_error(errno, "dma-buf",
                      "cannot be prepared for the processor (DMA_BUF_IOCTL_SYNC)");
}

// Lets `fill` write the first `size` bytes.
template <typename Fill>
Result<void> write(int descriptor, Bytes size, Ioctl ioctl, Fill fill) {
  const std::size_t count = size.count();
  void* at = ::mmap(nullptr, count, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (at == MAP_FAILED) {
    return system_error(errno, cat("writing ", format_bytes(size)), "the dma-buf cannot be mapped");
  }
  auto done = sync(descriptor, DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE, ioctl);
  if (done) {
    fill(static_cast<char*>(at), count);
    done = sync(descriptor, DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE, ioctl);
  }
  ::munmap(at, count);
  return done;
}

}  // namespace

int kernel_ioctl(int descriptor, unsigned long request, void* argument) {
  int answer = -1;
  do {
    answer = ::ioctl(descriptor, request, argument);
  } while (answer != 0 && (errno == EINTR || errno == EAGAIN));
  return answer;
}

Result<Bytes> length(int descriptor) {
  const off_t end = ::lseek(descriptor, 0, SEEK_END);
  if (end < 0) return system_error(errno, "dma-buf", "does not tell its length");
  ::lseek(descriptor, 0, SEEK_SET);
  return Bytes(static_cast<std::uint64_t>(end));
}

Result<void> commit(int descriptor, Bytes size, Ioctl ioctl) {
  return write(descriptor, size, ioctl, [](char* bytes, std::size_t count) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    for (std::size_t at = 0; at < count; at += page)
      const_cast<volatile char*>(bytes)[at] = 0;
  });
}

Result<void> zero(int descriptor, Bytes size, Ioctl ioctl) {
  return write(descriptor, size, ioctl,
               [](char* bytes, std::size_t count) { std::memset(bytes, 0, count); });
}

void name(int descriptor, std::string_view name) {
  std::string text(name.substr(0, DMA_BUF_NAME_LEN - 1));
  (void)kernel_ioctl(descriptor, DMA_BUF_SET_NAME, text.data());
}

}  // namespace carveout::dma_buf
