// The fake driver's modules, launches and events. What a kernel does is done when it is launched,
// and counts as being under way until somebody waits for it.

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string_view>
#include <utility>

#include "state.hpp"

namespace carveout::fake_cuda {
namespace {

constexpr unsigned kMostThreads = 256;  // of a block: what the kernels are made for

// The kernels that a text of PTX has, each with the number of its arguments; nothing where it is no
// such text. Looked at no closer than that.
std::vector<std::pair<std::string, std::size_t>> parse(const std::string& text) {
  std::vector<std::pair<std::string, std::size_t>> kernels;
  bool version = false;
  bool target = false;
  bool listing = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    std::string type;
    words >> word >> type;
    if (word.empty() || word.starts_with("//")) continue;
    if (!version && word != ".version") return {};
    version = true;
    target = target || word == ".target";
    if (word == ".visible" && type == ".entry") {
      std::string name;
      words >> name;
      if (!name.ends_with('(')) return {};
      name.pop_back();
      kernels.emplace_back(name, 0);
      listing = true;
    } else if (word == ".param" && listing) {
      if (type != ".u64") return {};
      ++kernels.back().second;
    } else if (word == ")") {
      listing = false;
    }
  }
  return target ? kernels : decltype(kernels)();
}

const OpaqueFunction* find(CUfunction function) {
  for (const CUmodule module : state().modules) {
    for (const auto& one : module->functions) {
      if (one.get() == function) return one.get();
    }
  }
  return nullptr;
}

bool is_good(CUevent event) {
  return state().events.contains(event) && event->context == current();
}

bool is_done(CUevent event) {
  return std::none_of(state().busy.begin(), state().busy.end(),
                      [event](const Work& work) { return work.number <= event->after; });
}

}  // namespace
}  // namespace carveout::fake_cuda

using namespace carveout::fake_cuda;  // NOLINT(google-build-using-namespace): its own

FAKE_CUDA_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  const Call call("cuModuleLoadData", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  const auto kernels = parse(static_cast<const char*>(image));
  if (kernels.empty()) return kInvalidPtx;
  auto loaded = std::make_unique<OpaqueModule>();
  loaded->context = current();
  for (const auto& [name, arguments] : kernels) {
    loaded->functions.push_back(
        std::make_unique<OpaqueFunction>(OpaqueFunction{loaded.get(), name, arguments}));
  }
  *module = loaded.release();
  state().modules.insert(*module);
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuModuleUnload(CUmodule module) {
  const Call call("cuModuleUnload", Needs::kContext);
  if (call.refused() != kSuccess) {
    state().stuck.insert(pointer(module));
    return call.refused();
  }
  if (!state().modules.contains(module)) return broken("no such module to unload", kInvalidHandle);
  if (module->context != current()) return broken("another context's module", kInvalidContext);
  state().modules.erase(module);
  delete module;
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module,
                                              const char* name) {
  const Call call("cuModuleGetFunction", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  if (!state().modules.contains(module)) return broken("no such module", kInvalidHandle);
  for (const auto& one : module->functions) {
    if (one->name != name) continue;
    *function = one.get();
    return call.done();
  }
  return kNoSuchName;
}

FAKE_CUDA_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned blocks, unsigned blocks_y,
                                         unsigned blocks_z, unsigned threads, unsigned threads_y,
                                         unsigned threads_z, unsigned shared, CUstream stream,
                                         void** arguments, void** extra) {
  const Call call("cuLaunchKernel", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  const OpaqueFunction* const known = find(function);
  if (known == nullptr) return broken("no such kernel to launch", kInvalidHandle);
  if (known->module->context != current()) return broken("another context's", kInvalidContext);
  if (blocks == 0 || threads == 0 || threads > kMostThreads || blocks_y != 1 || blocks_z != 1 ||
      threads_y != 1 || threads_z != 1 || shared != 0 || stream != nullptr || extra != nullptr) {
    return broken("a launch of a wrong size", kInvalidValue);
  }
  if (!is_kernel(known->name, known->arguments)) {
    return broken("a kernel launched that is not known", kInvalidHandle);
  }
  std::vector<std::uint64_t> words;
  for (std::size_t i = 0; i < known->arguments; ++i)
    words.push_back(*static_cast<const std::uint64_t*>(arguments[i]));
  finish_fills();
  if (!run_kernel(known->name, words)) {
    return broken("memory used by a kernel that it may not use", kIllegalAddress);
  }
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuEventCreate(CUevent* event, unsigned flags) {
  const Call call("cuEventCreate", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  if (flags != 0) return broken("an event of wrong flags", kInvalidValue);
  *event = new carveout::cuda::OpaqueEvent{current(), false, {}, 0, 0};
  state().events.insert(*event);
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  const Call call("cuEventDestroy", Needs::kContext);
  if (call.refused() != kSuccess) {
    state().stuck.insert(pointer(event));
    return call.refused();
  }
  if (!is_good(event)) return broken("no such event to destroy", kInvalidHandle);
  state().events.erase(event);
  delete event;
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  const Call call("cuEventRecord", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  if (!is_good(event) || stream != nullptr)
    return broken("no such event to record", kInvalidHandle);
  finish_fills();
  event->recorded = true;
  event->after = state().last_work;
  event->at = std::chrono::steady_clock::now();
  event->modelled_ns = state().modelled_ns;
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuEventSynchronize(CUevent event) {
  const Call call("cuEventSynchronize", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  if (!is_good(event)) return broken("no such event to wait for", kInvalidHandle);
  std::erase_if(state().busy, [event](const Work& work) { return work.number <= event->after; });
  return call.done();
}

// With the knob "slow-host", what is asked for has always been passed already.
FAKE_CUDA_EXPORT CUresult cuEventQuery(CUevent event) {
  const Call call("cuEventQuery", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  if (!is_good(event) || !event->recorded) {
    return broken("no such event to ask for", kInvalidHandle);
  }
  return knob("slow-host") != 0 ? call.done() : kNotReady;
}

FAKE_CUDA_EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  const Call call("cuEventElapsedTime", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  if (!is_good(start) || !is_good(end) || !start->recorded || !end->recorded) {
    return broken("the time between events that were not", kInvalidHandle);
  }
  if (!is_done(start) || !is_done(end)) return kNotReady;
  if (knob("model") != 0) {
    // In whole nanoseconds: equal work takes equal time.
    *milliseconds = static_cast<float>(std::round(end->modelled_ns - start->modelled_ns) / 1e6);
    return call.done();
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->at - start->at).count();
  return call.done();
}
