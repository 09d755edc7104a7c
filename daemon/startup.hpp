#pragma once

// What is looked at and taken before the daemon lends.

#include <memory>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "options.hpp"
#include "sessions.hpp"
#include "source/source.hpp"

namespace carveout::daemon {

// Everything that can be found out about the settings without disturbing an instance that runs.
// The error names the setting and what to do.
Result<void> check_settings(const Options& options);
// And that the backend gives a slice.
Result<void> check(const Options& options);

// Refuses while another instance has this control socket's directory.
Result<UniqueFd> lock_instance(const std::string& control);

// The backend. Errors: the device's own, each with its remedy.
Result<std::unique_ptr<Source>> make_source(const Options& options);

// A connection has its socket, and perhaps a grant that its peer does not read. There are no more
// grants than slices, so that with a descriptor kept for each of them (or for each connection, if
// that is less) there are always enough for others' grants. Raises the descriptor limit.
ConnectionLimits limits_of(const Options& options);

}  // namespace carveout::daemon
