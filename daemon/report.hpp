#pragma once

// What the control socket answers, as JSON: members' names carry their unit.

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "counters.hpp"
#include "lending.hpp"
#include "reservation.hpp"
#include "source/source.hpp"

namespace carveout::daemon {

struct Status {
  std::chrono::system_clock::time_point started = {};
  Description source = {};
  Figures figures = {};
  bool draining = false;
  bool capped = false;  // `largest` is below `free` because the kernel refused a moment ago
  bool holds = false;   // what is not lent is claimed all the same, so that nobody else takes it
  Bytes missing = {};   // ... and what of it is neither lent nor to be had
  std::size_t leases = 0;
  std::size_t borrowers = 0;  // connections that hold a lease
  std::size_t connections = 0;
  std::vector<std::string> sockets = {};
  bool refuses_descriptors = false;
  Counters counters = {};
  std::uint64_t granted = 0;
  std::uint64_t released = 0;
  std::uint64_t adopted = 0;  // leases of an earlier start that went on, and that did not
  std::uint64_t lost = 0;
  std::string ledger = {};  // its path; empty: none
  std::uint64_t ledger_records = 0;
  bool ledger_failing = false;  // the last record could not be written
  std::size_t ledger_owed = 0;  // what happened, but could not be recorded yet
  std::size_t store_used = 0;   // of the service manager's descriptor store; store_most 0: none
  std::size_t store_most = 0;
  std::uint64_t log_lines_dropped = 0;
  std::uint64_t log_lines_left_out = 0;
};

std::string status_json(const Status& status);
std::string leases_json(const std::map<std::uint64_t, Lease>& leases);
std::string draining_json(bool draining, std::size_t leases);

}  // namespace carveout::daemon
