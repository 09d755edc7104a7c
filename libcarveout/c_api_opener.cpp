#include "c_api_opener.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/text.hpp"
#include "c_api_wall.hpp"

namespace carveout::c_api {
namespace {

using client::LogLevel;
using client::Opening;
using client::Settings;
using client::SourceKind;

#define CARVEOUT_TEXT(number) #number
#define CARVEOUT_VERSION_OF(major, minor, patch) \
  CARVEOUT_TEXT(major) "." CARVEOUT_TEXT(minor) "." CARVEOUT_TEXT(patch)
constexpr std::string_view kHeaderVersion =
    CARVEOUT_VERSION_OF(CARVEOUT_VERSION_MAJOR, CARVEOUT_VERSION_MINOR, CARVEOUT_VERSION_PATCH);
#ifdef CARVEOUT_PROJECT_VERSION
static_assert(kHeaderVersion == CARVEOUT_PROJECT_VERSION, "carveout.h is of another version");
#endif

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

}  // namespace

constinit const std::string_view kVersion = kHeaderVersion;

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

Result<Settings> settings_of(const carveout_options_t& options, const client::Lookup& rows) {
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
    auto key = wire::Key::from(options.key);
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

}  // namespace carveout::c_api

extern "C" carveout_status_t carveout_options_init(carveout_options_t* options,
                                                   size_t struct_size) noexcept {
  if (options == nullptr) return CARVEOUT_ERROR_INVALID;
  carveout_options_t asked{};
  asked.struct_size = struct_size;
  if (!carveout::c_api::is_usable(&asked)) return CARVEOUT_ERROR_INVALID;
  carveout_options_t defaults{};
  defaults.source = CARVEOUT_SOURCE_DAEMON;
  defaults.map = CARVEOUT_MAP_AUTO;
  defaults.device = -1;
  defaults.bytes = carveout::mib(1792).count();
  defaults.timeout_ms = 10'000;
  options->struct_size = struct_size;
  carveout::c_api::give(defaults, options);
  return CARVEOUT_OK;
}
