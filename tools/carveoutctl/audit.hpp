#pragma once

#include <rapidjson/document.h>

#include <string>
#include <vector>

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

}  // namespace carveout::ctl
