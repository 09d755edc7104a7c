#include "ledger.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "failpoint.hpp"
#include "ledger_scan.hpp"

namespace carveout::daemon {
namespace {

// More is not a ledger of ours: two files' worth, and what an adoption may add.
constexpr std::size_t kMostRead = 64U << 20U;

// No ledger of ours comes to count so far; beyond, its numbers and ids would begin anew.
constexpr std::uint64_t kMostNumber = 1ULL << 63U;

// What every record begins with.
constexpr std::string_view kBegin = R"({"seq":)";

std::string context_of(const std::string& path) {
  return cat("ledger ", printable(path, 200));
}

std::uint64_t microseconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec) / 1'000U;
}

// Whether it is another boot decides whether leases go on: nothing is guessed.
Result<std::string> boot_id() {
  auto text = read_text("/proc/sys/kernel/random/boot_id", 64);
  if (!text) return text;
  text->resize(std::min(text->find('\n'), text->size()));
  if (text->empty()) return Error{Code::kSystem, 0, "the kernel's boot id", "is empty"};
  return text;
}

bool is_full(const Error& problem) {
  return problem.number == ENOSPC || problem.number == EDQUOT || problem.number == EFBIG;
}

// A file of ours alone, locked for as long as it is open.
Result<UniqueFd> open_file(const std::string& path, int flags) {
  UniqueFd file(::open(path.c_str(),
                       O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | flags,
                       0600));
  if (!file) {
    const int problem = errno;
    return system_error(problem, context_of(path),
                        problem == ELOOP || problem == EISDIR
                            ? "is not a plain file: remove it, or choose another with --ledger"
                            : "cannot be opened");
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) {
    return system_error(errno, context_of(path), "cannot be examined");
  }
  if (!S_ISREG(status.st_mode)) {
    return Error{Code::kInvalid, 0, context_of(path),
                 "is not a plain file: choose another with --ledger"};
  }
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{Code::kInvalid, errno, context_of(path),
                 "another carveoutd writes it: stop that one, or choose another with --ledger"};
  }
  // That one may have replaced it just before it let go of it.
  struct stat now {};
  if (::stat(path.c_str(), &now) != 0 || now.st_ino != status.st_ino ||
      now.st_dev != status.st_dev) {
    return Error{Code::kInvalid, 0, context_of(path),
                 "another carveoutd has just replaced it: start again once that one has ended"};
  }
  return file;
}

LedgerEvent carried_as(LedgerHistory::State state) {
  switch (state) {
    case LedgerHistory::State::kRequested:
      return LedgerEvent::kRequested;
    case LedgerHistory::State::kGranted:
      return LedgerEvent::kGranted;
    case LedgerHistory::State::kLent:
      return LedgerEvent::kAdopted;
  }
  return LedgerEvent::kRequested;
}

// Whether somebody has taken the file away under us.
bool is_removed(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && status.st_nlink == 0;
}

std::string previous_of(const std::string& path) {
  return path + ".1";
}

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

Result<std::unique_ptr<Ledger>> Ledger::open(const std::string& path, Bytes reservation,
                                             std::size_t max_file) {
  auto ledger = read(path, max_file);
  if (!ledger) return ledger;
  if (auto begun = (*ledger)->begin(reservation); !begun) return begun.error();
  return ledger;
}

Result<std::unique_ptr<Ledger>> Ledger::read(const std::string& path, std::size_t max_file) {
  std::unique_ptr<Ledger> ledger(new Ledger(path, max_file));
  if (auto taken = ledger->take_up(); !taken) return taken.error();
  return ledger;
}

// Reads what is there and makes the file fit to be written on.
Result<void> Ledger::take_up() {
  auto boot = boot_id();
  if (!boot) return boot.error();
  this_boot_ = *std::move(boot);
  auto file = open_file(path_, O_CREAT);
  if (!file) return file.error();
  file_ = *std::move(file);
  const auto text = read_up_to(file_.get(), kMostRead + 1, context_of(path_));
  if (!text) return text.error();
  if (text->size() > kMostRead) {
    return Error{Code::kInvalid, 0, context_of(path_),
                 "is too large for a ledger: choose another with --ledger"};
  }
  const LedgerScan scan = scan_ledger(*text, history_, OnProblem::kGoOn);
  if (history_.empty() && !text->empty() && !text->starts_with(kBegin)) {
    return Error{Code::kInvalid, 0, context_of(path_),
                 "is another kind of file, and left alone: choose another with --ledger"};
  }
  const LedgerRecord& last = history_.last();
  if (std::max({last.seq, last.start, history_.last_lease(), history_.last_connection()}) >
      kMostNumber) {
    return Error{Code::kInvalid, 0, context_of(path_),
                 "its numbers are used up: choose another with --ledger"};
  }
  // A damaged file is kept as it is.
  size_ = text->size() - (scan.problem ? 0 : scan.torn);
  boot_ = history_.empty() ? this_boot_ : history_.last().boot;
  same_boot_ = boot_ == this_boot_;
  start_ = history_.last().start;
  if (scan.torn != 0 && !scan.problem) {
    notes_.push_back(cat(context_of(path_), ": its last line was cut short: the ", scan.torn,
                         " bytes of it are cut off"));
    if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) {
      return system_error(errno, context_of(path_), "cannot be repaired");
    }
  }
  if (scan.problem) {
    notes_.push_back(cat(context_of(path_), ": line ", scan.problem->line, " ", scan.problem->what,
                         ": going on with what can be read; the file is kept as ",
                         printable(previous_of(path_), 200)));
  }
  // With room for restating everything in it; unless that is all that it does (we died just then).
  if (scan.problem || (size_ > max_file_ / 2 && !history_.at_head())) {
    auto rotated = rotate();
    // Without room for a new file the old one will do, unless it is damaged.
    return scan.problem || (!rotated && !is_full(rotated.error())) ? rotated : Result<void>();
  }
  if (history_.at_head()) head_ = size_;
  return {};
}

// Without room for its records a start is recorded before anything else can be: until then nothing
// is lent, but what is lent goes on.
Result<void> Ledger::begin(Bytes reservation) {
  boot_ = this_boot_;
  ++start_;
  LedgerRecord started;
  started.event = LedgerEvent::kStarted;
  started.reservation = reservation;
  started.lease = history_.last_lease();
  started.connection = history_.last_connection();
  owed_.push_back(std::move(started));
  for (const std::string& note : notes_) {
    LedgerRecord repaired;
    repaired.event = LedgerEvent::kRepaired;
    repaired.reason = note;
    owed_.push_back(std::move(repaired));
  }
  auto paid = pay();
  if (!paid && !is_full(paid.error())) return paid;
  if (!paid) notes_.push_back(paid.error().describe());
  return {};
}

Result<void> Ledger::append(const LedgerRecord& record) {
  const std::lock_guard lock(mutex_);
  if (auto paid = pay(); !paid) return paid;
  auto written = write(record);
  if (written && fails_at(name_of(record.event), "after", record.size)) return as_told();
  return written;
}

// The id is given under the lock: in the file they stand in order, whichever thread asks.
Result<void> Ledger::request(LedgerRecord record, std::uint64_t& lease) {
  const std::lock_guard lock(mutex_);
  lease = 0;
  if (auto paid = pay(); !paid) return paid;
  record.event = LedgerEvent::kRequested;
  record.lease = history_.last_lease() + 1;
  if (auto written = write(record); !written) return written;
  lease = record.lease;
  if (fails_at(name_of(record.event), "after", record.size)) return as_told();
  return {};
}

void Ledger::append_owed(LedgerRecord record) {
  const std::lock_guard lock(mutex_);
  owed_.push_back(std::move(record));
  (void)pay();
}

void Ledger::end(std::uint64_t lease, std::string_view reason) {
  const std::lock_guard lock(mutex_);
  end_as(lease, std::nullopt, reason);
}

bool Ledger::refuse(std::uint64_t lease, std::string_view reason) {
  const std::lock_guard lock(mutex_);
  return end_as(lease, LedgerEvent::kRefused, reason);
}

void Ledger::lose(std::uint64_t lease, std::string_view reason) {
  const std::lock_guard lock(mutex_);
  end_as(lease, LedgerEvent::kLost, reason);
}

void Ledger::end_all(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> open;
  for (const auto& [id, lease] : history_.open())
    open.push_back(id);
  for (const std::uint64_t lease : open)
    end_as(lease, std::nullopt, reason);
}

bool Ledger::end_as(std::uint64_t lease, std::optional<LedgerEvent> event,
                    std::string_view reason) {
  (void)pay();
  const auto open = history_.open().find(lease);
  if (open == history_.open().end()) return false;
  const LedgerRecord& before = open->second.record;
  bool request = open->second.state == LedgerHistory::State::kRequested;
  // What is still owed may say how the lease stands.
  for (const LedgerRecord& owed : owed_) {
    if (owed.lease != lease) continue;
    if (ends_a_lease(owed.event)) return false;
    request = owed.event == LedgerEvent::kRequested;
  }
  LedgerRecord record;
  record.event = event.value_or(request ? LedgerEvent::kRefused : LedgerEvent::kReleased);
  record.lease = lease;
  record.reason = reason;
  record.connection = before.connection;
  record.size = before.size;
  if (record.event == LedgerEvent::kRefused) {
    record.uid = before.uid;
    record.gid = before.gid;
    record.pid = before.pid;
    record.asked = before.asked;
  }
  owed_.push_back(std::move(record));
  (void)pay();
  return true;
}

std::uint64_t Ledger::records() const {
  const std::lock_guard lock(mutex_);
  return records_;
}

bool Ledger::retry() {
  const std::lock_guard lock(mutex_);
  if (failing_ && pay() && failing_) {
    LedgerRecord repaired;
    repaired.event = LedgerEvent::kRepaired;
    repaired.reason = "it can be written again";
    (void)write(std::move(repaired));
  }
  return !failing_;
}

bool Ledger::failing() const {
  const std::lock_guard lock(mutex_);
  return failing_;
}

std::size_t Ledger::owed() const {
  const std::lock_guard lock(mutex_);
  return owed_.size();
}

Result<void> Ledger::pay() {
  while (!owed_.empty()) {
    if (auto written = write(owed_.front()); !written) return written;
    (void)fails_at(name_of(owed_.front().event), "after", owed_.front().size);
    owed_.pop_front();
  }
  return {};
}

void Ledger::fill(LedgerRecord& record, std::uint64_t seq) const {
  record.seq = seq;
  record.boot = boot_;
  record.start = start_;
  const std::uint64_t before = record.unix_us;
  record.unix_us = microseconds(CLOCK_REALTIME);
  record.mono_us = microseconds(CLOCK_MONOTONIC);
  // A file that is replaced before this boot has begun in it goes on in the old boot's time.
  if (boot_ == history_.last().boot) {
    record.mono_us = std::max(record.mono_us, history_.last().mono_us);
  }
  // Of a damaged file perhaps only the request is known.
  const bool lends = record.event == LedgerEvent::kGranted || record.event == LedgerEvent::kAdopted;
  if (lends && record.since_unix_us == 0) {
    record.since_unix_us = before != 0 ? before : record.unix_us;
  }
}

Result<void> Ledger::write(LedgerRecord record) {
  if (fails_at(name_of(record.event), "before", record.size)) return as_told();
  auto written = write_line(record);
  failing_ = !written;
  return written;
}

Result<void> Ledger::write_line(LedgerRecord& record) {
  fill(record, history_.last().seq + 1);
  std::string line = encode(record);
  const bool removed = is_removed(file_.get());
  // While an earlier start's leases are being adopted, what they are is not settled.
  const bool settled = !history_.any_pending() && history_.last().start == start_;
  if ((removed || size_ + line.size() > std::max(max_file_, 2 * head_)) && settled) {
    if (auto rotated = rotate(); !rotated) return rotated;
    if (removed) {
      LedgerRecord repaired;
      repaired.event = LedgerEvent::kRepaired;
      repaired.reason = "the file had been removed: this one begins with what was open";
      if (auto written = write_line(repaired); !written) return written;
    }
    fill(record, history_.last().seq + 1);
    line = encode(record);
  }
  if (auto written = write_text(line); !written) return written;
  history_.take(record);
  ++records_;
  return {};
}

Result<void> Ledger::write_text(std::string_view text) {
  if (torn_ && ::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) {
    return system_error(errno, context_of(path_), "a line that failed cannot be cut off");
  }
  torn_ = false;
  ssize_t put = -1;
  do {
    put = ::write(file_.get(), text.data(), text.size());
  } while (put < 0 && errno == EINTR);
  if (put == static_cast<ssize_t>(text.size())) {
    size_ += text.size();
    return {};
  }
  const int problem = put < 0 ? errno : ENOSPC;
  torn_ = put > 0 && ::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0;
  return system_error(problem, context_of(path_),
                      "cannot be written: nothing more is lent until it can be (make room there)");
}

// A new file, which begins with what is open; this one becomes the one before. The path names a
// whole ledger at every moment.
Result<void> Ledger::rotate() {
  const std::string next = path_ + ".next";
  const std::string previous = previous_of(path_);
  LedgerRecord started;
  started.event = LedgerEvent::kStarted;
  started.reservation = history_.reservation();
  started.follows = base_name(previous);
  started.lease = history_.last_lease();
  started.connection = history_.last_connection();
  fill(started, history_.last().seq + 1);
  std::string text = encode(started);
  LedgerHistory after;
  after.take(started);
  std::uint64_t records = 1;
  for (const auto& [id, lease] : history_.open()) {
    LedgerRecord record = lease.record;
    record.event = carried_as(lease.state);
    record.carried = true;
    record.reason.clear();
    fill(record, after.last().seq + 1);
    if (after.objection(record)) continue;  // of a damaged file
    text += encode(record);
    after.take(record);
    ++records;
  }

  const std::string link = previous + ".next";
  ::unlink(next.c_str());
  ::unlink(link.c_str());
  auto file = open_file(next, O_CREAT | O_EXCL);
  if (!file) return file.error();
  const ssize_t put = ::write(file->get(), text.data(), text.size());
  if (put != static_cast<ssize_t>(text.size())) {
    const int problem = put < 0 ? errno : ENOSPC;
    ::unlink(next.c_str());
    return system_error(problem, context_of(next), "cannot be written (make room there)");
  }
  // The file before it has its place only once this one is whole.
  const bool linked = ::link(path_.c_str(), link.c_str()) == 0
                          ? ::rename(link.c_str(), previous.c_str()) == 0
                          : errno == ENOENT;
  if (!linked || ::rename(next.c_str(), path_.c_str()) != 0) {
    const int problem = errno;
    ::unlink(link.c_str());
    ::unlink(next.c_str());
    return system_error(problem, context_of(path_), "cannot be replaced by a new file");
  }
  file_ = *std::move(file);
  size_ = head_ = text.size();
  torn_ = false;
  history_ = std::move(after);
  records_ += records;
  return {};
}

}  // namespace carveout::daemon
