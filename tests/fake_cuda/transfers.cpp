// What the fake driver does with memory when it is told to: sets and copies it, in order. Work is
// done when something waits for it or is queued behind it; until somebody waits it counts as being
// under way.

#include <algorithm>
#include <cstring>
#include <utility>

#include "gpu/calls.hpp"
#include "state.hpp"

namespace carveout::fake_cuda {
namespace {

void carry_out(const Fill& fill) {
  void* const place = address(fill.start);
  if ((fill.start | fill.size) % sizeof fill.word != 0) {
    std::memset(place, static_cast<int>(fill.word & 0xFFU), fill.size);
  } else {
    std::fill_n(static_cast<std::uint32_t*>(place), fill.size / sizeof fill.word, fill.word);
  }
}

void begin_fill(const Fill& fill) {
  begin_work(fill.start, fill.size);
  state().fills.push_back(fill);
}

void wait_for_all() {
  finish_fills();
  state().busy.clear();
}

}  // namespace

void finish_fills() {
  for (const Fill& fill : state().fills)
    carry_out(fill);
  state().fills.clear();
}

void begin_work(CUdeviceptr start, std::size_t size) {
  state().busy.push_back({start, size, ++state().last_work});
}

bool is_busy(CUdeviceptr start, std::size_t size) {
  return std::any_of(state().busy.begin(), state().busy.end(), [&](const Work& work) {
    return work.start < start + size && start < work.start + work.size;
  });
}

bool is_accessible(CUdeviceptr at, std::size_t size) {
  const State& all = state();
  for (const auto& [start, buffer] : all.buffers) {
    if (at >= start && at + size <= start + buffer.size) return buffer.context == current();
  }
  for (const auto& [host, registration] : all.registered) {
    const CUdeviceptr start = pointer(registration.alias);
    if (registration.alias != nullptr && at >= start && at + size <= start + registration.size) {
      return registration.context == current();
    }
  }
  while (size > 0) {
    const auto after = all.mapped.upper_bound(at);
    if (after == all.mapped.begin()) return false;
    const auto& [start, range] = *std::prev(after);
    if (at >= start + range.size || !range.access.contains(current()->device)) return false;
    const std::size_t here = std::min<std::size_t>(size, start + range.size - at);
    at += here;
    size -= here;
  }
  return true;
}

}  // namespace carveout::fake_cuda

using namespace carveout::fake_cuda;  // NOLINT(google-build-using-namespace): its own

FAKE_CUDA_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr start, unsigned char byte, std::size_t size) {
  const Call call("cuMemsetD8", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  if (!is_accessible(start, size)) return broken("memory set without access", kInvalidValue);
  begin_fill({start, size, 0x01010101U * byte});
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr start, unsigned word, std::size_t count) {
  const Call call("cuMemsetD32", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  const std::size_t size = count * sizeof word;
  if (start % sizeof word != 0) return broken("words set where none can be", kInvalidValue);
  if (!is_accessible(start, size)) return broken("memory set without access", kInvalidValue);
  begin_fill({start, size, word});
  return call.done();
}

// In order behind what was set before.
FAKE_CUDA_EXPORT CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t size) {
  const Call call("cuMemcpyDtoH", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  if (!is_accessible(from, size)) return broken("memory copied without access", kInvalidValue);
  wait_for_all();
  if (knob("copy") != 0) std::memcpy(to, address(from), size);
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t size) {
  const Call call("cuMemcpyHtoD", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  if (!is_accessible(to, size)) return broken("memory copied without access", kInvalidValue);
  wait_for_all();
  std::memcpy(address(to), from, size);
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t size,
                                               CUstream stream) {
  const Call call("cuMemcpyDtoDAsync", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  if (stream != nullptr) return broken("a stream that there is not", kInvalidHandle);
  if (!is_accessible(to, size) || !is_accessible(from, size)) {
    return broken("memory copied without access", kInvalidValue);
  }
  if (from < to + size && to < from + size) return broken("overlapping copies", kInvalidValue);
  finish_fills();
  begin_work(to, size);
  begin_work(from, size);
  model_moving(size);
  if (knob("device-copy") != 0) std::memcpy(address(to), address(from), size);
  return call.done();
}

FAKE_CUDA_EXPORT CUresult cuCtxSynchronize() {
  void (*meanwhile)() = nullptr;
  {
    const std::lock_guard<std::recursive_mutex> lock(state().mutex);
    meanwhile = std::exchange(state().at_wait, nullptr);
  }
  if (meanwhile != nullptr) meanwhile();  // may call the driver, and takes locks of its own
  const Call call("cuCtxSynchronize", Needs::kContext);
  if (call.refused() != kSuccess) return call.refused();
  wait_for_all();
  return call.done();
}
