#include <cstdint>
#include <cstdio>

#include "base/text.hpp"
#include "gpu/gpu.hpp"
#include "gpu/parts.hpp"

namespace carveout::test {
namespace {

std::string text_of(std::optional<int> number) {
  return number ? cat(*number) : "?";
}

}  // namespace

Result<void> show_device() {
  auto gpu = Gpu::open();
  if (!gpu) return std::move(gpu).error();
  const auto cache = gpu->attribute(cuda::kAttributeL2Bytes);
  const auto integrated = gpu->attribute(cuda::kAttributeIntegrated);
  std::printf("device    %s, compute capability %s.%s, L2 %s, memory %s\n", gpu->name().c_str(),
              text_of(gpu->attribute(cuda::kAttributeCapabilityMajor)).c_str(),
              text_of(gpu->attribute(cuda::kAttributeCapabilityMinor)).c_str(),
              cache ? format_bytes(Bytes(static_cast<std::uint64_t>(*cache))).c_str() : "?",
              integrated.value_or(0) != 0 ? "shared with the processor" : "of its own");
  const int version = gpu->context().driver()->version();
  std::printf("CUDA      %d.%d\n", version / 1000, version % 1000 / 10);
  return {};
}

}  // namespace carveout::test
