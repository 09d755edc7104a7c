// The C ABI: memory that is borrowed and imported, for callers that map it themselves.

#include <type_traits>

#include "c_api_opener.hpp"
#include "c_api_wall.hpp"
#include "carveout/carveout.h"
#include "client/pages.hpp"

using carveout::c_api::give;
using carveout::c_api::is_usable;
using carveout::c_api::Uncancelled;
using carveout::client::Pages;

struct carveout_pages : carveout::c_api::Handle<Pages> {
  using Handle::Handle;
};

extern "C" {

carveout_status_t carveout_pages_open(const carveout_options_t* options, carveout_pages_t** pages,
                                      carveout_error_t* error) noexcept {
  return carveout::c_api::open_handle<Pages>("carveout_pages_open()", options, pages, error);
}

carveout_status_t carveout_pages_get_info(const carveout_pages_t* pages,
                                          carveout_pages_info_t* info) noexcept {
  if (pages == nullptr || !is_usable(info)) return CARVEOUT_ERROR_INVALID;
  const carveout::cuda::Pages& imported = pages->opened.imported();
  carveout_pages_info_t value{};
  value.count = imported.handles().size();
  value.page_bytes = imported.page().count();
  static_assert(sizeof(carveout::cuda::CUmemGenericAllocationHandle) == sizeof(uint64_t));
  value.handles = reinterpret_cast<const uint64_t*>(imported.handles().data());
  value.lender_base = pages->opened.lender_base().count();
  value.source = static_cast<int32_t>(pages->opened.source());
  value.device = imported.device();
  value.source_name = name_of(pages->opened.source());
  value.description = pages->opened.description().c_str();
  give(value, info);
  return CARVEOUT_OK;
}

int carveout_pages_watch_fd(const carveout_pages_t* pages) noexcept {
  return pages == nullptr ? -1 : pages->opened.watch();
}

int carveout_pages_is_lender_gone(const carveout_pages_t* pages) noexcept {
  const Uncancelled uncancelled;
  return pages != nullptr && pages->opened.lender_gone() ? 1 : 0;
}

void carveout_pages_after_fork_in_child(carveout_pages_t* pages) noexcept {
  const Uncancelled uncancelled;
  if (pages != nullptr) pages->opened.abandon_in_child();
}

carveout_status_t carveout_pages_close(carveout_pages_t* pages, carveout_error_t* error) noexcept {
  return carveout::c_api::close_handle(pages, error);
}

}  // extern "C"
