#include "base/file.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

namespace carveout {

bool fill_standard_descriptors() {
  for (;;) {
    UniqueFd opened(
        ::open("/dev/null", O_RDWR));  // NOLINT(android-cloexec-open): inherited, as 0 to 2 are
    if (!opened) return false;
    if (opened.get() > STDERR_FILENO) return true;
    (void)opened.release();  // stays open as what it replaces
  }
}

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code failed;
  std::filesystem::directory_iterator entry(directory, failed);
  for (; !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed))
    names.push_back(entry->path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

Result<UniqueFd> duplicate(int descriptor, const std::string& context) {
  UniqueFd copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
  if (!copy) return system_error(errno, context, "its descriptor cannot be duplicated");
  return copy;
}

Result<std::string> read_up_to(int fd, std::size_t limit, const std::string& context) {
  std::string text;
  std::size_t have = 0;
  for (;;) {
    // As much room as the file needs, not as much as it might.
    if (have == text.size()) text.resize(std::min(limit, std::max<std::size_t>(2 * have, 4096)));
    if (have == text.size()) break;
    const ssize_t got = ::read(fd, text.data() + have, text.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(errno, context, "cannot be read");
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

Result<std::string> read_text(const std::string& path, std::size_t limit) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) return system_error(errno, path, "cannot be opened");
  return read_up_to(file.get(), limit, path);
}

}  // namespace carveout
