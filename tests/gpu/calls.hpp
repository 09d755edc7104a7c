#pragma once

// What only tests call of the driver, declared as cuda/abi.hpp declares the library's own, and held
// against NVIDIA's cuda.h with it.

#include "cuda/abi.hpp"

namespace carveout::cuda {

inline constexpr int kAttributeCapabilityMajor = 75;
inline constexpr int kAttributeCapabilityMinor = 76;
inline constexpr int kAttributeSameHostPointer = 91;

inline constexpr Entry<CUresult(CUdeviceptr, unsigned, std::size_t)> kMemsetD32{
    "cuMemsetD32", "cuMemsetD32_v2", 3020};

}  // namespace carveout::cuda
