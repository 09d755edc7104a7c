#include "adoption.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <utility>

#include "base/text.hpp"

namespace carveout::daemon {
namespace {

constexpr std::uint64_t kMostId = 1ULL << 62U;

constexpr std::string_view kPrefix = "conn-";

// One slice at least and nothing but slices: anything else was never granted by us.
bool is_sound(const LedgerRecord& record) {
  return record.size != Bytes(0) && record.size == Slices::holding(record.size).bytes() &&
         record.connection != 0;
}

struct Left {
  std::vector<LedgerRecord> leases;
  std::vector<LedgerRecord> requests;
};

}  // namespace

std::string store_name(std::uint64_t connection) {
  return cat(kPrefix, connection);
}

std::optional<std::uint64_t> connection_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  std::uint64_t id = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  // Only as store_name() writes it, and with ids left to go on from.
  if (problem != std::errc{} || id == 0 || id > kMostId || store_name(id) != name) {
    return std::nullopt;
  }
  return id;
}

Adoption plan_adoption(const LedgerHistory& history, const std::vector<std::string>& names,
                       bool same_boot) {
  Adoption adoption{
      .connections = {}, .dropped = {}, .lost = {}, .last_connection = history.last_connection()};
  std::map<std::uint64_t, Left> left;  // by connection
  for (const auto& [id, lease] : history.open()) {
    if (!same_boot || !is_sound(lease.record)) {
      adoption.lost.push_back(lease.record);
      continue;
    }
    Left& of_connection = left[lease.record.connection];
    const bool request = lease.state == LedgerHistory::State::kRequested;
    (request ? of_connection.requests : of_connection.leases).push_back(lease.record);
  }
  for (std::size_t place = 0; place < names.size(); ++place) {
    const auto id = connection_of(names[place]);
    if (!id) {
      adoption.dropped.push_back({place, std::nullopt, "it is not the name of a connection"});
      continue;
    }
    adoption.last_connection = std::max(adoption.last_connection, *id);
    auto node = left.extract(*id);
    if (node.empty()) {
      const bool twice = std::any_of(adoption.connections.begin(), adoption.connections.end(),
                                     [&](const auto& other) { return other.id == *id; });
      // Taking the name out of the store would take the first one out as well.
      adoption.dropped.push_back(
          {place, twice ? std::nullopt : id,
           twice ? "there are two of it" : "the ledger knows of no lease and no request on it"});
      continue;
    }
    Adoption::Connection connection{
        .place = place, .id = *id, .leases = std::move(node.mapped().leases), .request = {}};
    // A connection has one request in hand at most.
    for (LedgerRecord& request : node.mapped().requests) {
      if (connection.request) adoption.lost.push_back(*std::move(connection.request));
      connection.request = std::move(request);
    }
    adoption.connections.push_back(std::move(connection));
  }
  for (auto& [id, of_connection] : left) {
    for (auto* records : {&of_connection.leases, &of_connection.requests}) {
      std::move(records->begin(), records->end(), std::back_inserter(adoption.lost));
    }
  }
  return adoption;
}

}  // namespace carveout::daemon
