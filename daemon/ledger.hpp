#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "ledger_history.hpp"

namespace carveout::daemon {

// The record of what is lent, in a file that outlives the daemon (docs/ledger.md). Append-only;
// each line is one write(2). It is not synced to a disk: a lease does not outlive the machine. Any
// thread. Blocks as long as the file system needs for a line, which /run answers from memory.
class Ledger {
 public:
  // A file that would grow beyond this is replaced by a new one, which begins with what is open;
  // the old one is kept as PATH.1 in the place of the one before it. So there are never more than
  // two such files' bytes. A thousand leases restated take up to 2.7 MiB. (A file more than half of
  // which restates may grow to twice that: else each record would come to have its own.)
  static constexpr std::size_t kMaxFile = 4U << 20U;

  // Takes up the file at `path`, or makes it. Afterwards history() is what the earlier starts left,
  // all of it pending, and this start is recorded. Errors: kSystem, kInvalid (not a plain file, or
  // another daemon's). A torn end is cut off; a file with damaged lines is replaced by a new one
  // that begins with what could be read. notes() says so.
  static Result<std::unique_ptr<Ledger>> open(const std::string& path, Bytes reservation,
                                              std::size_t max_file = kMaxFile);
  // The same in two steps: history() is what the earlier starts left, and nothing is recorded yet.
  static Result<std::unique_ptr<Ledger>> read(const std::string& path,
                                              std::size_t max_file = kMaxFile);
  Result<void> begin(Bytes reservation);

  // What happens only if it can be recorded. After an error nothing is recorded. Fills in what all
  // records have: number, epoch and times.
  Result<void> append(const LedgerRecord& record);

  // A request, under the next lease id, which it gives to `lease` (0: nothing is recorded). Errors
  // as append().
  Result<void> request(LedgerRecord record, std::uint64_t& lease);

  // What has happened already: if it cannot be recorded now, it is before anything else is.
  void append_owed(LedgerRecord record);

  // The end of a request or lease, if the ledger has it open: a request was refused, a lease has
  // been released.
  void end(std::uint64_t lease, std::string_view reason);
  // The request was refused, even if it was granted already. False if the ledger does not have it.
  bool refuse(std::uint64_t lease, std::string_view reason);
  // What an earlier start left cannot go on.
  void lose(std::uint64_t lease, std::string_view reason);
  // The end of all that is open.
  void end_all(std::string_view reason);

  [[nodiscard]] const std::string& path() const { return path_; }
  // Only while no other thread appends.
  [[nodiscard]] const LedgerHistory& history() const { return history_; }
  // Whether what it was left with is of this boot of the machine.
  [[nodiscard]] bool same_boot() const { return same_boot_; }
  // What an operator should be told of how the file was found.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  // Written by this start.
  [[nodiscard]] std::uint64_t records() const;
  // While it is failing: tries again. Whether it is not any more.
  bool retry();
  // The last record could not be written.
  [[nodiscard]] bool failing() const;
  // Happened, but not recorded yet.
  [[nodiscard]] std::size_t owed() const;

 private:
  Ledger(std::string path, std::size_t max_file) : path_(std::move(path)), max_file_(max_file) {}
  Result<void> take_up();
  Result<void> write(LedgerRecord record);
  Result<void> write_line(LedgerRecord& record);
  Result<void> write_text(std::string_view text);
  bool end_as(std::uint64_t lease, std::optional<LedgerEvent> event, std::string_view reason);
  Result<void> pay();
  Result<void> rotate();
  void fill(LedgerRecord& record, std::uint64_t seq) const;

  const std::string path_;
  const std::size_t max_file_;
  std::vector<std::string> notes_;
  bool same_boot_ = false;
  std::string this_boot_;

  mutable std::mutex mutex_;  // for all below, once open() is done
  UniqueFd file_;
  std::size_t size_ = 0;  // of the file: up to the end of the last whole line
  std::size_t head_ = 0;  // ... and of what it restates of the file before
  bool torn_ = false;     // ... behind which there may be a part of a line that failed
  std::string boot_;
  std::uint64_t start_ = 0;
  LedgerHistory history_;
  std::deque<LedgerRecord> owed_;
  bool failing_ = false;
  std::uint64_t records_ = 0;
};

}  // namespace carveout::daemon
