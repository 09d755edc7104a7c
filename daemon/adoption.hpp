#pragma once

// What goes on after a restart, from the ledger and from what the service manager has kept. Pure.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ledger_history.hpp"

namespace carveout::daemon {

// The descriptor store's name for a connection, and back: "conn-<id>".
[[nodiscard]] std::string store_name(std::uint64_t connection);
[[nodiscard]] std::optional<std::uint64_t> connection_of(std::string_view name);

struct Adoption {
  struct Connection {
    std::size_t place;  // among the names
    std::uint64_t id;
    std::vector<LedgerRecord> leases;     // that go on
    std::optional<LedgerRecord> request;  // to be served now
  };
  // A stored descriptor that is closed.
  struct Dropped {
    std::size_t place;
    std::optional<std::uint64_t> connection;  // to be taken out of the store
    std::string reason;
  };
  std::vector<Connection> connections;
  std::vector<Dropped> dropped;
  std::vector<LedgerRecord> lost;  // leases and requests whose connection is gone
  std::uint64_t last_connection = 0;
};

// `names` are those of the stored descriptors. Every one of them is in `connections` or `dropped`,
// and everything that `history` has open is in `connections` or `lost`. After a reboot (`same_boot`
// is false) nothing goes on.
Adoption plan_adoption(const LedgerHistory& history, const std::vector<std::string>& names,
                       bool same_boot);

}  // namespace carveout::daemon
