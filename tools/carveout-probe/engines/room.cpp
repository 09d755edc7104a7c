#include "engines/room.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/file.hpp"
#include "base/text.hpp"
#include "source/available_memory.hpp"

namespace carveout::probe {
namespace {

constexpr std::size_t kMaxText = 65536;
constexpr const char* kAdvice = ": say a smaller --size, or end what needs memory";

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t number = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<std::uint64_t> number_of(const std::string& path) {
  const auto text = read_text(path, kMaxText);
  return text ? number_in(*text) : std::nullopt;
}

// "name 4096" in a line of its own.
std::uint64_t field_in(const std::string& text, const std::string& name) {
  const std::string label = cat("\n", name, " ");
  const std::string lines = cat("\n", text);
  const auto at = lines.find(label);
  if (at == std::string::npos) return 0;
  return number_in(std::string_view(lines).substr(at + label.size())).value_or(0);
}

// Within the group's limit, of which files' pages can be had back; nothing without a limit.
std::optional<Bytes> left_in(const std::string& group) {
  const auto limit = number_of(group + "/memory.max");
  const auto used = number_of(group + "/memory.current");
  if (!limit || !used) return std::nullopt;
  const auto facts = read_text(group + "/memory.stat", kMaxText);
  const std::uint64_t files =
      facts ? field_in(*facts, "active_file") + field_in(*facts, "inactive_file") : 0;
  const std::uint64_t kept = *used - std::min(*used, files);
  return Bytes(*limit - std::min(*limit, kept));
}

// "0::/a/b": the process's group of version 2, as it is seen from here.
std::string own_group(const std::string& text) {
  constexpr std::string_view kLabel = "\n0::/";
  const std::string lines = cat("\n", text);
  const auto at = lines.find(kLabel);
  if (at == std::string::npos) return "";
  const auto begin = at + kLabel.size();
  return lines.substr(begin, lines.find('\n', begin) - begin);
}

}  // namespace

Result<void> check_room(Bytes size, const RoomFiles& files) {
  const std::string what = cat(format_bytes(size), " of ordinary memory");
  AvailableMemory host(files.meminfo);
  if (auto room = host.take(size); !room && room.error().code == Code::kExhausted) {
    return Error{Code::kExhausted, 0, what, cat(room.error().message, kAdvice)};
  }
  const auto text = read_text(files.own_group, kMaxText);
  // From the process's own up to the one that is the whole there is.
  for (std::string group = text ? own_group(*text) : "";; group = directory_of(group)) {
    if (group == ".") group.clear();
    const auto left = left_in(cat(files.groups, "/", group));
    if (left && *left < size) {
      return Error{Code::kExhausted, 0, what,
                   cat("the control group /", printable(group, 200), " may have only ",
                       left->count() >> 20U, " MiB more (memory.max)", kAdvice)};
    }
    if (group.empty()) return {};
  }
}

}  // namespace carveout::probe
