// Contexts: which one, and making it current.

#include "base/text.hpp"
#include "cuda/driver.hpp"

namespace carveout::cuda {
Result<Context> Context::primary(DriverPointer driver, int device) {
  if (!driver->usable()) return Driver::unusable();
  const std::string what = cat("CUDA device ", device);
  CUdevice found = 0;
  if (const CUresult answer = driver->device_get_(&found, device); answer != kSuccess) {
    // The driver says kInvalidValue as well.
    Error error = driver->failed("cuDeviceGet", answer, what);
    if (answer == kInvalidValue) error.code = Code::kNotFound;
    return error;
  }
  CUcontext context = nullptr;
  if (const CUresult answer = driver->retain_(&context, found); answer != kSuccess) {
    return driver->failed("cuDevicePrimaryCtxRetain", answer, what);
  }
  Held<CUdevice> retained(driver, kPrimaryCtxRelease.name, driver->release_, found);
  return Context(std::move(driver), found, context, std::move(retained));
}

Result<Context> Context::current_or_primary(DriverPointer driver, std::optional<int> device) {
  if (!driver->usable()) return Driver::unusable();
  CUcontext current = nullptr;
  if (const CUresult answer = driver->get_current_(&current); answer != kSuccess) {
    return driver->failed("cuCtxGetCurrent", answer, "the current context");
  }
  if (current == nullptr) return primary(std::move(driver), device.value_or(0));
  CUdevice its = 0;
  if (const CUresult answer = driver->get_device_(&its); answer != kSuccess) {
    return driver->failed("cuCtxGetDevice", answer, "the current context");
  }
  CUdevice wanted = its;
  if (device && driver->device_get_(&wanted, *device) != kSuccess) wanted = -1;
  if (wanted != its) return primary(std::move(driver), *device);
  return Context(std::move(driver), its, current, {});
}

Entered::Entered(const Context& context, Undone* undone)
    : driver_(*context.driver_), undone_(undone) {
  if (!driver_.usable()) return;
  result_ = driver_.push_(context.context_);
  // Without it nothing could be given back, and a push that failed has changed nothing.
  if (result_ != kSuccess && undone_ != nullptr) result_ = driver_.push_(context.context_);
  if (undone_ != nullptr) undone_->note(driver_, kCtxPushCurrent.name, result_);
  entered_ = result_ == kSuccess;
}

Entered::~Entered() {
  if (!entered_ || !driver_.usable()) return;
  CUcontext popped = nullptr;
  // Where it fails, the calling thread keeps a context that it did not have.
  const CUresult answer = driver_.pop_(&popped);
  if (undone_ != nullptr) undone_->note(driver_, kCtxPopCurrent.name, answer);
}

}  // namespace carveout::cuda
