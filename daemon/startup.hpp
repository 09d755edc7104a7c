#pragma once

// What is looked at and taken before the daemon lends.

#include <memory>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "hold.hpp"
#include "options.hpp"
#include "sessions.hpp"
#include "source/source.hpp"

namespace carveout::daemon {

// Everything that can be found out about the settings without disturbing an instance that runs.
// The error names the setting and what to do.
Result<void> check_settings(const Options& options);
// And that the backend gives memory: the whole of it, if it is to be held. Where another instance
// has it, the text says that this was not tried.
Result<std::string> check(const Options& options);

// Refuses while another instance has this control socket's directory.
Result<UniqueFd> lock_instance(const std::string& control);

// The backend. Errors: the device's own, each with its remedy.
Result<std::unique_ptr<Source>> make_source(const Options& options);

// Claims the whole reservation, beside what is lent already, and answers how much it is: as
// configured, or what there is if that will do (--allow-partial). With something lent, less is no
// error: it is missing then. Nor is it where no more lacks than was lost: leases whose borrowers
// may have the memory still.
Result<Bytes> claim_reservation(Hold& hold, Bytes lent, Bytes lost, const Options& options);
// Of how many pieces a hold is at most: each has a descriptor. Raises the descriptor limit.
std::size_t pieces_held();

// Takes and gives back one slice, as a grant would.
Result<void> try_source(Source& source);

// A connection has its socket, and perhaps a grant that its peer does not read. There are no more
// grants than slices, so that with a descriptor kept for each of them (or for each connection, if
// that is less) there are always enough for others' grants. Raises the descriptor limit.
ConnectionLimits limits_of(const Options& options);

}  // namespace carveout::daemon
