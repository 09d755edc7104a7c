// A libnvidia-ml.so.1 of our own, for tests only. Built with FAKE_NVML_OLD it knows nothing of
// processes that draw.

#include "fake_nvml.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "engines/nvml_abi.hpp"

#define FAKE_NVML_EXPORT extern "C" __attribute__((visibility("default")))

using namespace carveout::probe::nvml;  // NOLINT(google-build-using-namespace): it plays that part

namespace {

struct State {
  std::map<std::string, long> knobs{{"start", 1},    {"clock", 1500}, {"memory-clock", 8000},
                                    {"celsius", 41}, {"others", 0},   {"drawing", 0},
                                    {"both", 0},     {"bus", 1}};
  int started = 0;
};
State& state() {
  static State& all = *new State;  // never destroyed, as a library's that others may call late
  return all;
}

// 0: this GPU does not know it.
Return tell(const char* knob, unsigned* value) {
  if (state().started == 0) return kNotFound;
  *value = static_cast<unsigned>(state().knobs[knob]);
  return *value == 0 ? kNotSupported : kSuccess;
}

// This process, and so many whose numbers follow upon `before_first`.
Return list(unsigned before_first, long others, unsigned* count, ProcessInfo* processes) {
  if (state().started == 0) return kNotFound;
  if (others < 0) return kNotSupported;
  const unsigned room = std::exchange(*count, static_cast<unsigned>(others) + 1);
  if (room < *count) return kInsufficientSize;
  for (unsigned i = 1; i < *count; ++i)
    processes[i - 1] = {before_first + i, 0, 0, 0};
  processes[*count - 1] = {static_cast<unsigned>(::getpid()), 0, 0, 0};
  return kSuccess;
}

}  // namespace

FAKE_NVML_EXPORT void fake_nvml_set(const char* knob, long value) {
  state().knobs.at(knob) = value;
}
FAKE_NVML_EXPORT int fake_nvml_live() {
  return state().started;
}

FAKE_NVML_EXPORT Return nvmlInit_v2() {
  if (state().knobs["start"] == 0) return kNotSupported;
  ++state().started;
  return kSuccess;
}

FAKE_NVML_EXPORT Return nvmlShutdown() {
  --state().started;
  return kSuccess;
}

FAKE_NVML_EXPORT Return nvmlDeviceGetHandleByPciBusId_v2(const char* id, Device* device) {
  std::string known(32, '\0');
  known.resize(static_cast<std::size_t>(
      std::snprintf(known.data(), known.size(), "0000:%02lx:00.0", state().knobs["bus"])));
  if (state().started == 0 || id != known) return kNotFound;
  *device = reinterpret_cast<Device>(&state());
  return kSuccess;
}

FAKE_NVML_EXPORT Return nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "580.00.fake");
  return state().started == 0 ? kNotFound : kSuccess;
}

FAKE_NVML_EXPORT Return nvmlDeviceGetClockInfo(Device, int which, unsigned* value) {
  return tell(which == kClockSm       ? "clock"
              : which == kClockMemory ? "memory-clock"
                                      : "start",
              value);
}

FAKE_NVML_EXPORT Return nvmlDeviceGetTemperature(Device, int which, unsigned* value) {
  return which == kTemperatureGpu ? tell("celsius", value) : kNotSupported;
}

FAKE_NVML_EXPORT Return nvmlDeviceGetComputeRunningProcesses_v3(Device, unsigned* count,
                                                                ProcessInfo* processes) {
  return list(static_cast<unsigned>(::getpid()), state().knobs["others"], count, processes);
}

#ifndef FAKE_NVML_OLD
FAKE_NVML_EXPORT Return nvmlDeviceGetGraphicsRunningProcesses_v3(Device, unsigned* count,
                                                                 ProcessInfo* processes) {
  auto& knobs = state().knobs;
  const auto alone = static_cast<unsigned>(knobs["others"] - knobs["both"]);
  return list(static_cast<unsigned>(::getpid()) + alone, knobs["drawing"], count, processes);
}
#endif
