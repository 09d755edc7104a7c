#include "engines/cpu_kernels.hpp"

#include <vector>

namespace carveout::probe {

extern const CpuKernels kCpuKernels128;
#ifdef __x86_64__
extern const CpuKernels kCpuKernels256;
extern const CpuKernels kCpuKernels512;
#endif

std::span<const CpuKernels* const> cpu_kernels() {
  static const std::vector<const CpuKernels*> runnable = [] {
    std::vector<const CpuKernels*> all{&kCpuKernels128};
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) all.push_back(&kCpuKernels256);
    if (__builtin_cpu_supports("avx512f")) all.push_back(&kCpuKernels512);
#endif
    return all;
  }();
  return runnable;
}

const void* chase(const void* from, std::size_t steps) {
  // Where memory was taken away there are zeros. To look for them takes no time: what is waited for
  // is the load.
  for (; steps != 0 && from != nullptr; --steps)
    from = *static_cast<const void* const*>(from);
  return from;
}

}  // namespace carveout::probe
