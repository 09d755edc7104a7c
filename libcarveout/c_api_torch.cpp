// The C ABI: the allocator that PyTorch is given.

#include <pthread.h>

#include <atomic>
#include <memory>
#include <new>

#include "c_api_opener.hpp"
#include "c_api_wall.hpp"
#include "carveout/carveout.h"
#include "client/carveout.hpp"
#include "client/device_allocator.hpp"

using carveout::Result;
using carveout::c_api::answer;
using carveout::c_api::bad;
using carveout::c_api::give;
using carveout::c_api::is_usable;
using carveout::c_api::walled;
using carveout::client::Carveout;
using carveout::client::DeviceAllocator;

namespace {

std::atomic<DeviceAllocator*> made = nullptr;

// Never destroyed: its memory is in use until the process ends, and CUDA ends before it.
DeviceAllocator& allocator() {
  static DeviceAllocator* const instance = [] {
    auto only = std::make_unique<DeviceAllocator>(carveout::client::environment());
    made = only.get();
    // A child that runs on (a loader of data) would keep the lease when its parent has ended.
    if (::pthread_atfork(nullptr, nullptr, [] { made.load()->start_in_child(); }) != 0) {
      throw std::bad_alloc();  // the one thing that it fails for
    }
    return only.release();
  }();
  return *instance;
}

}  // namespace

extern "C" {

carveout_status_t carveout_torch_open(int32_t device, const carveout_options_t* options,
                                      carveout_error_t* error) noexcept {
  return walled(error, [&]() -> carveout_status_t {
    if (error != nullptr && !is_usable(error)) return CARVEOUT_ERROR_INVALID;
    const auto known = carveout::c_api::read(options);
    if (!known) return answer(known.error(), error);
    auto opening = carveout::c_api::opening_of(*known);
    if (!opening) return answer(opening.error(), error);
    if (opening->device && *opening->device != device) {
      return answer(bad("options", "device must be -1 or the one that it is to be opened for"),
                    error);
    }
    const auto is_on = [&]() -> Result<bool> {
      if (known->from_environment == 0) return true;
      return carveout::client::is_on(carveout::client::environment());
    };
    const auto open = [&](int its_device) {
      opening->device = its_device;
      return carveout::c_api::open<Carveout>(*known, *opening);
    };
    const auto opened = allocator().open(device, {is_on, open});
    if (!opened) {
      say(*opening, carveout::client::LogLevel::kError, opened.error().describe());
      return answer(opened.error(), error);
    }
    return answer(*opened ? CARVEOUT_OK : CARVEOUT_OFF, error);
  });
}

void* carveout_torch_alloc(size_t bytes, int device, struct CUstream_st* /*stream*/) noexcept {
  void* given = nullptr;
  (void)walled(nullptr, [&] {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): as CUDA's runtime has device pointers
    given = reinterpret_cast<void*>(allocator().allocate(bytes, device));
    return CARVEOUT_OK;
  });
  return given;
}

void carveout_torch_free(void* pointer, size_t /*bytes*/, int /*device*/,
                         struct CUstream_st* /*stream*/) noexcept {
  (void)walled(nullptr, [&] {
    allocator().free(reinterpret_cast<carveout::cuda::CUdeviceptr>(pointer));
    return CARVEOUT_OK;
  });
}

carveout_status_t carveout_torch_get_state(carveout_torch_state_t* state,
                                           carveout_error_t* error) noexcept {
  if (!is_usable(state)) return CARVEOUT_ERROR_INVALID;
  return walled(error, [&]() -> carveout_status_t {
    const DeviceAllocator::State now = allocator().state();
    carveout_torch_state_t value{};
    value.status = now.problem ? answer(*now.problem, error)
                               : answer(now.opened ? CARVEOUT_OK : CARVEOUT_OFF, error);
    value.tried = now.tried ? 1 : 0;
    value.device = now.device.value_or(-1);
    value.description = value.why_not = "";
    if (now.opened != nullptr) {
      value.source = static_cast<int32_t>(now.opened->source());
      value.map = static_cast<int32_t>(now.opened->mapping().strategy());
      value.kind = static_cast<int32_t>(now.opened->kind());
      value.description = now.opened->description().c_str();
      value.why_not = now.opened->why_not().c_str();
      value.device_pointer = now.opened->mapping().device_pointer();
    }
    value.bytes = now.carveout.region.count();
    value.in_use = now.carveout.in_use.count();
    value.peak = now.carveout.peak.count();
    value.largest = now.carveout.largest.count();
    value.waiting = now.waiting;
    value.carved = now.carved;
    value.fell_back = now.fell_back;
    value.failed = now.failed;
    value.refused = now.refused;
    give(value, state);
    return CARVEOUT_OK;
  });
}

}  // extern "C"
