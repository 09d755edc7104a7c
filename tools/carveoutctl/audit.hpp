#pragma once

#include <rapidjson/document.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace carveout::ctl {

// Replays ledgers from nothing, in the order of their records whatever the order of `paths`. The
// answer (see audit_table()) is ok, or has the first bad record's file, line and what is wrong with
// it. Errors: a file that cannot be read.
Result<rapidjson::Document> audit(const std::vector<std::string>& paths);

std::string audit_table(const rapidjson::Value& reply);

// The leases that are open at the end of a ledger, as the daemon answers `leases`. A ledger that
// does not pass the audit is an error.
Result<rapidjson::Document> leases_of_ledger(const std::string& path);

// A lease that was granted, and its memory.
struct RecordedLease {
  Bytes size;
  std::uint64_t inode = 0;
  bool ended = false;
};

struct RecordedLeases {
  std::map<std::uint64_t, RecordedLease> leases;  // of this boot, by lease id
  std::set<std::uint64_t> earlier;                // ids of other boots' leases
  std::uint64_t records = 0;
  std::uint64_t unreadable = 0;  // lines
};

// Every lease that a ledger, and the file before it (FILE.1) if there is one, know of. Makes the
// best of lines that cannot be read. Inodes mean something in their own boot only: `boot` is the
// kernel's boot id. Errors: a file that cannot be read, or is no ledger.
Result<RecordedLeases> recorded_leases(const std::string& path, std::string_view boot);

}  // namespace carveout::ctl
