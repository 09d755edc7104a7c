#include "support/holdings.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

namespace carveout::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

bool counts(const std::string& line) {
  std::istringstream words(line);
  std::string range, rights, offset, device, inode, name;
  words >> range >> rights >> offset >> device >> inode >> name;
  if (name == "[heap]" || name == "[stack]") return false;
  if (!kSanitized) return true;
  const bool anonymous = inode == "0" && (name.empty() || name.front() == '[');
  return !anonymous || !rights.ends_with('p');
}

void add_missing(const std::vector<std::string>& from, const std::vector<std::string>& in,
                 const char* sign, std::string& text) {
  std::vector<std::string> missing;
  std::set_difference(from.begin(), from.end(), in.begin(), in.end(), std::back_inserter(missing));
  for (const std::string& line : missing)
    text += sign + line + "\n";
}

}  // namespace

Holdings holdings() {
  Holdings now;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (counts(line)) now.mappings.push_back(line);
  }
  maps.close();
  const std::string own = std::filesystem::canonical("/proc/self/fd");
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    const std::string target = std::filesystem::read_symlink(entry.path(), closed);
    if (target != own)
      now.descriptors.push_back(entry.path().filename().string() + " -> " + target);
  }
  std::sort(now.mappings.begin(), now.mappings.end());
  std::sort(now.descriptors.begin(), now.descriptors.end());
  return now;
}

std::string difference(const Holdings& before, const Holdings& after) {
  std::string text;
  add_missing(before.descriptors, after.descriptors, "gone: ", text);
  add_missing(after.descriptors, before.descriptors, "new: ", text);
  add_missing(before.mappings, after.mappings, "gone: ", text);
  add_missing(after.mappings, before.mappings, "new: ", text);
  return text;
}

}  // namespace carveout::test
