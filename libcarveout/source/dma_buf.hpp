#pragma once

// What all dma-bufs have in common, wherever they come from.

#include <string_view>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace carveout::dma_buf {

// As ioctl(); the tests put a kernel of their own behind it.
using Ioctl = int (*)(int descriptor, unsigned long request, void* argument);
// Repeats interrupted calls.
int kernel_ioctl(int descriptor, unsigned long request, void* argument);

// The length that the kernel gives it. The file offset of a dma-buf is nobody's: asking for the
// length does not move it.
Result<Bytes> length(int descriptor);

// Has its first `size` bytes allocated by a driver that waits until they are touched.
Result<void> commit(int descriptor, Bytes size, Ioctl ioctl = &kernel_ioctl);

// Writes zeros over its first `size` bytes through a mapping, between DMA_BUF_IOCTL_SYNCs.
Result<void> zero(int descriptor, Bytes size, Ioctl ioctl = &kernel_ioctl);

// Shows in /proc/PID/fdinfo and debugfs. Cut to 31 bytes; kernels that do not know it do not mind.
void name(int descriptor, std::string_view name);

}  // namespace carveout::dma_buf
