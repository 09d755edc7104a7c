#pragma once

// The wall between the C ABI and all else: structures in and out, and no exception passes.

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "carveout/carveout.h"

namespace carveout::c_api {

// The size that a structure had in the first version that had it: a caller's is never smaller.
template <typename Struct>
inline constexpr std::size_t kFirstSize = 0;
template <>
inline constexpr std::size_t kFirstSize<carveout_options_t> = 96;
template <>
inline constexpr std::size_t kFirstSize<carveout_error_t> = 1080;
template <>
inline constexpr std::size_t kFirstSize<carveout_info_t> = 88;
template <>
inline constexpr std::size_t kFirstSize<carveout_planes_statistics_t> = 80;
template <>
inline constexpr std::size_t kFirstSize<carveout_blocks_statistics_t> = 72;
template <>
inline constexpr std::size_t kFirstSize<carveout_pages_info_t> = 64;
template <>
inline constexpr std::size_t kFirstSize<carveout_torch_state_t> = 128;
static_assert(sizeof(carveout_options_t) == kFirstSize<carveout_options_t>);
static_assert(sizeof(carveout_error_t) == kFirstSize<carveout_error_t>);
static_assert(sizeof(carveout_info_t) == kFirstSize<carveout_info_t>);
static_assert(sizeof(carveout_planes_statistics_t) == kFirstSize<carveout_planes_statistics_t>);
static_assert(sizeof(carveout_blocks_statistics_t) == kFirstSize<carveout_blocks_statistics_t>);
static_assert(sizeof(carveout_pages_info_t) == kFirstSize<carveout_pages_info_t>);
static_assert(sizeof(carveout_torch_state_t) == kFirstSize<carveout_torch_state_t>);

// Structures begin with struct_size.
template <typename Struct>
bool is_usable(const Struct* given) {
  constexpr std::size_t kMost = 65536;  // no version's: the field was not set
  return given != nullptr && given->struct_size >= kFirstSize<Struct> &&
         given->struct_size <= kMost;
}

// As much of it as the caller knows. What only the caller knows becomes zero.
template <typename Struct>
void give(Struct value, Struct* to) {
  const std::size_t size = to->struct_size;
  value.struct_size = size;
  std::memcpy(to, &value, std::min(size, sizeof value));
  if (size > sizeof value) {
    std::memset(reinterpret_cast<char*>(to) + sizeof value, 0, size - sizeof value);
  }
}

// Writes the error, if there is a usable one, and returns its status.
carveout_status_t answer(carveout_status_t status, carveout_error_t* error,
                         std::string_view setting = {}, std::string_view message = {},
                         int number = 0, int cuda_result = 0);
carveout_status_t answer(const Error& problem, carveout_error_t* error);

inline Error bad(const char* context, std::string message) {
  return Error{Code::kInvalid, 0, context, std::move(message)};
}

// The calling thread cannot be cancelled: what would unwind it could not pass the wall.
class Uncancelled {
 public:
  Uncancelled() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;
  Uncancelled(Uncancelled&&) = delete;
  Uncancelled& operator=(Uncancelled&&) = delete;
  ~Uncancelled() { ::pthread_setcancelstate(before_, nullptr); }

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// The wall. Nothing here allocates.
template <typename Body>
carveout_status_t walled(carveout_error_t* error, const Body& body) noexcept {
  const Uncancelled uncancelled;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return answer(CARVEOUT_ERROR_OUT_OF_HEAP, error, {}, "this process has no memory left");
  } catch (const std::exception& problem) {
    return answer(CARVEOUT_ERROR_INTERNAL, error, {}, problem.what());
  } catch (...) {
    return answer(CARVEOUT_ERROR_INTERNAL, error, {}, "an unknown exception");
  }
}

}  // namespace carveout::c_api
