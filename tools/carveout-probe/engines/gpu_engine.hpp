#pragma once

// Measuring on an NVIDIA GPU: what its memory accesses find, past its L1 caches, timed by its own
// events.

#include <memory>
#include <string>

#include "cuda/driver.hpp"
#include "engines/engine.hpp"
#include "engines/nvml.hpp"

namespace carveout::probe {

// Works in the device's primary context, and leaves the calling thread's as it was. To be used from
// one thread at a time; it is alive as long as anything that it gave. Errors: kNotFound where there
// is no driver, no such device, or a driver that lacks a call; else as the driver says.
Result<std::unique_ptr<Engine>> open_gpu_engine(int device,
                                                const std::string& driver = cuda::kLibrary,
                                                const std::string& nvml = kNvmlLibrary);

}  // namespace carveout::probe
