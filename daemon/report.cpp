#include "report.hpp"

#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>
#include <unistd.h>

#include <string_view>

#include "base/text.hpp"
#include "version.hpp"

namespace carveout::daemon {
namespace {

// A JSON writer that takes our own types. Text from outside (a command's name need not be UTF-8)
// is made printable first.
class Json {
 public:
  Json() : writer_(buffer_) {}

  Json& object() { return writer_.StartObject(), *this; }
  Json& object(std::string_view name) { return key(name), object(); }
  Json& end() { return writer_.EndObject(), *this; }
  Json& array(std::string_view name) { return key(name), writer_.StartArray(), *this; }
  Json& end_array() { return writer_.EndArray(), *this; }
  Json& string(std::string_view value) {
    const std::string safe = printable(value, 4096);
    writer_.String(safe.data(), static_cast<rapidjson::SizeType>(safe.size()));
    return *this;
  }
  Json& text(std::string_view name, std::string_view value) { return key(name), string(value); }
  Json& number(std::string_view name, std::uint64_t value) {
    return key(name), writer_.Uint64(value), *this;
  }
  Json& boolean(std::string_view name, bool value) { return key(name), writer_.Bool(value), *this; }
  Json& seconds(std::string_view name, std::chrono::system_clock::time_point at) {
    using Seconds = std::chrono::duration<double>;
    key(name);
    writer_.Double(std::chrono::duration_cast<Seconds>(at.time_since_epoch()).count());
    return *this;
  }

  [[nodiscard]] std::string take() const { return {buffer_.GetString(), buffer_.GetSize()}; }

 private:
  void key(std::string_view name) {
    writer_.Key(name.data(), static_cast<rapidjson::SizeType>(name.size()));
  }

  rapidjson::StringBuffer buffer_;
  rapidjson::Writer<rapidjson::StringBuffer> writer_;
};

std::string_view name_of(DescriptorKind kind) {
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

void write_counters(Json& json, const Status& status) {
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
  Json json;
  json.object()
      .boolean("ok", true)
      .text("version", kVersion)
      .number("pid", static_cast<std::uint64_t>(::getpid()))
      .seconds("started_unix_s", status.started)
      .text("backend", status.source.name)
      .text("backend_detail", status.source.detail)
      .text("descriptor", name_of(status.source.kind))
      .number("base", status.figures.base.count())
      .number("size_bytes", status.figures.size.count())
      .number("free_bytes", status.figures.free.count())
      .number("largest_bytes", status.figures.largest.count())
      .boolean("draining", status.draining)
      .boolean("kernel_refused_lately", status.capped)
      .number("leases", status.leases)
      .number("borrowers", status.borrowers)
      .number("connections", status.connections)
      .boolean("refuses_descriptors", status.refuses_descriptors)
      .array("sockets");
  for (const std::string& socket : status.sockets)
    json.string(socket);
  json.end_array();
  write_counters(json, status);
  return json.end().take();
}

std::string leases_json(const std::map<std::uint64_t, Lease>& leases) {
  Json json;
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
        .seconds("since_unix_s", lease.since)
        .end();
  }
  return json.end_array().end().take();
}

std::string draining_json(bool draining, std::size_t leases) {
  Json json;
  return json.object()
      .boolean("ok", true)
      .boolean("draining", draining)
      .number("leases", leases)
      .end()
      .take();
}

}  // namespace carveout::daemon
