#include "state.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "base/text.hpp"
#include "fake_cuda.hpp"

namespace carveout::fake_cuda {
namespace {

const char* environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value != nullptr ? value : "";
}

bool strict() {
  return std::string_view(environment("FAKE_CUDA_STRICT")) == "1";
}

[[noreturn]] void die(const std::string& text) {
  std::fprintf(stderr, "fake libcuda.so.1: %s\n", text.c_str());
  ::_exit(kBroken);
}

// "name:1,other:2", with any separator.
void read_pairs(const char* text, char separator,
                const std::function<void(const std::string&, long)>& use) {
  std::istringstream stream{std::string(text)};
  for (std::string pair; std::getline(stream, pair, ',');) {
    const std::size_t at = pair.find(separator);
    if (at != std::string::npos) use(pair.substr(0, at), std::atol(pair.c_str() + at + 1));
  }
}

// What it really is: nvidia_file.cpp may have a say in fstat().
bool look_at(int descriptor, struct stat* status) {
  return ::stat(cat("/proc/self/fd/", descriptor).c_str(), status) == 0;
}

// The process's end, unless it is by _exit().
[[gnu::destructor]] void end() {
  State& all = state();
  if (all.process != ::getpid()) return;
  all.exiting = true;
  if (strict() && live(all) > 0) die(cat(live(all), " things were not given back"));
}

}  // namespace

State& state() {
  // Never destroyed: calls after the end must be noticed.
  static State& all = []() -> State& {
    State* const made = new State;
    read_pairs(environment("FAKE_CUDA_FAIL"), ':', [made](const std::string& entry, long nth) {
      made->failures[entry] = {static_cast<int>(nth), 1, kOperatingSystem, false};
    });
    read_pairs(environment("FAKE_CUDA_SET"), '=',
               [made](const std::string& name, long value) { made->knobs[name] = value; });
    return *made;
  }();
  return all;
}

long knob(const std::string& name) {
  return state().knobs[name];
}

CUresult broken(const std::string& rule, CUresult result) {
  if (strict()) die(rule);
  state().broken += rule + "\n";
  return result;
}

int live(const State& all) {
  std::size_t count = all.reserved.size() + all.mapped.size() + all.allocations.size() +
                      all.imported.size() + all.buffers.size() + all.registered.size() +
                      all.modules.size() + all.events.size();
  for (const CUcontext context : all.contexts) {
    if (context->primary) count += static_cast<std::size_t>(context->retained);
  }
  return static_cast<int>(count) + all.pushed;
}

std::vector<CUcontext>& stack() {
  // Not thread_local: leak checkers stumble over that in libraries that were loaded so late.
  return state().stacks[std::this_thread::get_id()];
}

CUcontext current() {
  return stack().empty() ? nullptr : stack().back();
}

Call::Call(const char* entry, Needs needs) : lock_(state().mutex) {
  State& all = state();
  ++all.calls[entry];
  ++all.calls[""];
  all.record += cat(entry, "\n");
  if (all.exiting) die(cat(entry, " after the driver's end"));
  if (all.process != 0 && all.process != ::getpid()) {
    refused_ = broken(cat(entry, " in a forked child"), kNotInitialized);
    return;
  }
  if (needs != Needs::kNothing && all.process == 0) {
    refused_ = broken(cat(entry, " before cuInit"), kNotInitialized);
    return;
  }
  if (const auto failure = all.failures.find(entry); failure != all.failures.end()) {
    Failure& how = failure->second;
    if (--how.nth <= 0 && how.nth > -how.times) {
      all.has_failed = true;
      ++how.failed;
      (how.performed ? instead_ : refused_) = how.result;
      if (refused_ != kSuccess) return;
    }
  }
  if (needs == Needs::kContext && (current() == nullptr || !all.contexts.contains(current()))) {
    refused_ = kInvalidContext;
    if (!all.outside) (void)broken(cat(entry, " without a context"), kInvalidContext);
  }
}

CUresult Call::done(CUresult result) const {
  return instead_ != kSuccess ? instead_ : result;
}

std::string name_of_file(int descriptor) {
  std::string target(200, '\0');
  const ssize_t length =
      ::readlink(cat("/proc/self/fd/", descriptor).c_str(), target.data(), target.size());
  target.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  constexpr std::string_view kMemfd = "/memfd:";
  constexpr std::string_view kDeleted = " (deleted)";
  if (!target.starts_with(kMemfd) || !target.ends_with(kDeleted)) return target;
  return target.substr(kMemfd.size(), target.size() - kMemfd.size() - kDeleted.size());
}

bool is_own_file(int descriptor) {
  return name_of_file(descriptor) == kOwnName;
}

std::uint64_t inode_of(int descriptor) {
  struct stat status {};
  return look_at(descriptor, &status) ? status.st_ino : 0;
}

std::size_t length_of(int descriptor) {
  struct stat status {};
  return look_at(descriptor, &status) ? static_cast<std::size_t>(status.st_size) : 0;
}

}  // namespace carveout::fake_cuda

using carveout::fake_cuda::state;
using Lock = std::lock_guard<std::recursive_mutex>;

FAKE_CUDA_EXPORT void fake_cuda_fail_nth(const char* entry, int nth, int result, int performed) {
  const Lock lock(state().mutex);
  fake_cuda_fail_from(entry, nth, 1, result, performed);
}

FAKE_CUDA_EXPORT void fake_cuda_fail_from(const char* entry, int nth, int times, int result,
                                          int performed) {
  const Lock lock(state().mutex);
  state().failures[entry] = {nth, times, result, performed != 0};
  state().has_failed = false;
}

FAKE_CUDA_EXPORT int fake_cuda_failed(const char* entry) {
  const Lock lock(state().mutex);
  const auto found = state().failures.find(entry);
  return found != state().failures.end() && found->second.failed == found->second.times ? 1 : 0;
}

FAKE_CUDA_EXPORT int fake_cuda_has_failed() {
  const Lock lock(state().mutex);
  return state().has_failed ? 1 : 0;
}

FAKE_CUDA_EXPORT void fake_cuda_set(const char* knob, long value) {
  const Lock lock(state().mutex);
  state().knobs.at(knob) = value;
}

FAKE_CUDA_EXPORT void fake_cuda_hide(const char* entry) {
  const Lock lock(state().mutex);
  state().hidden.insert(entry);
}

FAKE_CUDA_EXPORT int fake_cuda_live() {
  const Lock lock(state().mutex);
  return carveout::fake_cuda::live(state());
}

FAKE_CUDA_EXPORT int fake_cuda_calls(const char* entry) {
  const Lock lock(state().mutex);
  return state().calls[entry];
}

FAKE_CUDA_EXPORT const char* fake_cuda_take_record() {
  const Lock lock(state().mutex);
  static std::string& taken = *new std::string;
  taken = std::exchange(state().record, "");
  return taken.c_str();
}

FAKE_CUDA_EXPORT void fake_cuda_take_everything_back() {
  using carveout::fake_cuda::address;
  carveout::fake_cuda::State& all = state();
  const Lock lock(all.mutex);
  for (const auto& [start, size] : all.reserved)
    ::munmap(address(start), size);  // and what is mapped in it
  for (const auto& [start, buffer] : all.buffers)
    ::munmap(address(start), buffer.size);
  for (const auto& [start, registration] : all.registered) {
    if (registration.alias != nullptr) ::munmap(registration.alias, registration.size);
  }
  for (const auto memory : all.imported)
    delete memory;
  for (const auto module : all.modules)
    delete module;
  for (const auto event : all.events)
    delete event;
  for (const auto& [device, context] : all.primaries)
    all.contexts.erase(context), all.ended.push_back(context);
  all.reserved.clear(), all.mapped.clear(), all.allocations.clear(), all.imported.clear();
  all.buffers.clear(), all.registered.clear(), all.primaries.clear(), all.stuck.clear();
  all.modules.clear(), all.events.clear(), all.fills.clear(), all.busy.clear();
  all.stuck_contexts = 0;
}

FAKE_CUDA_EXPORT void fake_cuda_at_end(void (*call)()) {
  const Lock lock(state().mutex);
  state().at_end = call;
}

FAKE_CUDA_EXPORT void fake_cuda_at_wait(void (*call)()) {
  const Lock lock(state().mutex);
  state().at_wait = call;
}

FAKE_CUDA_EXPORT const char* fake_cuda_broken_rules() {
  const Lock lock(state().mutex);
  return state().broken.c_str();
}

FAKE_CUDA_EXPORT void* fake_cuda_make_context(int device) {
  const Lock lock(state().mutex);
  auto* const context = new carveout::cuda::OpaqueContext{device, false, 0};
  state().contexts.insert(context);
  return context;
}
