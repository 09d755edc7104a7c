#include "unit/ledger_story.hpp"

#include <utility>

#include "base/text.hpp"

namespace carveout::daemon {

void LedgerStory::tell(std::size_t records) {
  while (seq_ < records)
    step();
}

std::string LedgerStory::text_of(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines)
    text += line;
  return text;
}

void LedgerStory::step() {
  const std::uint64_t what = below(100);
  if (what < 30) return request();
  if (what < 55) return grant();
  if (what < 75) return answer();
  if (what < 90) return release();
  if (what < 93) return refuse();
  if (what < 95) return hold_up();
  if (what < 97) return complain();
  if (what < 98) return next_file();
  if (below(4) == 0) {
    if (below(2) == 0) write(LedgerEvent::kStopped, {});
    if (below(2) == 0) next_file();
    start();
  }
}

void LedgerStory::start() {
  const bool rebooted = start_ == 0 || below(5) == 0;
  if (files_.empty()) files_.emplace_back();
  ++start_;
  if (rebooted) {
    ++boot_;
    mono_us_ = below(1'000'000);
  }
  LedgerRecord started;
  started.reservation = Slices(kSlices).bytes();
  started.lease = last_lease_;
  started.connection = last_connection_;
  write(LedgerEvent::kStarted, started);
  if (below(3) == 0) write(LedgerEvent::kRepaired, {});
  const auto left = open_;
  for (const auto& [lease, state] : left) {
    if (below(40) == 0) return start();  // it dies once more, and leaves the rest to the next
    const bool lost = rebooted || below(4) == 0;
    if (state != State::kRequested) {
      put(lost ? LedgerEvent::kLost : LedgerEvent::kAdopted, lease);
    } else {
      put(lost ? LedgerEvent::kLost : LedgerEvent::kRefused, lease);
    }
  }
}

void LedgerStory::next_file() {
  // The one before has something in it.
  if (files_.back().size() <= open_.size() + 1) return;
  files_.emplace_back();
  LedgerRecord started;
  started.reservation = Slices(kSlices).bytes();
  started.follows = "ledger.jsonl.1";
  started.lease = last_lease_;
  started.connection = last_connection_;
  write(LedgerEvent::kStarted, started);
  for (const auto& [lease, state] : open_) {
    LedgerRecord record = borrowers_.at(lease);
    record.carried = true;
    write(state == State::kRequested ? LedgerEvent::kRequested
          : state == State::kGranted ? LedgerEvent::kGranted
                                     : LedgerEvent::kAdopted,
          record);
  }
}

void LedgerStory::request() {
  if (open_.size() > 12) return;
  LedgerRecord record;
  record.lease = ++last_lease_;
  // A new connection, or one that was there before.
  record.connection =
      last_connection_ == 0 || below(3) != 0 ? ++last_connection_ : 1 + below(last_connection_);
  record.uid = static_cast<std::uint32_t>(below(3));
  record.gid = record.uid + 100;
  record.pid = static_cast<std::uint32_t>(1000 + below(1000));
  record.size = Slices(1 + below(5)).bytes();
  record.asked = record.size - Bytes(below(kSliceBytes.count()));
  borrowers_[record.lease] = record;
  write(LedgerEvent::kRequested, record);
  open_[record.lease] = State::kRequested;
}

void LedgerStory::grant() {
  const std::uint64_t lease = one_of(State::kRequested);
  if (lease == 0) return;
  LedgerRecord& borrower = borrowers_.at(lease);
  if (lent() + borrower.size > Slices(kSlices).bytes()) return;
  borrower.inode = 1 + below(1000);
  borrower.since_unix_us = 1'700'000'000'000'000 + seq_;
  borrower.command = cat("command ", lease);
  borrower.cgroup = below(2) == 0 ? "" : "/system.slice/a.service";
  borrower.unit = borrower.cgroup.empty() ? "" : "a.service";
  put(LedgerEvent::kGranted, lease);
}

void LedgerStory::answer() {
  if (const auto lease = one_of(State::kGranted)) put(LedgerEvent::kAnswered, lease);
}

void LedgerStory::release() {
  if (const auto lease = one_of(State::kLent)) put(LedgerEvent::kReleased, lease);
}

void LedgerStory::refuse() {
  const auto lease = one_of(below(2) == 0 ? State::kRequested : State::kGranted);
  if (lease != 0) put(LedgerEvent::kRefused, lease);
}

void LedgerStory::hold_up() {
  if (const auto lease = one_of(State::kGranted)) put(LedgerEvent::kRequested, lease);
}

void LedgerStory::complain() {
  LedgerRecord record;
  record.connection = ++last_connection_;
  record.reason = "bad size";
  write(below(2) == 0 ? LedgerEvent::kRefused : LedgerEvent::kLost, record);
}

void LedgerStory::put(LedgerEvent event, std::uint64_t lease) {
  write(event, borrowers_.at(lease));
  switch (event) {
    case LedgerEvent::kRequested:
      open_[lease] = State::kRequested;
      break;
    case LedgerEvent::kGranted:
      open_[lease] = State::kGranted;
      break;
    case LedgerEvent::kAnswered:
    case LedgerEvent::kAdopted:
      open_[lease] = State::kLent;
      break;
    default:
      open_.erase(lease);
  }
}

void LedgerStory::write(LedgerEvent event, LedgerRecord record) {
  record.event = event;
  record.seq = ++seq_;
  record.boot = cat("boot ", boot_);
  record.start = start_;
  record.mono_us = mono_us_ += below(1000);
  record.unix_us = 1'700'000'000'000'000 + below(1'000'000);
  files_.back().push_back(encode(record));
}

std::uint64_t LedgerStory::one_of(State state) {
  std::vector<std::uint64_t> all;
  for (const auto& [lease, its] : open_) {
    if (its == state) all.push_back(lease);
  }
  return all.empty() ? 0 : all[below(all.size())];
}

Bytes LedgerStory::lent() const {
  Bytes sum;
  for (const auto& [lease, state] : open_) {
    if (state != State::kRequested) sum = sum + borrowers_.at(lease).size;
  }
  return sum;
}

}  // namespace carveout::daemon
