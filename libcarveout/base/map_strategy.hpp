#pragma once

#include <array>

namespace carveout {

// How memory that was lent is mapped for use.
enum class MapStrategy {
  kAuto,      // those below that the file's kind allows, in this order, until one works
  kVmm,       // NVIDIA files: cuMemImportFromShareableHandle into a range of addresses
  kExternal,  // NVIDIA files and dma-bufs: cuImportExternalMemory
  kRegister,  // dma-bufs and memfds: mmap, cuMemHostRegister
  kHost,      // dma-bufs and memfds: mmap alone, for the processor; needs no CUDA
};

inline constexpr std::array<MapStrategy, 5> kMapStrategies{
    MapStrategy::kAuto, MapStrategy::kVmm, MapStrategy::kExternal, MapStrategy::kRegister,
    MapStrategy::kHost};

// As CARVEOUT_MAP has them. A literal.
[[nodiscard]] constexpr const char* name_of(MapStrategy strategy) {
  switch (strategy) {
    case MapStrategy::kAuto:
      break;
    case MapStrategy::kVmm:
      return "vmm";
    case MapStrategy::kExternal:
      return "external";
    case MapStrategy::kRegister:
      return "register";
    case MapStrategy::kHost:
      return "host";
  }
  return "auto";
}

}  // namespace carveout
