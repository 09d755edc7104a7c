#include "files/write_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "client/l2_class.hpp"

namespace carveout::probe {
namespace {

constexpr mode_t kMode = 0644;

struct Target {
  std::string file;       // where the file itself is, behind symbolic links
  bool in_place = false;  // written to as it is: a device, a pipe, a descriptor
};

// Of /dev/stdout and the like: the file behind one may be regular, but others write to it, too.
bool is_descriptor(std::string_view path) {
  return path.starts_with("/dev/std") || path.starts_with("/dev/fd/") || path.starts_with("/proc/");
}

// In a directory like /tmp nobody takes the place of another's file, even if he may write to it.
bool must_stay(const std::string& file, uid_t owner) {
  struct stat directory {};
  if (::stat(directory_of(file).c_str(), &directory) != 0) return false;
  const uid_t user = ::geteuid();
  return (directory.st_mode & S_ISVTX) != 0 && user != 0 && user != owner &&
         user != directory.st_uid;
}

Result<Target> find_target(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    if (errno != ENOENT || path.empty()) return system_error(errno, path, "cannot be written");
    if (::lstat(path.c_str(), &facts) == 0) {
      return Error{Code::kInvalid, 0, path, "is a symbolic link to a file that does not exist"};
    }
    return Target{path};
  }
  if (S_ISDIR(facts.st_mode)) return system_error(EISDIR, path, "cannot be written");
  if (::access(path.c_str(), W_OK) != 0) return system_error(errno, path, "cannot be written");
  if (!S_ISREG(facts.st_mode) || is_descriptor(path)) return Target{path, true};
  struct Free {
    void operator()(char* text) const { std::free(text); }
  };
  const std::unique_ptr<char, Free> real(::realpath(path.c_str(), nullptr));
  if (!real) return system_error(errno, path, "cannot be found");
  if (must_stay(real.get(), facts.st_uid)) return system_error(EPERM, path, "cannot be replaced");
  return Target{real.get()};
}

// A directory that does not exist.
std::string what_makes(const std::string& directory) {
  return directory == directory_of(client::kL2ClassFile)
             ? ": systemd-tmpfiles --create carveout.conf makes it"
             : ": it must exist (mkdir -p)";
}

// A file beside the one that it is to become; gone with this object unless it became it.
class Draft {
 public:
  static Result<Draft> open(const std::string& path, const std::string& file) {
    std::string name = cat(directory_of(file), "/.carveout-probe.XXXXXX");
    UniqueFd opened(::mkostemp(name.data(), O_CLOEXEC));
    if (!opened) {
      const int number = errno;
      const std::string directory = directory_of(file);
      return system_error(
          number, path,
          cat("no file can be made in ", directory, number == ENOENT ? what_makes(directory) : ""));
    }
    return Draft(std::move(name), std::move(opened));
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  Draft(Draft&& other) noexcept
      : name_(std::exchange(other.name_, {})), file_(std::move(other.file_)) {}
  Draft& operator=(Draft&&) = delete;
  ~Draft() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }

  [[nodiscard]] int get() const { return file_.get(); }
  // Errno, or 0.
  [[nodiscard]] int become(const std::string& file) {
    if (::fchmod(file_.get(), kMode) != 0 || ::fsync(file_.get()) != 0) return errno;
    if (::rename(name_.c_str(), file.c_str()) != 0) return errno;
    name_.clear();
    return 0;
  }

 private:
  Draft(std::string name, UniqueFd file) : name_(std::move(name)), file_(std::move(file)) {}

  std::string name_;
  UniqueFd file_;
};

Result<void> write_all(int file, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(file, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return system_error(errno, path, "cannot be written");
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return {};
}

// The name itself is on the disk once its directory is. A file system that cannot do that has no
// better to offer.
void settle_directory(const std::string& file) {
  const UniqueFd directory(::open(directory_of(file).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory) (void)::fsync(directory.get());
}

}  // namespace

Result<void> write_file(const std::string& path, std::string_view text) {
  const auto target = find_target(path);
  if (!target) return target.error();
  if (target->in_place) {
    // At the end: behind /dev/stdout may be a file in which the table stands already.
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY));
    if (!file) return system_error(errno, path, "cannot be opened");
    return write_all(file.get(), text, path);
  }
  auto draft = Draft::open(path, target->file);
  if (!draft) return draft.error();
  if (auto written = write_all(draft->get(), text, path); !written) return written;
  if (const int number = draft->become(target->file); number != 0) {
    return system_error(number, path, "cannot be written");
  }
  settle_directory(target->file);
  return {};
}

Result<void> check_writable(const std::string& path) {
  const auto target = find_target(path);
  if (!target) return target.error();
  if (target->in_place) return {};
  if (auto draft = Draft::open(path, target->file); !draft) return draft.error();
  return {};
}

bool is_written_in_place(const std::string& path) {
  const auto target = find_target(path);
  return target && target->in_place;
}

bool are_one_file(const std::string& first, const std::string& second) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const auto place_of = [&failed](const std::string& path) {
    const fs::path whole = fs::absolute(path, failed);
    return failed ? fs::path() : fs::weakly_canonical(whole, failed);
  };
  const fs::path place = place_of(first);
  if (failed || place_of(second) != place || failed) return false;
  const fs::file_status status = fs::status(place, failed);
  return fs::is_regular_file(status) || !fs::exists(status);
}

}  // namespace carveout::probe
