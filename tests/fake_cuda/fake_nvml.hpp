#pragma once

// What tests may ask of the fake libnvidia-ml.so.1 besides NVML's calls.

extern "C" {
// Knobs: "start" (1), "bus" (1: the only GPU is 0000:01:00.0), "clock" (1500 MHz), "memory-clock"
// (8000), "celsius" (41), "others" (0: processes beside this one that compute on it), "drawing" (0:
// those that draw on it; -1: this GPU does not tell), "both" (0: how many of "drawing" are of
// "others", too). A clock or temperature that is 0 this GPU does not know.
void fake_nvml_set(const char* knob, long value);
// How often it was started and not shut down.
int fake_nvml_live();
}
