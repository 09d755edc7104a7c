#pragma once

// What the fake driver knows, and what every call of it begins and ends with.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"
#include "cuda/abi.hpp"

#define FAKE_CUDA_EXPORT extern "C" __attribute__((visibility("default")))

namespace carveout::cuda {
struct OpaqueContext {
  CUdevice device;
  bool primary;
  int retained;
};
struct OpaqueExternalMemory {
  UniqueFd file;
  std::uint64_t inode;
  std::size_t size;
  CUcontext context;
};
struct OpaqueFunction {
  CUmodule module;
  std::string name;
  std::size_t arguments;  // 64-bit words, all of them
};
struct OpaqueModule {
  CUcontext context;
  std::vector<std::unique_ptr<OpaqueFunction>> functions;
};
struct OpaqueEvent {
  CUcontext context;
  bool recorded = false;
  std::chrono::steady_clock::time_point at;
  double modelled_ns = 0;
  std::uint64_t after = 0;  // the last work before it
};
}  // namespace carveout::cuda

namespace carveout::fake_cuda {

using namespace cuda;  // NOLINT(google-build-using-namespace): it plays that part

struct Allocation {
  UniqueFd file;
  std::size_t size = 0;
  bool exportable = false;
};
struct MappedRange {
  std::size_t size = 0;
  CUmemGenericAllocationHandle handle = 0;
  std::set<CUdevice> access;
};
struct Buffer {
  std::size_t size = 0;
  CUexternalMemory memory = nullptr;
  CUcontext context = nullptr;
};
struct Registration {
  std::size_t size = 0;
  unsigned flags = 0;
  CUcontext context = nullptr;
  void* alias = nullptr;  // what the device sees
  std::uint64_t inode = 0;
};
struct Fill {
  CUdeviceptr start;
  std::size_t size;
  std::uint32_t word;  // of equal bytes, unless start and size are multiples of 4
};
// On memory, asked for and not waited for yet.
struct Work {
  CUdeviceptr start;
  std::size_t size;
  std::uint64_t number;
};
struct Failure {
  int nth;  // counted down
  int times;
  CUresult result;
  bool performed;
  int failed = 0;
};

struct State {
  std::recursive_mutex mutex;
  pid_t process = 0;  // that called cuInit
  bool exiting = false;
  std::map<std::string, long> knobs{{"devices", 1},       {"granularity", 2097152},
                                    {"limit", 0},         {"dma-buf", 0},
                                    {"register", 1},      {"export", 1},
                                    {"vmm", 1},           {"driver", 13000},
                                    {"copy", 1},          {"l2", 4194304},
                                    {"device-copy", 1},   {"kernel-reads", 1},
                                    {"kernel-writes", 1}, {"model", 0},
                                    {"vmm-l2", 1},        {"kept", 0},
                                    {"slow-host", 0},     {"longest-wait", 1000000000},
                                    {"integrated", 0}};
  std::set<std::string> hidden;
  std::map<std::string, int> calls;
  std::map<std::string, Failure> failures;
  bool has_failed = false;
  std::string broken;
  std::string record;
  void (*at_end)() = nullptr;
  void (*at_wait)() = nullptr;

  std::map<CUdeviceptr, std::size_t> reserved;
  std::map<CUdeviceptr, MappedRange> mapped;
  std::map<CUmemGenericAllocationHandle, Allocation> allocations;
  CUmemGenericAllocationHandle next_handle = 0x1000;
  std::set<CUexternalMemory> imported;
  std::map<CUdeviceptr, Buffer> buffers;
  std::map<void*, Registration> registered;
  std::map<CUdevice, CUcontext> primaries;
  std::set<CUcontext> contexts;  // that exist
  std::vector<CUcontext> ended;  // that somebody may still name
  std::map<std::thread::id, std::vector<CUcontext>> stacks;
  int pushed = 0;
  std::vector<Fill> fills;  // asked for, and not done yet
  std::vector<Work> busy;
  std::uint64_t last_work = 0;
  double modelled_ns = 0;  // what the work would have taken: see clock_model.cpp
  std::set<CUmodule> modules;
  std::set<CUevent> events;

  // What was asked back and not given, since a test wanted that call to fail: mappings, buffers,
  // external memory, registrations, modules, events. That it is in the way of later calls breaks no
  // rule.
  std::set<std::uint64_t> stuck;
  int stuck_contexts = 0;  // not popped, likewise
  bool outside = false;    // a push has failed, and none has worked since
};
State& state();
[[nodiscard]] inline bool is_stuck(CUdeviceptr thing) {
  return state().stuck.contains(thing);
}

[[nodiscard]] long knob(const std::string& name);
// The time that the modelled GPU takes, which the knob "model" has events tell.
void model_reading(CUdeviceptr from, std::size_t size, std::uint64_t passes);
void model_moving(std::size_t size);
void model_loads(CUdeviceptr from, std::uint64_t steps);
// Answers `result`, and remembers what the caller should not have done.
CUresult broken(const std::string& rule, CUresult result);
[[nodiscard]] int live(const State& all);

[[nodiscard]] CUcontext current();  // the calling thread's, or null
[[nodiscard]] std::vector<CUcontext>& stack();

// Does what was set, before anything that comes after it.
void finish_fills();
// Work begins there, which somebody must wait for before the memory goes.
void begin_work(CUdeviceptr start, std::size_t size);
[[nodiscard]] bool is_busy(CUdeviceptr start, std::size_t size);
// Whether the current context's device may use [at, at + size).
[[nodiscard]] bool is_accessible(CUdeviceptr at, std::size_t size);
// Does at once what the kernel of that name does. False where it would use memory that it may not.
[[nodiscard]] bool run_kernel(const std::string& name, const std::vector<std::uint64_t>& words);
// Whether there is such a kernel, of so many arguments.
[[nodiscard]] bool is_kernel(const std::string& name, std::size_t arguments);

enum class Needs { kNothing, kInit, kContext };

// One call, under the lock.
class Call {
 public:
  Call(const char* entry, Needs needs);
  // What to answer at once, or kSuccess.
  [[nodiscard]] CUresult refused() const { return refused_; }
  // What to answer after having done the work.
  [[nodiscard]] CUresult done(CUresult result = kSuccess) const;

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  CUresult refused_ = kSuccess;
  CUresult instead_ = kSuccess;
};

// The name after /memfd: of an open file, or what /proc says it is.
[[nodiscard]] std::string name_of_file(int descriptor);
[[nodiscard]] bool is_own_file(int descriptor);
[[nodiscard]] std::uint64_t inode_of(int descriptor);
[[nodiscard]] std::size_t length_of(int descriptor);

[[nodiscard]] inline void* address(CUdeviceptr pointer) {
  return reinterpret_cast<void*>(pointer);
}
[[nodiscard]] inline CUdeviceptr pointer(const void* address) {
  return reinterpret_cast<CUdeviceptr>(address);
}

}  // namespace carveout::fake_cuda
