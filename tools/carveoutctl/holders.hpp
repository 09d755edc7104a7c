#pragma once

#include <rapidjson/document.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit.hpp"
#include "base/bytes.hpp"
#include "base/result.hpp"
#include "proc_scan.hpp"

namespace carveout::ctl {

struct HoldersQuery {
  std::string control;
  std::string ledger;  // empty: the daemon's
  std::optional<std::uint64_t> lease;
};

// Who holds lent memory (see holders_table()): of leases that are open, by what the daemon says, or
// by the ledger if one is named; of leases that have ended, by the ledger. Errors: a daemon that
// does not answer, unless a ledger is named; that ledger; a lease that nobody knows, or whose
// memory cannot be recognised.
Result<rapidjson::Document> holders(const HoldersQuery& query);

// --- the joining: pure ---

struct Holder {
  std::optional<std::uint64_t> lease;  // none: no record knows it
  std::string_view state;              // lent, ended, unknown
  Bytes size;
  Holding holding;
};

// What of `holdings` is or was lent: by inode, size and kind; ordered by lease, then pid. Of
// several leases with one inode (counters start anew, a memory file of huge pages has another) the
// latest. A dma-buf called something else counts if the daemon may have lent dma-bufs.
std::vector<Holder> join(const std::map<std::uint64_t, RecordedLease>& leases,
                         const std::vector<Holding>& holdings, bool lends_dma_bufs);

}  // namespace carveout::ctl
