#pragma once

// A ledger's text, line by line. Pure: no I/O.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ledger_history.hpp"

namespace carveout::daemon {

struct LedgerProblem {
  std::uint64_t line = 0;  // in its file, from 1
  std::string what;
};

struct LedgerScan {
  std::uint64_t records = 0;             // good ones
  std::optional<LedgerProblem> problem;  // the first
  std::size_t torn = 0;                  // bytes at the end that are not a whole line
};

enum class OnProblem {
  kStop,  // at the first, a torn end included: the audit
  kGoOn,  // leave out what cannot be read and take the rest: the daemon, at its start
};

// Takes the records of one file into `history`, behind those of the file before.
LedgerScan scan_ledger(std::string_view text, LedgerHistory& history, OnProblem on_problem);

}  // namespace carveout::daemon
