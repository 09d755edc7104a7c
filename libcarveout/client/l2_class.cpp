#include "client/l2_class.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/text.hpp"

namespace carveout::client {
namespace {

using JsonValue = JsonDocument::ValueType;

constexpr std::string_view kSchema = "carveout-probe/1";
constexpr std::array<std::string_view, 4> kResidencies{"resident", "partly", "not_resident",
                                                       "inconclusive"};

constexpr std::array<std::string_view, 4> kLent{"daemon", "drm", "dma-heap", "memfd"};

Error unusable(const std::string& file, std::string_view why) {
  return Error{Code::kInvalid, 0, file,
               cat(why, ": measure again by carveout-probe residency --engine gpu --json ", file)};
}

std::string text(const JsonValue& object, const char* name) {
  const auto* value = object.IsObject() ? find_member(object, name) : nullptr;
  if (value == nullptr || !value->IsString()) return {};
  return {value->GetString(), value->GetStringLength()};
}

// An array's elements; none where there is no array.
const JsonValue* array(const JsonValue& object, const char* name) {
  const auto* value = find_member(object, name);
  return value != nullptr && value->IsArray() ? value : nullptr;
}

const JsonValue* find_arm(const JsonValue& arms, std::string_view name) {
  for (const JsonValue& arm : arms.GetArray()) {
    if (text(arm, "name") == name) return &arm;
  }
  return nullptr;
}

}  // namespace

bool is_lent(std::string_view source) {
  return std::find(kLent.begin(), kLent.end(), source) != kLent.end();
}

Result<L2Class> parse_l2_class(std::string_view content, const std::string& file) {
  if (content.size() > kMaxL2ClassBytes) {
    return unusable(file, cat("is larger than ", kMaxL2ClassBytes >> 20U, " MiB"));
  }
  JsonDocument document;
  document.Parse<rapidjson::kParseIterativeFlag>(content.data(), content.size());
  if (document.HasParseError() || !document.IsObject()) return unusable(file, "is not JSON");
  const std::string schema = text(document, "schema");
  if (schema != kSchema) {
    return unusable(file, schema.empty() ? "is no result of carveout-probe's"
                                         : cat("is of schema ", printable(schema, 100),
                                               ", this reads ", kSchema));
  }
  const std::string command = text(document, "command");
  if (command != "residency") {
    return unusable(file, command.empty() ? "is no whole result of carveout-probe's"
                                          : cat("is of carveout-probe ", printable(command, 100),
                                                ", which says nothing of residency"));
  }
  L2Class found;
  found.engine = text(document, "engine");
  const auto* machine = find_member(document, "machine");
  const auto* ended = find_member(document, "ended_unix_s");
  const auto* arms = array(document, "arms");
  const auto* verdicts = array(document, "residency");
  const bool known_engine = found.engine == "gpu" || found.engine == "cpu";
  if (!known_engine || machine == nullptr || ended == nullptr || !ended->IsNumber() ||
      arms == nullptr || verdicts == nullptr) {
    return unusable(file, "is no whole result of carveout-probe's");
  }
  found.gpu = text(*machine, "gpu");
  found.driver = text(*machine, "driver");
  found.lender = text(*machine, "lender");
  found.host = text(*machine, "host");
  found.kernel = text(*machine, "kernel");
  found.measured_unix_s = ended->GetDouble();
  for (const JsonValue& verdict : verdicts->GetArray()) {
    const std::string name = text(verdict, "arm");
    std::string residency = text(verdict, "residency");
    const auto* arm = find_arm(*arms, name);
    if (arm == nullptr || name.empty() ||
        std::find(kResidencies.begin(), kResidencies.end(), residency) == kResidencies.end()) {
      return unusable(file, "has a verdict that is none");
    }
    found.arms.push_back({.name = name,
                          .source = text(*arm, "source"),
                          .map = text(*arm, "map"),
                          .residency = std::move(residency),
                          .why = text(verdict, "why")});
  }
  return found;
}

Result<std::optional<L2Class>> read_l2_class(const std::string& file) {
  // One byte more than is looked at: what is larger is refused for that.
  const auto content = read_text(file, kMaxL2ClassBytes + 1);
  if (!content && content.error().number == ENOENT) return std::optional<L2Class>();
  if (!content) return content.error();
  auto found = parse_l2_class(*content, file);
  if (!found) return found.error();
  return std::optional(*std::move(found));
}

std::string nvidia_driver_in(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find_first_of(" \t"));
    const bool digits = word.find_first_not_of("0123456789.") == std::string_view::npos;
    if (digits && word.find('.') != std::string_view::npos && !word.starts_with('.')) {
      return std::string(word);
    }
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return {};
}

namespace {

std::string nvidia_driver() {
  for (const char* path : {"/sys/module/nvidia/version", "/proc/driver/nvidia/version"}) {
    const auto text = read_text(path, 4096);
    if (!text) continue;
    if (std::string version = nvidia_driver_in(*text); !version.empty()) return version;
  }
  return {};
}

}  // namespace

Here here() {
  Here here{.driver = nvidia_driver(), .host = {}, .kernel = {}};
  utsname name{};
  if (::uname(&name) != 0) return here;
  here.host = printable(name.nodename, 100);
  here.kernel = cat(printable(name.sysname, 100), " ", printable(name.release, 100), " ",
                    printable(name.machine, 100));
  return here;
}

}  // namespace carveout::client
