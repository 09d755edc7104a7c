// The C ABI: memory that is borrowed and mapped.

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/text.hpp"
#include "c_api_wall.hpp"
#include "carveout/carveout.h"
#include "client/carveout.hpp"

using carveout::Bytes;
using carveout::cat;
using carveout::DescriptorKind;
using carveout::Error;
using carveout::MapStrategy;
using carveout::Result;
using carveout::c_api::answer;
using carveout::c_api::bad;
using carveout::c_api::give;
using carveout::c_api::is_usable;
using carveout::c_api::Uncancelled;
using carveout::c_api::walled;
using carveout::client::Carveout;
using carveout::client::LogLevel;
using carveout::client::Opening;
using carveout::client::Settings;
using carveout::client::SourceKind;

struct carveout_handle {
  carveout_handle(Carveout opened, Opening with)
      : carveout(std::move(opened)), opening(std::move(with)) {}
  Carveout carveout;
  Opening opening;  // for its log
};

namespace {

#define CARVEOUT_TEXT(number) #number
#define CARVEOUT_VERSION_OF(major, minor, patch) \
  CARVEOUT_TEXT(major) "." CARVEOUT_TEXT(minor) "." CARVEOUT_TEXT(patch)
constexpr std::string_view kHeaderVersion =
    CARVEOUT_VERSION_OF(CARVEOUT_VERSION_MAJOR, CARVEOUT_VERSION_MINOR, CARVEOUT_VERSION_PATCH);
#ifdef CARVEOUT_PROJECT_VERSION
static_assert(kHeaderVersion == CARVEOUT_PROJECT_VERSION, "carveout.h is of another version");
#endif

// The options as this version knows them, or what is wrong with what was given.
Result<carveout_options_t> read(const carveout_options_t* given) {
  carveout_options_t options{};
  (void)carveout_options_init(&options, sizeof options);
  if (given == nullptr) {
    options.from_environment = 1;
    return options;
  }
  if (!is_usable(given)) return bad("options", "struct_size is not set");
  const std::size_t size = given->struct_size;
  const char* const bytes = reinterpret_cast<const char*>(given);
  for (std::size_t at = sizeof options; at < size; ++at) {
    if (bytes[at] != 0) {
      return bad("options", cat("ask for what this version (", kHeaderVersion, ") does not have"));
    }
  }
  std::memcpy(&options, given, std::min(size, sizeof options));
  if (options.reserved != 0) return bad("options", "reserved must be 0");
  return options;
}

// Of what no row says, where there are any.
Result<Settings> settings_of(const carveout_options_t& options,
                             const carveout::client::Lookup& rows) {
  Settings settings;
  const auto row = [&rows](const char* name) { return rows ? rows(name) : std::nullopt; };
  if (!row("CARVEOUT_SOURCE")) {
    if (options.source < CARVEOUT_SOURCE_DAEMON || options.source > CARVEOUT_SOURCE_CUDA) {
      return bad("CARVEOUT_SOURCE", "must be a carveout_source_t");
    }
    settings.source = static_cast<SourceKind>(options.source);
  }
  if (!row("CARVEOUT_MAP")) {
    if (options.map < CARVEOUT_MAP_AUTO || options.map > CARVEOUT_MAP_HOST) {
      return bad("CARVEOUT_MAP", "must be a carveout_map_t");
    }
    settings.map = static_cast<MapStrategy>(options.map);
  }
  settings.size = Bytes(options.bytes);
  settings.timeout = std::chrono::milliseconds(options.timeout_ms);
  if (options.socket_path != nullptr) settings.socket = options.socket_path;
  if (options.key_file != nullptr) settings.key_file = options.key_file;
  if (options.drm_card != nullptr) settings.card = options.drm_card;
  if (options.heap != nullptr) settings.heap = options.heap;
  const bool daemon =
      row("CARVEOUT_SOURCE").value_or(name_of(settings.source)) == name_of(SourceKind::kDaemon);
  const bool set = row("CARVEOUT_KEY") || row("CARVEOUT_KEY_FILE");
  if (options.key != nullptr && daemon && !set) {
    auto key = carveout::wire::Key::from(options.key);
    if (!key) return bad("CARVEOUT_KEY", key.error().message);
    settings.key = *key;
  }
  return settings;
}

Result<Opening> opening_of(const carveout_options_t& options) {
  Opening opening;
  if (options.device < -1) return bad("options", "device must be -1 or a device's number");
  if (options.device >= 0) opening.device = options.device;
  if (options.log != nullptr) {
    opening.log = [call = options.log, context = options.log_context](LogLevel level,
                                                                      const std::string& line) {
      call(context, static_cast<int32_t>(level), line.c_str());
    };
  }
  return opening;
}

Result<std::optional<Carveout>> open(const carveout_options_t& options, const Opening& opening) {
  const bool from_environment = options.from_environment != 0;
  const auto lookup = carveout::client::environment();
  if (from_environment) {
    const auto on = carveout::client::is_on(lookup);
    if (!on) return on.error();
    if (!*on) return std::optional<Carveout>();
  }
  const auto settings =
      settings_of(options, from_environment ? lookup : carveout::client::Lookup());
  if (!settings) return settings.error();
  if (from_environment) return Carveout::open_as_set(lookup, opening, *settings);
  auto carveout = Carveout::open(*settings, opening);
  if (!carveout) return std::move(carveout).error();
  return std::optional<Carveout>(*std::move(carveout));
}

// As the C ABI numbers them.
static_assert(static_cast<int>(LogLevel::kError) == CARVEOUT_LOG_ERROR);
static_assert(static_cast<int>(LogLevel::kWarning) == CARVEOUT_LOG_WARNING);
static_assert(static_cast<int>(LogLevel::kInfo) == CARVEOUT_LOG_INFO);
static_assert(static_cast<int>(SourceKind::kDaemon) == CARVEOUT_SOURCE_DAEMON);
static_assert(static_cast<int>(SourceKind::kDrm) == CARVEOUT_SOURCE_DRM);
static_assert(static_cast<int>(SourceKind::kDmaHeap) == CARVEOUT_SOURCE_DMA_HEAP);
static_assert(static_cast<int>(SourceKind::kMemfd) == CARVEOUT_SOURCE_MEMFD);
static_assert(static_cast<int>(SourceKind::kCuda) == CARVEOUT_SOURCE_CUDA);
static_assert(static_cast<int>(MapStrategy::kAuto) == CARVEOUT_MAP_AUTO);
static_assert(static_cast<int>(MapStrategy::kVmm) == CARVEOUT_MAP_VMM);
static_assert(static_cast<int>(MapStrategy::kExternal) == CARVEOUT_MAP_EXTERNAL);
static_assert(static_cast<int>(MapStrategy::kRegister) == CARVEOUT_MAP_REGISTER);
static_assert(static_cast<int>(MapStrategy::kHost) == CARVEOUT_MAP_HOST);
static_assert(static_cast<int>(DescriptorKind::kMemfd) == CARVEOUT_KIND_MEMFD);
static_assert(static_cast<int>(DescriptorKind::kDmaBuf) == CARVEOUT_KIND_DMA_BUF);
static_assert(static_cast<int>(DescriptorKind::kNvidiaFile) == CARVEOUT_KIND_NVIDIA_FILE);

}  // namespace

extern "C" {

const char* carveout_version(void) noexcept {
  return kHeaderVersion.data();
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

carveout_status_t carveout_options_init(carveout_options_t* options, size_t struct_size) noexcept {
  if (options == nullptr) return CARVEOUT_ERROR_INVALID;
  carveout_options_t asked{};
  asked.struct_size = struct_size;
  if (!is_usable(&asked)) return CARVEOUT_ERROR_INVALID;
  carveout_options_t defaults{};
  defaults.source = CARVEOUT_SOURCE_DAEMON;
  defaults.map = CARVEOUT_MAP_AUTO;
  defaults.device = -1;
  defaults.bytes = carveout::mib(1792).count();
  defaults.timeout_ms = 10'000;
  options->struct_size = struct_size;
  give(defaults, options);
  return CARVEOUT_OK;
}

carveout_status_t carveout_open(const carveout_options_t* options, carveout_t** handle,
                                carveout_error_t* error) noexcept {
  if (handle != nullptr) *handle = nullptr;
  return walled(error, [&]() -> carveout_status_t {
    if (handle == nullptr) return answer(bad("carveout_open()", "handle must not be NULL"), error);
    if (error != nullptr && !is_usable(error)) return CARVEOUT_ERROR_INVALID;
    const auto known = read(options);
    if (!known) return answer(known.error(), error);
    auto opening = opening_of(*known);
    if (!opening) return answer(opening.error(), error);
    auto opened = open(*known, *opening);
    if (!opened) {
      // Whole, where the caller's structure may have to cut it.
      if (opening->log) opening->log(LogLevel::kError, opened.error().describe());
      return answer(opened.error(), error);
    }
    if (!*opened) return answer(CARVEOUT_OFF, error);
    *handle = std::make_unique<carveout_handle>(**std::move(opened), *std::move(opening)).release();
    return answer(CARVEOUT_OK, error);
  });
}

carveout_status_t carveout_get_info(const carveout_t* handle, carveout_info_t* info) noexcept {
  if (handle == nullptr || !is_usable(info)) return CARVEOUT_ERROR_INVALID;
  const Carveout& carveout = handle->carveout;
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
  return handle == nullptr ? -1 : handle->carveout.watch();
}

int carveout_is_lender_gone(const carveout_t* handle) noexcept {
  const Uncancelled uncancelled;
  return handle != nullptr && handle->carveout.lender_gone() ? 1 : 0;
}

void carveout_after_fork_in_child(carveout_t* handle) noexcept {
  const Uncancelled uncancelled;  // async-signal-safe as of POSIX.1-2024, and in glibc
  if (handle != nullptr) handle->carveout.abandon_in_child();
}

carveout_status_t carveout_close(carveout_t* handle, carveout_error_t* error) noexcept {
  if (handle == nullptr) return answer(CARVEOUT_OK, error);
  const Uncancelled uncancelled;
  const carveout_status_t status = walled(error, [&]() -> carveout_status_t {
    const auto closed = handle->carveout.close();
    if (closed) return answer(CARVEOUT_OK, error);
    if (handle->opening.log) {
      handle->opening.log(LogLevel::kWarning, closed.error().describe());
    }
    return answer(closed.error(), error);
  });
  delete handle;
  return status;
}

}  // extern "C"
