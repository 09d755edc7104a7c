#include "wire/key.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace carveout::wire {
namespace {

Error unfit(const std::string& context, std::string_view message) {
  return Error{Code::kInvalid, 0, context, std::string(message)};
}

}  // namespace

Result<Key> Key::from(std::string_view text) {
  if (text.empty()) return unfit("key", "is empty");
  if (text.size() > kMaxLength) return unfit("key", "is longer than 255 bytes");
  if (!is_utf8(text)) return unfit("key", "is not UTF-8, so no request can carry it");
  Key key;
  std::copy(text.begin(), text.end(), key.text_.begin());
  key.length_ = text.size();
  return key;
}

bool Key::matches(std::string_view candidate) const {
  if (candidate.size() > kMaxLength) return false;
  std::array<char, kMaxLength + 1> padded{};
  std::copy(candidate.begin(), candidate.end(), padded.begin());
  // The length is in the comparison, so that a key is not equal to itself followed by NULs. Every
  // word is looked at whatever the ones before it said; volatile keeps the compiler from stopping
  // early.
  volatile std::uint64_t different = length_ ^ candidate.size();
  for (std::size_t i = 0; i < padded.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t ours = 0;
    std::uint64_t theirs = 0;
    std::memcpy(&ours, text_.data() + i, sizeof ours);
    std::memcpy(&theirs, padded.data() + i, sizeof theirs);
    different = different | (ours ^ theirs);
  }
  return different == 0;
}

Result<Key> read_key_file(const std::string& path, KeyAudience audience) {
  const std::string context = cat("key file ", path);
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) {
    const int problem = errno;
    return system_error(
        problem, context,
        problem == ENOENT   ? (audience == KeyAudience::kLender
                                   ? "does not exist: create it with one line, the key"
                                   : "does not exist: whoever runs the lender has the key")
        : problem == EACCES ? (audience == KeyAudience::kLender
                                   ? "cannot be opened: its group, or whoever may use sudo, can"
                                   : "cannot be opened: only root and members of its group "
                                     "(carveout, unless ls -l shows another) may: usermod -aG "
                                     "carveout USER, then log in again")
                            : "cannot be opened");
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return system_error(errno, context, "cannot be examined");
  if (!S_ISREG(status.st_mode)) return unfit(context, "is not a regular file");
  if (audience == KeyAudience::kLender && (status.st_mode & (S_IROTH | S_IWOTH)) != 0) {
    return unfit(context, "can be read or changed by everybody: chmod 0640 it");
  }

  auto text = read_up_to(file.get(), Key::kMaxLength + 2, context);
  if (!text) return std::move(text).error();
  std::string_view line = *text;
  line = line.substr(0, line.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.empty()) return unfit(context, "has an empty first line: the key belongs there");
  if (line.size() > Key::kMaxLength) {
    return unfit(context, "has a first line of 256 bytes or more: a key is 1 to 255 bytes");
  }
  auto key = Key::from(line);
  if (!key) return unfit(context, "has a first line that is not UTF-8, so no request can carry it");
  return key;
}

}  // namespace carveout::wire
