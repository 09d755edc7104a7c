// Any bytes as a ledger: to the audit, and as what a daemon finds at its start and goes on with.
// Behind a '+' every line is sealed anew, behind a '#' numbered anew as well; anything else is
// taken as it is.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "ledger.hpp"
#include "ledger_scan.hpp"
#include "reseal.hpp"

namespace {

using namespace carveout;          // NOLINT(google-build-using-namespace)
using namespace carveout::daemon;  // NOLINT(google-build-using-namespace)
using State = LedgerHistory::State;
using Sum = unsigned __int128;

constexpr Bytes kReservation = mib(16);
constexpr std::size_t kMostRead = 1U << 24U;

void must(bool good) {
  if (!good) std::abort();
}

// In memory, for as long as we run.
class Directory {
 public:
  Directory() { must(::mkdtemp(path_.data()) != nullptr); }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  [[nodiscard]] std::string ledger() const { return path_ + "/ledger"; }
  [[nodiscard]] std::string previous() const { return path_ + "/ledger.1"; }

  // Nothing in it but a ledger of this text.
  void fill(std::string_view text) const {
    ::unlink(ledger().c_str());
    ::unlink(previous().c_str());
    const UniqueFd file(::open(ledger().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    must(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }

 private:
  std::string path_ = "/dev/shm/carveout-fuzz-XXXXXX";
};

auto all_of(const LedgerRecord& r) {
  return std::tie(r.seq, r.boot, r.start, r.unix_us, r.mono_us, r.event, r.reservation, r.follows,
                  r.carried, r.connection, r.lease, r.uid, r.gid, r.pid, r.asked, r.size, r.inode,
                  r.since_unix_us, r.command, r.unit, r.cgroup, r.reason);
}

Sum lent(const LedgerHistory& history) {
  Sum sum = 0;
  for (const auto& [id, lease] : history.open()) {
    if (lease.state != State::kRequested) sum += lease.record.size.count();
  }
  return sum;
}

bool same_open(const LedgerHistory& a, const LedgerHistory& b) {
  return std::equal(a.open().begin(), a.open().end(), b.open().begin(), b.open().end(),
                    [](const auto& x, const auto& y) {
                      const LedgerRecord& one = x.second.record;
                      const LedgerRecord& other = y.second.record;
                      return x.first == y.first && x.second.state == y.second.state &&
                             one.connection == other.connection && one.size == other.size &&
                             one.asked == other.asked && one.pid == other.pid &&
                             one.command == other.command;
                    });
}

// The audit, record by record.
std::uint64_t replay(std::string_view text) {
  LedgerHistory history;
  std::uint64_t records = 0;
  for (std::string_view line : fuzz::lines_of(text)) {
    if (!line.ends_with('\n')) break;
    line.remove_suffix(1);
    const auto record = decode(line);
    if (!record) break;
    // It can be said again, and then says the same.
    std::string again = encode(*record);
    must(again.size() <= kMaxLedgerLine && again.find('\n') == again.size() - 1);
    again.pop_back();
    const auto second = decode(again);
    must(second && all_of(*second) == all_of(*record));

    if (history.objection(*record) || (records != 0 && !record->follows.empty())) break;
    const Sum before = lent(history);
    history.take(*record);
    ++records;
    // No grant exceeds the reservation, and nothing but a grant adds to what is lent. (It can be
    // exceeded when the daemon is started with a smaller one.)
    if (record->carried) continue;
    const bool granted = record->event == LedgerEvent::kGranted;
    must(lent(history) <= (granted ? Sum{history.reservation().count()} : before));
  }
  return records;
}

// Strictly, from nothing or behind the file before; what is open then.
LedgerHistory must_be_good(const Directory& directory) {
  const auto text = read_text(directory.ledger(), kMostRead);
  must(text.has_value());
  LedgerHistory alone;
  must(!scan_ledger(*text, alone, OnProblem::kStop).problem);
  if (const auto before = read_text(directory.previous(), kMostRead)) {
    LedgerHistory both;
    // A damaged one is kept as it is.
    if (!scan_ledger(*before, both, OnProblem::kStop).problem) {
      must(!scan_ledger(*text, both, OnProblem::kStop).problem);
      must(same_open(both, alone));
    }
  }
  return alone;
}

std::unique_ptr<Ledger> open(const Directory& directory, std::size_t max_file) {
  auto ledger = Ledger::open(directory.ledger(), kReservation, max_file);
  must(ledger.has_value());
  for (const auto& [id, lease] : (*ledger)->history().open())
    must(lease.pending);
  must(same_open((*ledger)->history(), must_be_good(directory)));
  return *std::move(ledger);
}

// As the daemon goes on with what an earlier start left: leases are adopted or lost, requests
// served or refused.
void adopt(Ledger& ledger) {
  std::vector<LedgerHistory::Open> left;
  for (const auto& [id, lease] : ledger.history().open())
    left.push_back(lease);
  for (auto& [state, pending, record] : left) {
    if (record.lease % 3 == 0) {
      ledger.lose(record.lease, "its connection has ended");
    } else if (state == State::kRequested) {
      ledger.refuse(record.lease, "not enough is free after the restart");
    } else {
      record.event = LedgerEvent::kAdopted;
      record.carried = false;
      ledger.append_owed(record);
    }
  }
  must(!ledger.history().any_pending() && ledger.owed() == 0);
}

void lend(Ledger& ledger) {
  for (unsigned i = 0; i < 6; ++i) {
    LedgerRecord record;
    record.lease = ledger.history().last_lease() + 1;
    record.connection = ledger.history().last_connection() + i % 2;
    record.pid = i;
    record.asked = Bytes(1);
    record.size = kSliceBytes;
    record.command = "borrower";
    record.event = LedgerEvent::kRequested;
    must(ledger.append(record).has_value());
    const bool fits = lent(ledger.history()) + kSliceBytes.count() <= kReservation.count();
    if (i % 4 == 3 || !fits) {
      ledger.refuse(record.lease, "not enough is free");
      continue;
    }
    record.event = LedgerEvent::kGranted;
    must(ledger.append(record).has_value());
    if (i % 4 == 2) {  // its reply is held up
      record.event = LedgerEvent::kRequested;
      ledger.append_owed(record);
      record.event = LedgerEvent::kGranted;
      must(ledger.append(record).has_value());
    }
    record.event = LedgerEvent::kAnswered;
    ledger.append_owed(record);
    if (i % 3 == 0) ledger.end(record.lease, "");
  }
  must(ledger.owed() == 0);
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  return fuzz::mutate_lines(data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Directory directory;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const bool renumber = bytes.starts_with('#');
  const std::string text = renumber || bytes.starts_with('+')
                               ? fuzz::reseal(bytes.substr(1), renumber)
                               : std::string(bytes);

  LedgerHistory strict;
  const LedgerScan audited = scan_ledger(text, strict, OnProblem::kStop);
  must(audited.records == replay(text));
  LedgerHistory loose;
  const LedgerScan taken = scan_ledger(text, loose, OnProblem::kGoOn);
  must(taken.records >= audited.records);

  const LedgerRecord& last = loose.last();
  const auto highest =
      std::max({last.seq, last.start, loose.last_lease(), loose.last_connection()});
  const bool another_kind = loose.empty() && !text.empty() && !text.starts_with("{\"seq\":");
  if (highest > std::uint64_t{1} << 63U || another_kind) {
    directory.fill(text);
    must(!Ledger::open(directory.ledger(), kReservation));
    return 0;
  }
  // Half of them are replaced by new ones again and again.
  const std::size_t max_file = size % 2 == 0 ? 1024 : 65536;
  directory.fill(text);
  {
    const auto ledger = open(directory, max_file);
    if (!taken.problem) must(same_open(ledger->history(), strict));
    adopt(*ledger);
    lend(*ledger);
    must(same_open(ledger->history(), must_be_good(directory)));
  }
  const auto ledger = open(directory, max_file);
  adopt(*ledger);
  ledger->end_all("the daemon stops");
  must(must_be_good(directory).open().empty());
  return 0;
}
