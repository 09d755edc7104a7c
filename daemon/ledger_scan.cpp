#include "ledger_scan.hpp"

#include "base/text.hpp"

namespace carveout::daemon {
namespace {

// What is wrong with a line; if it is a record, it goes into `record`.
std::optional<std::string> examine(std::string_view line, std::uint64_t number,
                                   const LedgerHistory& history,
                                   std::optional<LedgerRecord>& record) {
  auto decoded = decode(line);
  if (!decoded) return decoded.error().message;
  record = *std::move(decoded);
  auto objection = history.objection(*record);
  // What it would have to restate might be missing at the text's end, unnoticed.
  if (!objection && number != 1 && !record->follows.empty()) {
    objection = "a new file does not begin within another";
  }
  if (!objection) return std::nullopt;
  return cat("(", name_of(record->event), ", number ", record->seq, ") ", *objection);
}

}  // namespace

LedgerScan scan_ledger(std::string_view text, LedgerHistory& history, OnProblem on_problem) {
  LedgerScan scan;
  for (std::uint64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) {
      scan.torn = text.size();
      if (on_problem == OnProblem::kStop) {
        scan.problem = {number, cat("the last line is cut short (", scan.torn, " bytes of it)")};
      }
      return scan;
    }
    std::optional<LedgerRecord> record;
    auto wrong = examine(text.substr(0, end), number, history, record);
    text.remove_prefix(end + 1);
    if (wrong) {
      if (!scan.problem) scan.problem = {number, *std::move(wrong)};
      if (on_problem == OnProblem::kStop) return scan;
    } else {
      ++scan.records;
    }
    if (record) history.take(*record);
  }
  return scan;
}

}  // namespace carveout::daemon
