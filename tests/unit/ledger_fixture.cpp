#include "unit/ledger_fixture.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/text.hpp"

namespace carveout::daemon {

FileLimit::FileLimit(std::size_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
  EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
  rlimit lower = before_;
  lower.rlim_cur = bytes;
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &lower), 0);
}

FileLimit::~FileLimit() {
  ::setrlimit(RLIMIT_FSIZE, &before_);
  std::signal(SIGXFSZ, handler_);
}

std::unique_ptr<Ledger> LedgerPlace::open(std::size_t max_file, std::uint64_t slices) const {
  auto ledger = Ledger::open(path_, Slices(slices).bytes(), max_file);
  EXPECT_TRUE(ledger) << ledger.error().describe();
  return ledger ? *std::move(ledger) : nullptr;
}

Error LedgerPlace::refusal() const {
  const auto ledger = Ledger::open(path_, Slices(kReserved).bytes());
  EXPECT_FALSE(ledger);
  return ledger ? Error{} : ledger.error();
}

LedgerRecord LedgerPlace::of(LedgerEvent event, std::uint64_t lease, std::uint64_t slices) {
  LedgerRecord record;
  record.event = event;
  record.lease = lease;
  record.connection = 100 + lease;
  record.uid = 1000;
  record.gid = 1001;
  record.pid = 4242;
  record.asked = record.size = Slices(slices).bytes();
  record.command = "python3";
  return record;
}

void LedgerPlace::lend(Ledger& ledger, std::uint64_t lease, std::uint64_t slices) {
  EXPECT_TRUE(ledger.append(of(LedgerEvent::kRequested, lease, slices)));
  EXPECT_TRUE(ledger.append(of(LedgerEvent::kGranted, lease, slices)));
  ledger.append_owed(of(LedgerEvent::kAnswered, lease, slices));
}

std::string LedgerPlace::read(const std::string& path) {
  const auto text = read_text(path, 16U << 20U);
  EXPECT_TRUE(text) << text.error().describe();
  return text ? *text : "";
}

std::vector<LedgerRecord> LedgerPlace::records_of(std::string_view text) {
  std::vector<LedgerRecord> records;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const auto record = decode(text.substr(0, end));
    EXPECT_TRUE(record) << record.error().message << ": " << text.substr(0, end);
    if (record) records.push_back(*record);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return records;
}

std::vector<LedgerEvent> LedgerPlace::events() const {
  std::vector<LedgerEvent> all;
  for (const LedgerRecord& record : records_of(text()))
    all.push_back(record.event);
  return all;
}

std::string LedgerPlace::audit(const std::vector<std::string>& texts) {
  LedgerHistory history;
  for (const std::string& text : texts) {
    const LedgerScan scan = scan_ledger(text, history, OnProblem::kStop);
    if (scan.problem) return cat("line ", scan.problem->line, ": ", scan.problem->what);
  }
  return "good";
}

std::vector<std::string> LedgerPlace::files() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path()))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace carveout::daemon
