#include "client/settings.hpp"

#include <sys/un.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "wire/channel.hpp"

namespace carveout::client {
namespace {

constexpr Bytes kMostSize = gib(std::uint64_t{1} << 20);  // 1 PiB
constexpr std::chrono::milliseconds kMostTimeout = std::chrono::hours(24);
constexpr std::size_t kMostHeapName = 255;  // NAME_MAX

Error bad(const char* row, std::string message) {
  return Error{Code::kInvalid, 0, row, std::move(message)};
}

enum class Switch { kOff, kOn };
constexpr const char* name_of(Switch position) {
  return position == Switch::kOn ? "1" : "0";
}

constexpr std::array kSwitches{Switch::kOff, Switch::kOn};
constexpr std::array kSources{SourceKind::kDaemon, SourceKind::kDrm, SourceKind::kDmaHeap,
                              SourceKind::kMemfd, SourceKind::kCuda};

// One of `meanings`, by its name, into `value`, which stays what it is where the row is not set.
template <typename T, std::size_t N>
Result<void> read_word(const Lookup& lookup, const char* row, const std::array<T, N>& meanings,
                       T& value) {
  const auto text = lookup(row);
  if (!text) return {};
  std::string all;
  for (const T meaning : meanings) {
    if (*text == name_of(meaning)) {
      value = meaning;
      return {};
    }
    all += cat(all.empty() ? "" : ", ", name_of(meaning));
  }
  return bad(row, cat("must be one of ", all));
}

// Decimal digits and nothing else; what they may be worth is complete()'s to say.
std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc{} || rest != end) return std::nullopt;
  return number;
}

Error bad_size() {
  return bad("CARVEOUT_MIB", cat("must be 1 to ", kMostSize.count() >> 20, " MiB, a whole number"));
}

Error bad_timeout() {
  return bad("CARVEOUT_TIMEOUT_MS",
             cat("must be a whole number of milliseconds from 1 to ", kMostTimeout.count()));
}

Result<void> read_size(const Lookup& lookup, Settings& settings) {
  const auto text = lookup("CARVEOUT_MIB");
  if (!text) return {};
  const auto number = whole_number(*text);
  if (!number || *number > (kMostSize.count() >> 20)) return bad_size();
  settings.size = mib(*number);
  return {};
}

Result<void> read_daemon(const Lookup& lookup, Settings& settings) {
  if (auto text = lookup("CARVEOUT_SOCKET")) settings.socket = *std::move(text);
  const auto key = lookup("CARVEOUT_KEY");
  auto key_file = lookup("CARVEOUT_KEY_FILE");
  if (key || key_file) {  // instead of either
    settings.key.reset();
    settings.key_file = std::move(key_file);
  }
  if (key) {
    auto usable = wire::Key::from(*key);
    if (!usable) return bad("CARVEOUT_KEY", usable.error().message);
    settings.key = *usable;
  }
  if (const auto text = lookup("CARVEOUT_TIMEOUT_MS")) {
    const auto number = whole_number(*text);
    if (!number || *number > static_cast<std::uint64_t>(kMostTimeout.count())) return bad_timeout();
    settings.timeout = std::chrono::milliseconds(*number);
  }
  return {};
}

Result<void> complete_daemon(Settings& settings, const std::string& default_key_file) {
  if (!wire::socket_address(settings.socket)) {
    return bad("CARVEOUT_SOCKET",
               cat("must be a path of 1 to ", sizeof(sockaddr_un::sun_path) - 1, " bytes"));
  }
  if (settings.timeout < std::chrono::milliseconds(1) || settings.timeout > kMostTimeout) {
    return bad_timeout();
  }
  if (settings.key && settings.key_file) {
    return bad("CARVEOUT_KEY_FILE", "is set, and so is CARVEOUT_KEY: set one of them");
  }
  if (settings.key) return {};
  if (settings.key_file && settings.key_file->empty()) {
    return bad("CARVEOUT_KEY_FILE", "is empty: it must be the path of a file with the key");
  }
  const bool is_default = !settings.key_file;
  if (is_default) settings.key_file = default_key_file;
  auto key = wire::read_key_file(*settings.key_file, wire::KeyAudience::kBorrower);
  if (!key) {
    Error problem = key.error();  // its context is the path
    const bool own = problem.number == EMFILE || problem.number == ENFILE;
    problem.context = own ? "the file with the key" : "CARVEOUT_KEY_FILE";
    if (is_default) {
      const bool known = default_key_file == kDefaultKeyFile;  // and no setting of anybody's
      problem.message = cat("no key is given, and the default file ",
                            known ? cat("(", kDefaultKeyFile, ") ") : "", problem.message);
    }
    return problem;
  }
  settings.key = *key;
  return {};
}

Result<void> complete_card(const Settings& settings) {
  const std::string& card = settings.card;
  if (card == "auto" || (card.starts_with('/') && card.size() < PATH_MAX)) return {};
  return bad("CARVEOUT_DRM_CARD", "must be auto or the absolute path of a primary node");
}

Result<void> complete_heap(const Settings& settings) {
  const std::string& heap = settings.heap;
  const bool name = !heap.empty() && heap.size() <= kMostHeapName && heap != "." && heap != ".." &&
                    heap.find('/') == std::string::npos;
  if (name) return {};
  return bad("CARVEOUT_HEAP", "must be the name of a heap, as in /dev/dma_heap");
}

}  // namespace

Lookup environment() {
  return [](const char* row) -> std::optional<std::string> {
    const char* value = ::secure_getenv(row);
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

Result<Settings> complete(Settings settings, const std::string& default_key_file) {
  if (settings.size == Bytes(0) || settings.size > kMostSize) return bad_size();
  Result<void> good;
  switch (settings.source) {
    case SourceKind::kDaemon:
      good = complete_daemon(settings, default_key_file);
      break;
    case SourceKind::kDrm:
      good = complete_card(settings);
      break;
    case SourceKind::kDmaHeap:
      good = complete_heap(settings);
      break;
    case SourceKind::kMemfd:
    case SourceKind::kCuda:
      break;
  }
  if (!good) return std::move(good).error();
  return settings;
}

Result<bool> is_on(const Lookup& lookup) {
  Switch position = Switch::kOff;
  if (auto read = read_word(lookup, "CARVEOUT", kSwitches, position); !read) return read.error();
  return position == Switch::kOn;
}

Result<std::optional<Settings>> settings_from(const Lookup& lookup,
                                              const std::string& default_key_file,
                                              const Settings& unset) {
  const auto on = is_on(lookup);
  if (!on) return on.error();
  if (!*on) return std::optional<Settings>();
  Settings settings = unset;
  if (auto read = read_word(lookup, "CARVEOUT_SOURCE", kSources, settings.source); !read) {
    return read.error();
  }
  if (auto read = read_size(lookup, settings); !read) return read.error();
  if (auto read = read_word(lookup, "CARVEOUT_MAP", kMapStrategies, settings.map); !read) {
    return read.error();
  }
  if (settings.source == SourceKind::kDaemon) {
    if (auto read = read_daemon(lookup, settings); !read) return read.error();
  }
  if (settings.source == SourceKind::kDrm) {
    if (auto text = lookup("CARVEOUT_DRM_CARD")) settings.card = *std::move(text);
  }
  if (settings.source == SourceKind::kDmaHeap) {
    if (auto text = lookup("CARVEOUT_HEAP")) settings.heap = *std::move(text);
  }
  auto completed = complete(std::move(settings), default_key_file);
  if (!completed) return completed.error();
  return std::optional<Settings>(*std::move(completed));
}

}  // namespace carveout::client
