#pragma once

// What NVIDIA's management library tells of a GPU, found at run time. A machine without it, or one
// that does not know something, tells nothing: that is never an error.

#include <memory>
#include <string>

#include "results.hpp"

namespace carveout::probe {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

class Nvml {
 public:
  // Of the GPU with that bus id, as cuDeviceGetPCIBusId gives it.
  explicit Nvml(const std::string& pci_bus_id, const std::string& library = kNvmlLibrary);
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  Nvml(Nvml&&) = delete;
  Nvml& operator=(Nvml&&) = delete;
  ~Nvml();

  [[nodiscard]] std::string driver_version() const;  // "" where it is not known
  // Clocks, temperature, and how many processes beside this one compute or draw on it. (In a
  // container's PID namespace the library may number processes otherwise, and count this one, too.)
  void note(Moment& moment) const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;  // null where there is none
};

}  // namespace carveout::probe
