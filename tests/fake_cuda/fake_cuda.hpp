#pragma once

// What tests may ask of the fake libcuda.so.1 besides the driver's calls. It is loaded by its path,
// so these are found by dlsym(); see fake_driver.hpp. A copy of the file elsewhere is a
// driver of its own, with a state of its own.
//
// Its environment, for programs that tests start: FAKE_CUDA_FAIL="cuMemMap:2,cuMemUnmap:1" fails
// the nth calls; FAKE_CUDA_SET="dma-buf=1,devices=2" are knobs; FAKE_CUDA_STRICT=1 ends a process
// that broke a rule, or exits with something not given back, with kBroken and a text.

namespace carveout::fake_cuda {

// The exit code of a process that broke a rule that only a dead driver could have told it of.
inline constexpr int kBroken = 86;

// Memory behind files of these names is taken for the driver's own and for a dma-buf.
inline constexpr const char* kOwnName = "fake-cuda";
inline constexpr const char* kDmaBufName = "fake-dma-buf";

}  // namespace carveout::fake_cuda

extern "C" {
// The nth call of `entry` from now on (its base name: cuMemFree) answers `result`. With `performed`
// it does its work first, as a call does that reports what an earlier one has failed in.
void fake_cuda_fail_nth(const char* entry, int nth, int result, int performed);
// The same of `times` calls, beginning with the nth.
void fake_cuda_fail_from(const char* entry, int nth, int times, int result, int performed);
// Whether any has failed so since the last was asked for, or as many of `entry` as were asked for.
int fake_cuda_has_failed();
int fake_cuda_failed(const char* entry);
// Knobs: "devices" (1), "granularity" (2 MiB), "limit" (bytes an allocation, 0: none), "dma-buf"
// (0: refused, 1: taken and the descriptor with it, 2: taken and the descriptor left), "register"
// (1), "export" (1), "vmm" (1), "driver" (13000), "copy" (1; 0: cuMemcpyDtoH says
// that it did, and did not), "device-copy" (the same of cuMemcpyDtoD), "kernel-writes" (the same of
// the kernels that write and copy), "kernel-reads" (1; 0: what kernels have read is wrong), "l2"
// (bytes of the L2 cache, 4 MiB), "integrated" (0; 1: its memory is the host's), "model" (1: events
// tell the time of a made GPU instead of the processor's), "vmm-l2" (1; 0: that GPU's L2 keeps
// nothing of what is mapped as handles), "kept" (bytes that it keeps; 0: as many as it says),
// "slow-host" (1: events have passed whenever they are asked for), "longest-wait" (1 s: in
// nanoseconds, what carveout_wait may be asked for).
void fake_cuda_set(const char* knob, long value);
// As if this driver had no such call.
void fake_cuda_hide(const char* entry);
// Everything that the process has of the driver: reservations, handles, mappings, imported memory
// and its buffers, registrations, modules, events, retained contexts, contexts pushed and not
// popped.
int fake_cuda_live();
int fake_cuda_calls(const char* entry);  // "" for all
// The calls since it was asked last, in order, one a line.
const char* fake_cuda_take_record();
// As at the process's end: it keeps nothing of what fake_cuda_live() counts, but the contexts that
// are current somewhere stay so.
void fake_cuda_take_everything_back();
// Called at exit() as soon as the driver is gone: by then nothing may call it any more.
void fake_cuda_at_end(void (*call)());
// Called once, in the next cuCtxSynchronize(), before that is done.
void fake_cuda_at_wait(void (*call)());
// The rules broken so far, one a line.
const char* fake_cuda_broken_rules();
// A context of the caller's own, made current for nobody.
void* fake_cuda_make_context(int device);
}
