// The C ABI: memory that is borrowed and mapped.

#include "c_api_opener.hpp"
#include "c_api_wall.hpp"
#include "carveout/carveout.h"
#include "client/carveout.hpp"

using carveout::DescriptorKind;
using carveout::c_api::give;
using carveout::c_api::is_usable;
using carveout::c_api::Uncancelled;
using carveout::client::Carveout;

struct carveout_handle : carveout::c_api::Handle<Carveout> {
  using Handle::Handle;
};

namespace {

// As the C ABI numbers them.
static_assert(static_cast<int>(DescriptorKind::kMemfd) == CARVEOUT_KIND_MEMFD);
static_assert(static_cast<int>(DescriptorKind::kDmaBuf) == CARVEOUT_KIND_DMA_BUF);
static_assert(static_cast<int>(DescriptorKind::kNvidiaFile) == CARVEOUT_KIND_NVIDIA_FILE);

}  // namespace

extern "C" {

const char* carveout_version(void) noexcept {
  return carveout::c_api::kVersion.data();
}

const char* carveout_status_name(int32_t status) noexcept {
  switch (status) {
    case CARVEOUT_OK:
      return "CARVEOUT_OK";
    case CARVEOUT_OFF:
      return "CARVEOUT_OFF";
    case CARVEOUT_ERROR_SYSTEM:
      return "CARVEOUT_ERROR_SYSTEM";
    case CARVEOUT_ERROR_INVALID:
      return "CARVEOUT_ERROR_INVALID";
    case CARVEOUT_ERROR_NOT_FOUND:
      return "CARVEOUT_ERROR_NOT_FOUND";
    case CARVEOUT_ERROR_EXHAUSTED:
      return "CARVEOUT_ERROR_EXHAUSTED";
    case CARVEOUT_ERROR_REFUSED:
      return "CARVEOUT_ERROR_REFUSED";
    case CARVEOUT_ERROR_TIMED_OUT:
      return "CARVEOUT_ERROR_TIMED_OUT";
    case CARVEOUT_ERROR_PROTOCOL:
      return "CARVEOUT_ERROR_PROTOCOL";
    case CARVEOUT_ERROR_CLOSED:
      return "CARVEOUT_ERROR_CLOSED";
    case CARVEOUT_ERROR_OUT_OF_HEAP:
      return "CARVEOUT_ERROR_OUT_OF_HEAP";
    case CARVEOUT_ERROR_INTERNAL:
      return "CARVEOUT_ERROR_INTERNAL";
    default:
      return "CARVEOUT_ERROR_?";
  }
}

carveout_status_t carveout_open(const carveout_options_t* options, carveout_t** handle,
                                carveout_error_t* error) noexcept {
  return carveout::c_api::open_handle<Carveout>("carveout_open()", options, handle, error);
}

carveout_status_t carveout_get_info(const carveout_t* handle, carveout_info_t* info) noexcept {
  if (handle == nullptr || !is_usable(info)) return CARVEOUT_ERROR_INVALID;
  const Carveout& carveout = handle->opened;
  carveout_info_t value{};
  value.bytes = carveout.size().count();
  value.device_pointer = carveout.mapping().device_pointer();
  value.host_pointer = carveout.mapping().host_pointer();
  value.source = static_cast<int32_t>(carveout.source());
  value.map = static_cast<int32_t>(carveout.mapping().strategy());
  value.kind = static_cast<int32_t>(carveout.kind());
  value.device = carveout.mapping().device().value_or(-1);
  value.lender_base = carveout.lender_base().count();
  value.source_name = name_of(carveout.source());
  value.map_name = name_of(carveout.mapping().strategy());
  value.description = carveout.description().c_str();
  value.why_not = carveout.why_not().c_str();
  give(value, info);
  return CARVEOUT_OK;
}

int carveout_watch_fd(const carveout_t* handle) noexcept {
  return handle == nullptr ? -1 : handle->opened.watch();
}

int carveout_is_lender_gone(const carveout_t* handle) noexcept {
  const Uncancelled uncancelled;
  return handle != nullptr && handle->opened.lender_gone() ? 1 : 0;
}

void carveout_after_fork_in_child(carveout_t* handle) noexcept {
  const Uncancelled uncancelled;  // async-signal-safe as of POSIX.1-2024, and in glibc
  if (handle != nullptr) handle->opened.abandon_in_child();
}

carveout_status_t carveout_close(carveout_t* handle, carveout_error_t* error) noexcept {
  return carveout::c_api::close_handle(handle, error);
}

}  // extern "C"
