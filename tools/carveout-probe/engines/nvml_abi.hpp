#pragma once

// What we use of NVML, declared by ourselves so that no toolkit is needed to build.
// tests/unit/nvml_header_test.cpp holds it against NVIDIA's nvml.h where there is one. What is an
// enumeration there is the int that it is passed as.

namespace carveout::probe::nvml {

using Return = int;
using Device = struct OpaqueDevice*;

inline constexpr Return kSuccess = 0;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kNotFound = 6;
inline constexpr Return kInsufficientSize = 7;
inline constexpr int kClockSm = 1;
inline constexpr int kClockMemory = 2;
inline constexpr int kTemperatureGpu = 0;
inline constexpr unsigned kVersionLength = 80;

struct ProcessInfo {
  unsigned pid = 0;
  unsigned long long used_bytes = 0;
  unsigned gpu_instance = 0, compute_instance = 0;
};

template <typename Function>
struct Symbol {
  using Type = Function;
  const char* name;
};

inline constexpr Symbol<Return()> kInit{"nvmlInit_v2"};
inline constexpr Symbol<Return()> kShutdown{"nvmlShutdown"};
inline constexpr Symbol<Return(const char*, Device*)> kDeviceByBusId{
    "nvmlDeviceGetHandleByPciBusId_v2"};
inline constexpr Symbol<Return(char*, unsigned)> kDriverVersion{"nvmlSystemGetDriverVersion"};
inline constexpr Symbol<Return(Device, int, unsigned*)> kClock{"nvmlDeviceGetClockInfo"};
inline constexpr Symbol<Return(Device, int, unsigned*)> kTemperature{"nvmlDeviceGetTemperature"};
// Since driver 510. What computes and draws is in both lists.
using ListProcesses = Return(Device, unsigned*, ProcessInfo*);
inline constexpr Symbol<ListProcesses> kComputing{"nvmlDeviceGetComputeRunningProcesses_v3"};
inline constexpr Symbol<ListProcesses> kDrawing{"nvmlDeviceGetGraphicsRunningProcesses_v3"};

}  // namespace carveout::probe::nvml
