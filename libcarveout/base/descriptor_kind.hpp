#pragma once

#include <string_view>

namespace carveout {

// What kind of file memory is lent as.
enum class DescriptorKind { kMemfd, kDmaBuf, kNvidiaFile };

// For people: "a memfd".
[[nodiscard]] constexpr std::string_view name_of(DescriptorKind kind) {
  switch (kind) {
    case DescriptorKind::kMemfd:
      break;
    case DescriptorKind::kDmaBuf:
      return "a dma-buf";
    case DescriptorKind::kNvidiaFile:
      return "an NVIDIA file";
  }
  return "a memfd";
}

}  // namespace carveout
