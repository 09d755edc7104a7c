#include "host.hpp"

#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "client/l2_class.hpp"

namespace carveout::probe {
namespace {

std::string first_line_of(const std::string& path) {
  const auto text = read_text(path, 4096);
  return text ? printable(text->substr(0, text->find('\n')), 200) : std::string();
}

// What stands behind "name : " in a file of such lines, of the first that there is.
std::string field_in(const std::string& text, std::string_view name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (!line.starts_with(name) || colon == std::string::npos) continue;
    if (line.find_first_not_of(" \t", name.size()) != colon) continue;
    const auto value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : printable(line.substr(value), 200);
  }
  return "";
}

// "2048K", "32M", "4 kB": as the kernel writes sizes.
std::uint64_t size_in(const std::string& text) {
  std::uint64_t count = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (problem != std::errc()) return 0;
  std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit.starts_with('K') || unit.starts_with('k')) return count << 10;
  return unit.starts_with('M') ? count << 20 : count;
}

std::string processor_name() {
  const auto text = read_text("/proc/cpuinfo", std::size_t{1} << 20);
  if (!text) return "processor";
  std::string name = field_in(*text, "model name");
  if (!name.empty()) return name;
  // Arm's kernels write no name.
  name = field_in(*text, "CPU part");
  return name.empty() ? "processor" : cat("CPU part ", name);
}

// One mapping of smaps: where it is, and its fields in bytes.
struct Mapped {
  std::uint64_t begin = 0, end = 0;
};

std::optional<Mapped> mapping_of(const std::string& line) {
  Mapped mapped;
  const char* const last = line.data() + line.size();
  const auto first = std::from_chars(line.data(), last, mapped.begin, 16);
  if (first.ec != std::errc() || first.ptr == last || *first.ptr != '-') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, last, mapped.end, 16);
  if (second.ec != std::errc() || second.ptr == last || *second.ptr != ' ') return std::nullopt;
  return mapped;
}

std::uint64_t page_bytes_of(const std::map<std::string, std::uint64_t>& fields) {
  const auto field = [&fields](const char* name) {
    const auto found = fields.find(name);
    return found == fields.end() ? 0 : found->second;
  };
  const std::uint64_t huge =
      field("AnonHugePages") + field("ShmemPmdMapped") + field("FilePmdMapped");
  if (huge != 0 && huge * 2 >= field("Rss")) return kHugePage;
  return field("KernelPageSize");
}

}  // namespace

Machine host_machine() {
  Machine machine;
  client::Here here = client::here();
  machine.host = std::move(here.host);
  machine.kernel = std::move(here.kernel);
  const long count = ::sysconf(_SC_NPROCESSORS_ONLN);
  machine.processor = cat(processor_name(), ", ", count, count == 1 ? " CPU" : " CPUs");
  const long page = ::sysconf(_SC_PAGESIZE);
  machine.page_bytes = page > 0 ? static_cast<std::uint64_t>(page) : 0;
  return machine;
}

std::vector<std::uint64_t> data_caches(int processor, const std::string& root) {
  const std::string caches = cat(root, "/cpu", processor, "/cache");
  std::map<std::string, std::uint64_t> by_level;
  for (const std::string& name : names_in(caches)) {
    const std::string one = cat(caches, "/", name);
    if (!name.starts_with("index") || first_line_of(one + "/type") == "Instruction") continue;
    const std::uint64_t size = size_in(first_line_of(one + "/size"));
    if (size != 0) by_level[first_line_of(one + "/level")] = size;
  }
  std::vector<std::uint64_t> sizes;
  sizes.reserve(by_level.size());
  for (const auto& [level, size] : by_level)
    sizes.push_back(size);
  return sizes;
}

Moment host_moment(int processor) {
  Moment moment;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  moment.unix_s = std::chrono::duration<double>(now).count();
  double load = 0;
  if (::getloadavg(&load, 1) == 1) moment.load_average = load;
  moment.governor = first_line_of(cat(kProcessors, "/cpu", processor, "/cpufreq/scaling_governor"));
  return moment;
}

std::uint64_t page_bytes_in(const std::string& smaps, std::uint64_t address) {
  std::istringstream lines(smaps);
  bool here = false;
  std::map<std::string, std::uint64_t> fields;
  for (std::string line; std::getline(lines, line);) {
    if (const auto mapped = mapping_of(line)) {
      if (here) break;
      here = mapped->begin <= address && address < mapped->end;
      continue;
    }
    const auto colon = line.find(':');
    if (!here || colon == std::string::npos) continue;
    const auto value = line.find_first_not_of(' ', colon + 1);
    if (value != std::string::npos) fields[line.substr(0, colon)] = size_in(line.substr(value));
  }
  return page_bytes_of(fields);
}

std::uint64_t page_bytes_at(const void* address) {
  const auto smaps = read_text("/proc/self/smaps", std::size_t{64} << 20);
  return smaps ? page_bytes_in(*smaps, reinterpret_cast<std::uintptr_t>(address)) : 0;
}

}  // namespace carveout::probe
