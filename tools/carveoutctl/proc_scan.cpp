#include "proc_scan.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace carveout::ctl {
namespace {

constexpr std::string_view kOurName = "carveout";

template <typename Number>
std::optional<Number> parse_number(std::string_view text, int base) {
  Number number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number, base);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return number;
}

// What stands before `separator`, which goes too; all, if there is none.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t at = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return part;
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

// Null, and errno, if it cannot be opened.
Directory open_directory(int at, const std::string& path) {
  UniqueFd file(::openat(at, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  Directory directory(file ? ::fdopendir(file.get()) : nullptr);
  if (directory) (void)file.release();
  return directory;
}

// Processes, or the threads of one.
std::vector<pid_t> tasks_in(DIR* directory) {
  std::vector<pid_t> tasks;
  while (const dirent* entry = ::readdir(directory)) {  // NOLINT(concurrency-mt-unsafe)
    const auto number = parse_number<pid_t>(entry->d_name, 10);
    if (number && *number > 0) tasks.push_back(*number);
  }
  return tasks;
}

// Whether two threads have one table of descriptors. A kernel that cannot tell: they have.
bool share_descriptors(pid_t a, pid_t b) {
  return ::syscall(SYS_kcmp, a, b, KCMP_FILES, 0, 0) <= 0;
}

// A process or descriptor that has ended meanwhile is no failure.
bool is_gone(int number) {
  return number == ENOENT || number == ESRCH;
}

// Of a /proc/PID/status. Within the name, which precedes it, a newline is escaped.
std::uint64_t effective_uid(std::string_view status) {
  constexpr std::string_view kUids = "\nUid:\t";
  const std::size_t at = status.find(kUids);
  std::string_view uids = at < status.size() ? status.substr(at + kUids.size()) : "";
  take_until(uids, '\t');  // the real one
  return parse_number<uid_t>(take_until(uids, '\t'), 10).value_or(static_cast<uid_t>(-1));
}

// A dma-buf can be renamed by whoever holds it, a memory file cannot.
bool may_be_lent(const BufferName& buffer) {
  return buffer.kind == BufferKind::kDmaBuf || buffer.name == kOurName;
}

class Scanner {
 public:
  Scanner(std::string root, int proc) : root_(std::move(root)), proc_(proc) {}

  void examine(pid_t pid);
  [[nodiscard]] ProcScan take() { return std::move(scan_); }

 private:
  void read_descriptors(const std::string& path);
  bool read_mappings(const std::string& path);
  void take_lines(std::string_view lines);
  void keep(pid_t pid);
  [[nodiscard]] bool may_hold(pid_t pid) const;
  Holding& found(const BufferName& buffer, std::uint64_t device, std::uint64_t inode);
  void note_failure(int number);

  std::string root_;
  int proc_;
  ProcScan scan_;
  // Of the process that is examined:
  std::map<std::tuple<BufferKind, std::uint64_t, std::uint64_t>, Holding> found_;
  bool denied_ = false;
};

void Scanner::examine(pid_t pid) {
  found_.clear();
  denied_ = false;
  const std::string process = cat(pid);
  read_descriptors(process + "/fd");
  bool mapped = read_mappings(process + "/maps");
  // The thread that stands for the process may have ended before the others, and each of them may
  // have descriptors of its own.
  const Directory tasks = open_directory(proc_, process + "/task");
  if (!tasks) note_failure(errno);
  std::vector<pid_t> tables{pid};
  for (const pid_t thread : tasks ? tasks_in(tasks.get()) : std::vector<pid_t>{}) {
    if (thread == pid || denied_) continue;
    const std::string task = cat(process, "/task/", thread);
    const bool stands_in = !mapped && (mapped = read_mappings(task + "/maps"));
    const bool known = std::any_of(tables.begin(), tables.end(), [thread](pid_t other) {
      return share_descriptors(other, thread);
    });
    if (known && !stands_in) continue;
    tables.push_back(thread);
    read_descriptors(task + "/fd");
  }
  if (!found_.empty()) keep(pid);
  if (denied_ && may_hold(pid)) ++scan_.unexamined;
}

// Not the kernel's own threads, nor one that has ended and is not yet waited for: they have no
// memory, and of the latter there is no thread but the first.
bool Scanner::may_hold(pid_t pid) const {
  const auto status = read_text(cat(root_, "/", pid, "/status"), 65536);
  if (!status) return !is_gone(status.error().number);
  return status->find("\nVmSize:") != std::string::npos ||
         status->find("\nThreads:\t1\n") == std::string::npos;
}

void Scanner::read_descriptors(const std::string& path) {
  const Directory directory = open_directory(proc_, path);
  if (!directory) return note_failure(errno);
  const int at = ::dirfd(directory.get());
  std::array<char, 512> target{};                             // a longer one is no buffer's
  while (const dirent* entry = ::readdir(directory.get())) {  // NOLINT(concurrency-mt-unsafe)
    if (entry->d_name[0] == '.') continue;
    const ssize_t length = ::readlinkat(at, entry->d_name, target.data(), target.size());
    if (length < 0) {
      if (errno == EACCES || errno == EPERM) return note_failure(errno);
      continue;  // closed meanwhile
    }
    const auto buffer = parse_buffer({target.data(), static_cast<std::size_t>(length)});
    if (!buffer || !may_be_lent(*buffer)) continue;
    struct stat status {};
    if (::fstatat(at, entry->d_name, &status, 0) != 0) continue;
    Holding& holding = found(*buffer, status.st_dev, status.st_ino);
    holding.size = Bytes(static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0)));
    ++holding.descriptors;
  }
}

// Whether there was anything: a process that has no memory (any more) has no mappings.
bool Scanner::read_mappings(const std::string& path) {
  const UniqueFd file(::openat(proc_, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return note_failure(errno), false;
  bool any = false;
  std::string text;
  for (;;) {
    constexpr std::size_t kPart = 65536;
    const std::size_t have = text.size();
    text.resize(have + kPart);
    const ssize_t got = ::read(file.get(), text.data() + have, kPart);
    const int problem = errno;
    text.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && problem == EINTR) continue;
    if (got < 0) note_failure(problem);
    if (got <= 0) return any;
    any = true;
    const std::size_t whole = text.rfind('\n') + 1;  // 0: none is
    take_lines(std::string_view(text).substr(0, whole));
    text.erase(0, whole);
  }
}

void Scanner::take_lines(std::string_view lines) {
  while (!lines.empty()) {
    const auto mapping = parse_mapping(take_until(lines, '\n'));
    if (!mapping || !may_be_lent(mapping->buffer)) continue;
    Holding& holding = found(mapping->buffer, mapping->device, mapping->inode);
    holding.mapped = std::max(holding.mapped, mapping->end);
    ++holding.mappings;
  }
}

Holding& Scanner::found(const BufferName& buffer, std::uint64_t device, std::uint64_t inode) {
  Holding& holding = found_[{buffer.kind, device, inode}];
  holding.kind = buffer.kind;
  holding.named = holding.named || buffer.name == kOurName;
  holding.device = device;
  holding.inode = inode;
  return holding;
}

// Says whose they are, and keeps them.
void Scanner::keep(pid_t pid) {
  const std::string process = cat(root_, "/", pid);
  const auto status = read_text(process + "/status", 65536);
  const auto command = read_text(process + "/comm", 256);
  if (!status || !command) {  // it has ended
    return note_failure((status ? command.error() : status.error()).number);
  }
  for (auto& [key, holding] : found_) {
    holding.pid = pid;
    holding.uid = effective_uid(*status);
    holding.command = command->substr(0, command->size() - (command->ends_with('\n') ? 1 : 0));
    scan_.holdings.push_back(std::move(holding));
  }
}

void Scanner::note_failure(int number) {
  if (!is_gone(number)) denied_ = true;
}

}  // namespace

std::optional<BufferName> parse_buffer(std::string_view path) {
  constexpr std::string_view kDeleted = " (deleted)";
  constexpr std::pair<std::string_view, BufferKind> kBeginnings[] = {
      {"/memfd:", BufferKind::kMemfd}, {"/dmabuf:", BufferKind::kDmaBuf}};
  for (const auto& [beginning, kind] : kBeginnings) {
    if (!path.starts_with(beginning)) continue;
    path.remove_prefix(beginning.size());
    if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
    return BufferName{kind, path};
  }
  return std::nullopt;
}

// 7f21c4a00000-7f21c4c00000 rw-s 00000000 00:01 1043    /memfd:carveout (deleted)
std::optional<MappedBuffer> parse_mapping(std::string_view line) {
  const auto begin = parse_number<std::uint64_t>(take_until(line, '-'), 16);
  const auto end = parse_number<std::uint64_t>(take_until(line, ' '), 16);
  take_until(line, ' ');  // permissions
  const auto offset = parse_number<std::uint64_t>(take_until(line, ' '), 16);
  const auto major = parse_number<unsigned>(take_until(line, ':'), 16);
  const auto minor = parse_number<unsigned>(take_until(line, ' '), 16);
  const auto inode = parse_number<std::uint64_t>(take_until(line, ' '), 10);
  if (!begin || !end || *end <= *begin || !offset || !major || !minor || !inode || *inode == 0) {
    return std::nullopt;
  }
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const auto buffer = parse_buffer(line);
  if (!buffer) return std::nullopt;
  const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - *offset;
  return MappedBuffer{*buffer, makedev(*major, *minor), *inode,
                      Bytes(*offset + std::min(room, *end - *begin))};
}

Result<ProcScan> scan_proc(const std::string& root, const std::set<pid_t>& leave_out) {
  const Directory proc = open_directory(AT_FDCWD, root);
  if (!proc) return system_error(errno, printable(root, 200), "cannot be read");
  Scanner scanner(root, ::dirfd(proc.get()));
  const auto processes = tasks_in(proc.get());
  for (const pid_t pid : processes) {
    if (!leave_out.contains(pid)) scanner.examine(pid);
  }
  ProcScan scan = scanner.take();
  // Every process sees a first one, unless it may not.
  scan.hides = std::find(processes.begin(), processes.end(), 1) == processes.end();
  return scan;
}

}  // namespace carveout::ctl
