// Any names and any ledger: what goes on after a restart. The input is the names, one a line, up to
// an empty line, and then the ledger, whose lines are sealed anew.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "adoption.hpp"
#include "ledger_scan.hpp"
#include "reseal.hpp"

namespace {

using namespace carveout;          // NOLINT(google-build-using-namespace)
using namespace carveout::daemon;  // NOLINT(google-build-using-namespace)
using State = LedgerHistory::State;

void must(bool good) {
  if (!good) std::abort();
}

bool is_request(const LedgerHistory& history, const LedgerRecord& lease) {
  return history.open().at(lease.lease).state == State::kRequested;
}

void check(const LedgerHistory& history, const std::vector<std::string>& names, bool same_boot) {
  const Adoption plan = plan_adoption(history, names, same_boot);
  std::set<std::size_t> places;     // each name once
  std::set<std::uint64_t> leases;   // each open lease once
  std::set<std::uint64_t> adopted;  // each connection once
  const auto take = [&](const LedgerRecord& lease) {
    must(history.open().contains(lease.lease) && leases.insert(lease.lease).second);
  };
  const auto go_on = [&](const LedgerRecord& lease, std::uint64_t connection, bool request) {
    take(lease);
    must(same_boot && lease.connection == connection && is_request(history, lease) == request);
    must(lease.size != Bytes(0) && lease.size.count() % kSliceBytes.count() == 0);
  };
  for (const auto& connection : plan.connections) {
    must(connection.place < names.size() && places.insert(connection.place).second);
    must(adopted.insert(connection.id).second && connection.id <= plan.last_connection);
    must(names[connection.place] == store_name(connection.id));
    must(!connection.leases.empty() || connection.request);
    for (const LedgerRecord& lease : connection.leases)
      go_on(lease, connection.id, false);
    if (connection.request) go_on(*connection.request, connection.id, true);
  }
  for (const auto& dropped : plan.dropped) {
    must(dropped.place < names.size() && places.insert(dropped.place).second);
    must(!dropped.reason.empty());
    if (!dropped.connection) continue;
    must(names[dropped.place] == store_name(*dropped.connection));
    // The store takes out all that are called so.
    must(!adopted.contains(*dropped.connection) && *dropped.connection <= plan.last_connection);
  }
  for (const LedgerRecord& lease : plan.lost)
    take(lease);
  must(places.size() == names.size() && leases.size() == history.open().size());
  must(plan.last_connection >= history.last_connection());
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  return fuzz::mutate_lines(data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> names;
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    if (name.empty()) break;
    names.emplace_back(name);
    if (const auto id = connection_of(name)) must(store_name(*id) == name);
  }
  LedgerHistory history;
  scan_ledger(fuzz::reseal(rest, false), history, OnProblem::kGoOn);
  check(history, names, true);
  check(history, names, false);
  for (const auto& [id, lease] : history.open()) {
    // Beyond that there would be none left to go on from.
    const bool ours = id != 0 && id <= (std::uint64_t{1} << 62U);
    must(connection_of(store_name(id)) == (ours ? std::optional(id) : std::nullopt));
  }
  return 0;
}
