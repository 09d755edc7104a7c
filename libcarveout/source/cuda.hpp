#pragma once

#include <memory>
#include <string>

#include "base/result.hpp"
#include "cuda/driver.hpp"
#include "source/source.hpp"

namespace carveout {

struct CudaSettings {
  int device = 0;  // as CUDA counts them
  std::string library = cuda::kLibrary;
};

// Memory of any NVIDIA GPU (cuMemCreate), shared as the NVIDIA files that its driver exports. It
// retains the device's primary context as long as it lives, and no allocation: the exported file
// alone keeps the memory. Nobody zeroes it but scrub(), on the GPU. Errors: kNotFound without a
// driver or that device; kInvalid for a device whose memory cannot be exported, or not in slices.
Result<std::unique_ptr<Source>> open_cuda_source(const CudaSettings& settings);

}  // namespace carveout
