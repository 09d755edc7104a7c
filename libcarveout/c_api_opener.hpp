#pragma once

// What the C ABI's openers have in common.

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/result.hpp"
#include "c_api_wall.hpp"
#include "carveout/carveout.h"
#include "client/opening.hpp"
#include "client/settings.hpp"

namespace carveout::c_api {

// Of the header and the library: "0.1.0".
extern const std::string_view kVersion;

// The options as this version knows them (of NULL: the environment's), or what is wrong with what
// was given.
Result<carveout_options_t> read(const carveout_options_t* given);

// Of what no row says, where there are any.
Result<client::Settings> settings_of(const carveout_options_t& options, const client::Lookup& rows);

Result<client::Opening> opening_of(const carveout_options_t& options);

// By the environment where the options say so. Nothing: off.
template <typename Opened>
Result<std::optional<Opened>> open(const carveout_options_t& options,
                                   const client::Opening& opening) {
  const bool from_environment = options.from_environment != 0;
  const auto lookup = client::environment();
  if (from_environment) {
    const auto on = client::is_on(lookup);
    if (!on) return on.error();
    if (!*on) return std::optional<Opened>();
  }
  const auto settings = settings_of(options, from_environment ? lookup : client::Lookup());
  if (!settings) return settings.error();
  if (from_environment) return Opened::open_as_set(lookup, opening, *settings);
  auto opened = Opened::open(*settings, opening);
  if (!opened) return std::move(opened).error();
  return std::optional<Opened>(*std::move(opened));
}

// What a handle of the C ABI is: what was opened, and with what, for its log.
template <typename Opened>
struct Handle {
  Handle(Opened with, client::Opening how) : opened(std::move(with)), opening(std::move(how)) {}
  Opened opened;
  client::Opening opening;
};

// An opener, whose name is `call`: *handle is new, or null after every answer but CARVEOUT_OK.
template <typename Opened, typename Handle>
carveout_status_t open_handle(const char* call, const carveout_options_t* options, Handle** handle,
                              carveout_error_t* error) noexcept {
  if (handle != nullptr) *handle = nullptr;
  return walled(error, [&]() -> carveout_status_t {
    if (handle == nullptr) return answer(bad(call, "handle must not be NULL"), error);
    if (error != nullptr && !is_usable(error)) return CARVEOUT_ERROR_INVALID;
    const auto known = read(options);
    if (!known) return answer(known.error(), error);
    auto opening = opening_of(*known);
    if (!opening) return answer(opening.error(), error);
    auto opened = open<Opened>(*known, *opening);
    if (!opened) {
      // Whole, where the caller's structure may have to cut it.
      say(*opening, client::LogLevel::kError, opened.error().describe());
      return answer(opened.error(), error);
    }
    if (!*opened) return answer(CARVEOUT_OFF, error);
    *handle = std::make_unique<Handle>(**std::move(opened), *std::move(opening)).release();
    return answer(CARVEOUT_OK, error);
  });
}

// Its end. The handle is gone, whatever is returned.
template <typename Handle>
carveout_status_t close_handle(Handle* handle, carveout_error_t* error) noexcept {
  if (handle == nullptr) return answer(CARVEOUT_OK, error);
  const Uncancelled uncancelled;
  const carveout_status_t status = walled(error, [&]() -> carveout_status_t {
    const auto closed = handle->opened.close();
    if (closed) return answer(CARVEOUT_OK, error);
    say(handle->opening, client::LogLevel::kWarning, closed.error().describe());
    return answer(closed.error(), error);
  });
  delete handle;
  return status;
}

}  // namespace carveout::c_api
