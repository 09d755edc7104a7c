#include "tables.hpp"

#include <pwd.h>
#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "l2.hpp"

namespace carveout::ctl {
namespace {

constexpr std::string_view kNothing = "-";

std::optional<std::uint64_t> number(const rapidjson::Value& object, const char* name) {
  const auto* value = find_member(object, name);
  if (value == nullptr || !value->IsUint64()) return std::nullopt;
  return value->GetUint64();
}

std::string count(const rapidjson::Value& object, const char* name) {
  const auto value = number(object, name);
  return value ? std::to_string(*value) : std::string(kNothing);
}

std::string size(const rapidjson::Value& object, const char* name) {
  const auto value = number(object, name);
  return value ? format_bytes(Bytes(*value)) : std::string(kNothing);
}

std::string text(const rapidjson::Value& object, const char* name) {
  const auto* value = find_member(object, name);
  if (value == nullptr || !value->IsString() || value->GetStringLength() == 0) {
    return std::string(kNothing);
  }
  return printable({value->GetString(), value->GetStringLength()}, 256);
}

bool truth(const rapidjson::Value& object, const char* name) {
  const auto* value = find_member(object, name);
  return value != nullptr && value->IsTrue();
}

std::string age(const rapidjson::Value& object, const char* name) {
  const auto* value = find_member(object, name);
  if (value == nullptr || !value->IsNumber()) return std::string(kNothing);
  using Seconds = std::chrono::duration<double>;
  const double now =
      std::chrono::duration_cast<Seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  const auto seconds = static_cast<std::uint64_t>(std::max(0.0, now - value->GetDouble()));
  if (seconds < 60) return cat(seconds, " s");
  if (seconds < 3600) return cat(seconds / 60, " min ", seconds % 60, " s");
  if (seconds < 86400) return cat(seconds / 3600, " h ", seconds % 3600 / 60, " min");
  return cat(seconds / 86400, " d ", seconds % 86400 / 3600, " h");
}

// The process that claimed. It may have ended, with a child of its that holds on to the lease.
std::string process(const rapidjson::Value& lease) {
  const auto pid = number(lease, "pid");
  if (!pid) return std::string(kNothing);
  const bool gone = ::kill(static_cast<pid_t>(*pid), 0) != 0 && errno == ESRCH;
  return cat(*pid, gone ? " (gone)" : "");
}

std::string user(const rapidjson::Value& object, const char* name) {
  const auto uid = number(object, name);
  if (!uid) return std::string(kNothing);
  const passwd* entry = ::getpwuid(static_cast<uid_t>(*uid));  // NOLINT(concurrency-mt-unsafe)
  return entry == nullptr ? std::to_string(*uid) : printable(entry->pw_name, 64);
}

std::string hexadecimal(std::uint64_t value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "0x%llx", static_cast<unsigned long long>(value));
  return buffer.data();
}

using Row = std::vector<std::string>;

// Columns as wide as their widest cell; the first `right` of them aligned to the right.
std::string render(const std::vector<Row>& rows, std::size_t right) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  std::string table;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - row[i].size(), ' ');
      if (i > 0) line += "  ";
      line += i < right ? pad + row[i] : row[i] + pad;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    table += line + '\n';
  }
  return table;
}

std::string largest(const rapidjson::Value& status) {
  std::string note;
  if (truth(status, "draining"))
    note = "  (draining: nothing more is lent)";
  else if (truth(status, "kernel_refused_lately"))
    note = "  (a claim failed a moment ago)";
  return size(status, "largest_bytes") + note;
}

// Where leases are recorded, and whether they outlive the daemon.
std::string ledger(const rapidjson::Value& status) {
  const std::string path = text(status, "ledger");
  if (path == kNothing) return "none: leases end with the daemon";
  const auto owed = number(status, "ledger_owed").value_or(0);
  if (truth(status, "ledger_failing") || owed != 0) {
    return cat(path, "  (cannot be written: ", owed, " records wait, and nothing is lent)");
  }
  const auto most = number(status, "store_most").value_or(0);
  if (most == 0) return cat(path, "; no service manager: leases end with the daemon");
  return cat(path, "; ", count(status, "store_used"), " of ", most,
             " connections kept by the service manager");
}

std::string refusals(const rapidjson::Value& counters) {
  return cat("key ", count(counters, "refused_key"), ", op ", count(counters, "refused_op"),
             ", size ", count(counters, "refused_size"), ", not enough ",
             count(counters, "refused_not_enough"));
}

// "2 descriptors, 1 mapping"
std::string holds(const rapidjson::Value& holder) {
  std::string all;
  for (const char* what : {"descriptors", "mappings"}) {
    const std::uint64_t many = number(holder, what).value_or(0);
    if (many == 0) continue;
    std::string_view word(what);
    if (many == 1) word.remove_suffix(1);
    all += cat(all.empty() ? "" : ", ", many, " ", word);
  }
  return all;
}

}  // namespace

std::string status_table(const rapidjson::Value& status) {
  const auto base = number(status, "base");
  const std::string l2 = l2_line(status);
  std::vector<Row> rows{
      {"carveoutd", cat(text(status, "version"), ", pid ", count(status, "pid"), ", up ",
                        age(status, "started_unix_s"))},
      {"backend", cat(text(status, "backend"), " (", text(status, "backend_detail"), ")")},
      {"reservation",
       cat(size(status, "size_bytes"), " at ", base ? hexadecimal(*base) : std::string(kNothing))},
      {"free", size(status, "free_bytes")},
      {"L2", l2.empty() ? std::string(kNothing) : l2},
      {"largest claim", largest(status)},
      {"leases", cat(count(status, "leases"), ", held by ", count(status, "borrowers"), " of ",
                     count(status, "connections"), " connections")},
  };
  if (truth(status, "hold")) {
    const auto missing = number(status, "missing_bytes").value_or(0);
    rows.insert(
        rows.begin() + 6,
        {"missing", missing == 0 ? "nothing: what is not lent is held"
                                 : cat(format_bytes(Bytes(missing)),
                                       "  (neither lent nor to be had: carveoutctl holders)")});
  }
  if (const auto* sockets = find_member(status, "sockets");
      sockets != nullptr && sockets->IsArray()) {
    for (const auto& socket : sockets->GetArray()) {
      rows.push_back({"socket", socket.IsString() ? printable(socket.GetString(), 256)
                                                  : std::string(kNothing)});
    }
  }
  rows.push_back({"ledger", ledger(status)});
  if (const auto* counters = find_member(status, "counters");
      counters != nullptr && counters->IsObject()) {
    rows.push_back(
        {"granted", cat(count(*counters, "granted"), ", released ", count(*counters, "released"))});
    if (number(*counters, "adopted").value_or(0) + number(*counters, "lost").value_or(0) != 0) {
      rows.push_back({"at the start", cat(count(*counters, "adopted"), " leases adopted, ",
                                          count(*counters, "lost"), " lost")});
    }
    rows.push_back({"refused", refusals(*counters)});
  }
  return render(rows, 0);
}

std::string leases_table(const rapidjson::Value& reply) {
  std::vector<Row> rows{{"LEASE", "SIZE", "PID", "USER", "COMMAND", "UNIT", "HELD FOR"}};
  const auto* leases = find_member(reply, "leases");
  if (leases == nullptr || !leases->IsArray() || leases->Empty()) return "no leases\n";
  for (const auto& lease : leases->GetArray()) {
    if (!lease.IsObject()) continue;
    rows.push_back({count(lease, "lease"), size(lease, "bytes"), process(lease), user(lease, "uid"),
                    text(lease, "command"), text(lease, "unit"), age(lease, "since_unix_s")});
  }
  return render(rows, 3);
}

std::string holders_table(const rapidjson::Value& reply, std::string_view nobody) {
  std::vector<Row> rows{{"LEASE", "STATE", "SIZE", "PID", "USER", "COMMAND", "HOLDS"}};
  if (const auto* holders = find_member(reply, "holders"); holders && holders->IsArray()) {
    for (const auto& holder : holders->GetArray()) {
      rows.push_back({count(holder, "lease"), text(holder, "state"), size(holder, "bytes"),
                      count(holder, "pid"), user(holder, "uid"), text(holder, "command"),
                      holds(holder)});
    }
  }
  std::string table = rows.size() == 1 ? cat(nobody, "\n") : render(rows, 4);
  if (const auto* notes = find_member(reply, "notes"); notes && notes->IsArray()) {
    for (const auto& note : notes->GetArray())
      if (note.IsString()) table += cat("note: ", printable(note.GetString(), 4096), "\n");
  }
  return table;
}

std::string draining_line(const rapidjson::Value& reply) {
  if (!truth(reply, "draining")) return "lending again\n";
  return cat("draining: nothing more is lent, ", count(reply, "leases"), " leases remain\n");
}

std::string pretty_json(const rapidjson::Value& reply) {
  rapidjson::StringBuffer buffer;
  rapidjson::PrettyWriter<rapidjson::StringBuffer> writer(buffer);
  writer.SetIndent(' ', 2);
  reply.Accept(writer);
  return cat(std::string_view(buffer.GetString(), buffer.GetSize()), "\n");
}

}  // namespace carveout::ctl
