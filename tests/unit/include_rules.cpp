#include "unit/include_rules.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace carveout::test {
namespace {

namespace fs = std::filesystem;

// Which part may include which, besides itself.
const std::map<std::string, std::set<std::string>>& allowed() {
  static const std::map<std::string, std::set<std::string>> kAllowed{
      {"public", {}},
      {"base", {}},
      {"wire", {"base"}},
      {"source", {"base"}},
      {"cuda", {"base"}},
      {"arena", {"base"}},
      {"client", {"base", "wire", "source"}},
      {"c_api", {"base", "wire", "source", "client", "cuda", "arena", "public"}},
      {"daemon", {"base", "wire", "source", "generated"}},
      {"carveoutctl", {"base", "wire", "generated"}},
      {"carveout-probe", {"base", "public", "generated"}},
  };
  return kAllowed;
}

// Single files that are allowed more than their part: {beginning of the path, of what it includes}.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kExceptions{{
    {"libcarveout/client/carveout.", "libcarveout/cuda/"},
    {"libcarveout/client/device_allocator.", "libcarveout/arena/"},
    {"libcarveout/client/device_allocator.", "libcarveout/cuda/driver."},
    {"libcarveout/client/pages.", "libcarveout/cuda/"},
    {"libcarveout/source/cuda", "libcarveout/cuda/driver."},
    {"tools/carveout-probe/", "libcarveout/client/l2_class."},
    {"tools/carveout-probe/", "libcarveout/cuda/driver."},
    {"tools/carveout-probe/", "libcarveout/cuda/kernels."},
    {"tools/carveout-probe/engines/room.", "libcarveout/source/available_memory."},
    {"tools/carveout-probe/lender_facts.", "tools/carveoutctl/control_client."},
    {"tools/carveout-probe/lender_facts.", "tools/carveoutctl/lender_text."},
    {"tools/carveoutctl/audit.", "daemon/ledger_"},
    {"tools/carveoutctl/claim.", "libcarveout/client/lender."},
    {"tools/carveoutctl/l2.", "libcarveout/client/l2_class."},
}};

// Pure: nothing that they include, directly or not, is a system I/O header.
constexpr std::array<std::string_view, 4> kPure{"daemon/reservation.", "daemon/ledger_",
                                                "daemon/adoption.", "libcarveout/wire/codec."};

// Of C++; of everybody else's, see is_io_header().
constexpr std::array<std::string_view, 19> kIoHeaders{
    "fstream",      "iostream",           "istream", "ostream",   "filesystem",
    "cstdio",       "syncstream",         "print",   "thread",    "mutex",
    "shared_mutex", "condition_variable", "future",  "semaphore", "latch",
    "barrier",      "stop_token",         "csignal", "cstdlib"};

// Made by the build, so in no source tree.
constexpr std::array<std::string_view, 1> kGenerated{"version.hpp"};

bool is_io_header(std::string_view name) {
  // Whatever ends in .h is C's, POSIX's, Linux's or systemd's: unistd.h, sys/socket.h, ...
  if (name.ends_with(".h") && !name.starts_with("rapidjson/")) return true;
  return std::find(kIoHeaders.begin(), kIoHeaders.end(), name) != kIoHeaders.end();
}

bool is_pure(std::string_view file) {
  return std::any_of(kPure.begin(), kPure.end(),
                     [file](std::string_view begin) { return file.starts_with(begin); });
}

struct Include {
  std::size_t line;
  bool quoted;
  std::string name;
};

// The name between the quotes or brackets of an #include line; empty if it names a macro.
std::optional<Include> parse_include(std::string_view text, std::size_t line) {
  const auto skip_space = [&text] {
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  };
  skip_space();
  if (!text.starts_with('#')) return std::nullopt;
  text.remove_prefix(1);
  skip_space();
  static constexpr std::string_view kInclude = "include";
  if (!text.starts_with(kInclude)) return std::nullopt;
  text.remove_prefix(kInclude.size());
  skip_space();
  const char closing = text.starts_with('"') ? '"' : text.starts_with('<') ? '>' : '\0';
  const std::size_t end = closing == '\0' ? std::string_view::npos : text.find(closing, 1);
  if (end == std::string_view::npos) return Include{line, false, ""};
  return Include{line, closing == '"', std::string(text.substr(1, end - 1))};
}

std::vector<Include> includes_of(const fs::path& file) {
  std::vector<Include> all;
  std::ifstream stream(file);
  std::size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    if (auto include = parse_include(line, ++number)) all.push_back(*std::move(include));
  }
  return all;
}

class Checker {
 public:
  explicit Checker(const fs::path& tree) : tree_(tree) {}

  IncludeReport run() {
    for (const char* directory :
         {"include", "libcarveout", "daemon", "tools/carveoutctl", "tools/carveout-probe"}) {
      if (!fs::exists(tree_ / directory)) continue;
      for (const auto& entry : fs::recursive_directory_iterator(tree_ / directory)) {
        const std::string extension = entry.path().extension();
        const bool source = extension == ".cpp" || extension == ".hpp" || extension == ".h" ||
                            extension == ".cc" || extension == ".cu" || extension == ".inl";
        if (entry.is_regular_file() && source) {
          check_file(entry.path().lexically_relative(tree_).generic_string());
        }
      }
    }
    return std::move(report_);
  }

 private:
  static std::string part_of(const std::string& file) {
    static constexpr std::string_view kLibrary = "libcarveout/";
    if (file.starts_with("libcarveout/c_api")) return "c_api";
    if (file.starts_with(kLibrary)) {
      return file.substr(kLibrary.size(), file.find('/', kLibrary.size()) - kLibrary.size());
    }
    if (file.starts_with("include/")) return "public";
    if (file.starts_with("tools/")) return file.substr(6, file.find('/', 6) - 6);
    return file.substr(0, file.find('/'));
  }

  // The project's file that an #include means, as the compiler would find it.
  [[nodiscard]] std::optional<std::string> resolve(const std::string& from,
                                                   const Include& include) const {
    std::vector<fs::path> places;
    if (include.quoted) places.push_back(fs::path(from).parent_path());
    for (const char* place :
         {"libcarveout", "daemon", "tools/carveoutctl", "tools/carveout-probe", "include"}) {
      places.emplace_back(place);
    }
    for (const fs::path& place : places) {
      const fs::path found = (place / include.name).lexically_normal();
      if (fs::is_regular_file(tree_ / found)) return found.generic_string();
    }
    return std::nullopt;
  }

  void check_file(const std::string& file) {
    ++report_.files;
    if (!allowed().contains(part_of(file))) {
      complain(file, 1, "no rule says what " + part_of(file) + " may include");
      return;
    }
    for (const Include& include : includes_of(tree_ / file))
      check_include(file, include);
    if (is_pure(file)) {
      std::set<std::string> seen;
      check_pure(file, file, 0, seen);
    }
  }

  void check_include(const std::string& file, const Include& include) {
    if (include.name.empty()) return complain(file, include.line, "includes what a macro names");
    const auto target = resolve(file, include);
    std::string to = target ? part_of(*target) : "";
    if (!target) {
      if (!include.quoted) return;  // a system's or another project's
      if (std::find(kGenerated.begin(), kGenerated.end(), include.name) == kGenerated.end()) {
        return complain(file, include.line, "includes " + include.name + ", which is nowhere");
      }
      to = "generated";
    }
    ++report_.includes;
    const std::string from = part_of(file);
    if (to == from || allowed().at(from).contains(to)) return;
    const bool excepted =
        target && std::any_of(kExceptions.begin(), kExceptions.end(), [&](const auto& exception) {
          return file.starts_with(exception.first) && target->starts_with(exception.second);
        });
    if (!excepted) complain(file, include.line, from + " must not include " + to);
  }

  // `line` is where `pure` itself includes what leads to `file`.
  void check_pure(const std::string& pure, const std::string& file, std::size_t line,
                  std::set<std::string>& seen) {
    if (!seen.insert(file).second) return;
    for (const Include& include : includes_of(tree_ / file)) {
      const std::size_t at = line == 0 ? include.line : line;
      if (const auto target = resolve(file, include)) {
        check_pure(pure, *target, at, seen);
      } else if (is_io_header(include.name)) {
        complain(pure, at, "is pure and must not include <" + include.name + "> (in " + file + ")");
      }
    }
  }

  void complain(const std::string& file, std::size_t line, std::string what) {
    report_.violations.push_back({file, line, std::move(what)});
  }

  fs::path tree_;
  IncludeReport report_;
};

}  // namespace

IncludeReport check_includes(const fs::path& tree) {
  return Checker(tree).run();
}

}  // namespace carveout::test
