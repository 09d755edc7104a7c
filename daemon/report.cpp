#include "report.hpp"

#include <unistd.h>

#include <string_view>

#include "base/json.hpp"
#include "version.hpp"

namespace carveout::daemon {
namespace {

double seconds(std::chrono::system_clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::duration<double>>(at.time_since_epoch()).count();
}

std::string_view word_for(DescriptorKind kind) {
  switch (kind) {
    case DescriptorKind::kMemfd:
      return "memfd";
    case DescriptorKind::kDmaBuf:
      return "dma-buf";
    case DescriptorKind::kNvidiaFile:
      return "nvidia";
  }
  return "";
}

void write_counters(JsonWriter& json, const Status& status) {
  const Counters& counters = status.counters;
  json.object("counters")
      .number("accepted", counters.accepted)
      .number("shed", counters.shed)
      .number("over_user_limit", counters.over_user_limit)
      .number("idle_closed", counters.idle_closed)
      .number("timed_out", counters.timed_out)
      .number("infos", counters.infos)
      .number("granted", status.granted)
      .number("released", status.released)
      .number("adopted", status.adopted)
      .number("lost", status.lost)
      .number("refused_key", counters.refused_key)
      .number("refused_op", counters.refused_op)
      .number("refused_size", counters.refused_size)
      .number("refused_not_enough", counters.refused_not_enough)
      .number("stalled", counters.stalled)
      .number("log_lines_dropped", status.log_lines_dropped)
      .number("log_lines_left_out", status.log_lines_left_out)
      .end();
}

}  // namespace

std::string status_json(const Status& status) {
  JsonWriter json;
  json.object()
      .boolean("ok", true)
      .text("version", kVersion)
      .number("pid", static_cast<std::uint64_t>(::getpid()))
      .real("started_unix_s", seconds(status.started))
      .text("backend", status.source.name)
      .text("backend_detail", status.source.detail)
      .text("descriptor", word_for(status.source.kind))
      .number("base", status.figures.base.count())
      .number("size_bytes", status.figures.size.count())
      .number("free_bytes", status.figures.free.count())
      .number("largest_bytes", status.figures.largest.count())
      .boolean("hold", status.holds)
      .number("missing_bytes", status.missing.count())
      .boolean("ordinary_memory", status.source.ordinary_memory)
      .boolean("draining", status.draining)
      .boolean("kernel_refused_lately", status.capped)
      .number("leases", status.leases)
      .number("borrowers", status.borrowers)
      .number("connections", status.connections)
      .boolean("refuses_descriptors", status.refuses_descriptors)
      .text("ledger", status.ledger)
      .number("ledger_records", status.ledger_records)
      .boolean("ledger_failing", status.ledger_failing)
      .number("ledger_owed", status.ledger_owed)
      .number("store_used", status.store_used)
      .number("store_most", status.store_most)
      .array("sockets");
  for (const std::string& socket : status.sockets)
    json.string(socket);
  json.end_array();
  write_counters(json, status);
  return json.end().take();
}

std::string leases_json(const std::map<std::uint64_t, Lease>& leases) {
  JsonWriter json;
  json.object().boolean("ok", true).array("leases");
  for (const auto& [id, lease] : leases) {
    json.object()
        .number("lease", id)
        .number("connection", lease.connection)
        .number("bytes", lease.size.count())
        .number("uid", lease.peer.uid)
        .number("gid", lease.peer.gid)
        .number("pid", static_cast<std::uint64_t>(lease.peer.pid))
        .text("command", lease.identity.command)
        .text("unit", lease.identity.unit)
        .text("cgroup", lease.identity.cgroup)
        .number("inode", lease.inode)
        .real("since_unix_s", seconds(lease.since))
        .end();
  }
  return json.end_array().end().take();
}

std::string draining_json(bool draining, std::size_t leases) {
  JsonWriter json;
  return json.object()
      .boolean("ok", true)
      .boolean("draining", draining)
      .number("leases", leases)
      .end()
      .take();
}

}  // namespace carveout::daemon
