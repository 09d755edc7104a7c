#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "client/lender.hpp"

namespace carveout::ctl {

struct ClaimSettings {
  std::string socket;
  std::string key_file;
  Bytes size;
};

// Borrows from the lender at settings.socket, within 10 s. `name` is what the lender will know the
// borrower by (its command name). Errors as a client of the lending protocol must have them;
// kRefused carries the lender's own words.
Result<client::Lease> claim(const ClaimSettings& settings, const std::string& name);

// Becomes `command`, which inherits the memory as CARVEOUT_FD (of CARVEOUT_BYTES bytes) and the
// lease as CARVEOUT_LEASE_FD; the lease ends when the command and whatever inherited that
// descriptor from it have ended. Returns only if that fails.
Error become(const client::Lease& held, const std::vector<std::string>& command);

// Calls `announce` and holds until SIGINT or SIGTERM, which from the announcement on end nothing
// else. The error is that the lender went away first.
Result<void> hold(const client::Lease& held, const std::function<void()>& announce);

}  // namespace carveout::ctl
