#include "audit.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "ledger_scan.hpp"
#include "tables.hpp"

namespace carveout::ctl {
namespace {

using daemon::LedgerEvent;
using daemon::LedgerHistory;
using daemon::LedgerProblem;
using daemon::LedgerRecord;
using daemon::LedgerScan;
using daemon::OnProblem;

// Beyond that it is no ledger of ours.
constexpr std::size_t kMostRead = 256U << 20U;

struct File {
  std::string path;
  std::string text;
  std::uint64_t first = 0;  // the number of its first record; 0: that cannot be read
  bool follows = false;     // another file
};

Result<File> read_ledger(const std::string& path) {
  auto text = read_text(path, kMostRead + 1);
  if (!text) return std::move(text).error();
  if (text->size() > kMostRead) return Error{Code::kInvalid, 0, path, "is too large for a ledger"};
  const auto first = daemon::decode(std::string_view(*text).substr(0, text->find('\n')));
  const std::uint64_t number = first ? first->seq : 0;
  const bool follows = first && !first->follows.empty();
  return File{path, *std::move(text), number, follows};
}

rapidjson::Document parse(const std::string& text) {
  rapidjson::Document document;
  document.Parse(text.data(), text.size());
  return document;
}

struct Replay {
  LedgerHistory history;
  std::uint64_t records = 0;
  std::optional<std::pair<std::string, LedgerProblem>> problem;  // with its file
};

Replay replay(const std::vector<File>& files) {
  Replay all;
  for (const File& file : files) {
    LedgerScan scan = scan_ledger(file.text, all.history, OnProblem::kStop);
    if (file.text.empty()) scan.problem = {1, "there is no record in it"};
    all.records += scan.records;
    if (scan.problem) {
      all.problem = {file.path, *std::move(scan.problem)};
      break;
    }
  }
  return all;
}

// A ledger and, before it, the file that it goes on from.
Result<std::vector<File>> read_with_previous(const std::string& path) {
  std::vector<File> files;
  for (int tries = 0; tries < 3; ++tries) {
    files.clear();
    auto file = read_ledger(path);
    if (!file) return std::move(file).error();
    files.push_back(*std::move(file));
    // One that is begun anew has nothing to do with what may lie beside it.
    if (!files.back().follows) break;
    auto previous = read_ledger(path + ".1");
    if (!previous && previous.error().number == ENOENT) break;
    if (!previous) return std::move(previous).error();
    // The same file: it has just been replaced, or is about to be.
    if (previous->first == files.back().first) continue;
    files.insert(files.begin(), *std::move(previous));
    break;
  }
  return files;
}

void take_leases(std::string_view text, std::string_view boot, RecordedLeases& all) {
  // What stands behind the last newline is being written.
  for (std::size_t end = 0; (end = text.find('\n')) < text.size(); text.remove_prefix(end + 1)) {
    const auto record = daemon::decode(text.substr(0, end));
    ++(record ? all.records : all.unreadable);
    if (!record) continue;
    const auto known = all.leases.find(record->lease);
    if (daemon::ends_a_lease(record->event) && known != all.leases.end()) {
      known->second.ended = true;
    } else if (record->event == LedgerEvent::kGranted || record->event == LedgerEvent::kAdopted) {
      if (record->boot == boot) {
        all.leases.insert_or_assign(
            record->lease,
            RecordedLease{.size = record->size, .inode = record->inode, .ended = false});
      } else {
        all.earlier.insert(record->lease);
      }
    }
  }
}

void write_lease(JsonWriter& json, const LedgerRecord& lease) {
  json.object()
      .number("lease", lease.lease)
      .number("connection", lease.connection)
      .number("bytes", lease.size.count())
      .number("uid", lease.uid)
      .number("gid", lease.gid)
      .number("pid", lease.pid)
      .text("command", lease.command)
      .text("unit", lease.unit)
      .text("cgroup", lease.cgroup)
      .number("inode", lease.inode)
      .real("since_unix_s", static_cast<double>(lease.since_unix_us) / 1e6)
      .end();
}

}  // namespace

Result<rapidjson::Document> audit(const std::vector<std::string>& paths) {
  std::vector<File> files;
  for (const std::string& path : paths) {
    auto file = read_ledger(path);
    if (!file) return std::move(file).error();
    // A file that is just being replaced has two names.
    const bool twice = std::any_of(files.begin(), files.end(),
                                   [&](const File& other) { return other.text == file->text; });
    if (!twice) files.push_back(*std::move(file));
  }
  std::stable_sort(files.begin(), files.end(),
                   [](const File& a, const File& b) { return a.first < b.first; });
  const Replay all = replay(files);
  Bytes lent;
  for (const auto& [id, lease] : all.history.open()) {
    if (lease.state != LedgerHistory::State::kRequested) lent = lent + lease.record.size;
  }
  JsonWriter json;
  json.object().boolean("ok", !all.problem).number("records", all.records);
  if (all.problem) {
    json.text("file", all.problem->first)
        .number("line", all.problem->second.line)
        .text("problem", all.problem->second.what);
  } else {
    json.number("starts", all.history.last().start)
        .number("open", all.history.open().size())
        .number("lent_bytes", lent.count());
  }
  return parse(json.end().take());
}

std::string audit_table(const rapidjson::Value& reply) {
  const auto number = [&reply](const char* name) {
    const auto* value = find_member(reply, name);
    return value != nullptr && value->IsUint64() ? value->GetUint64() : 0;
  };
  const auto text = [&reply](const char* name) {
    const auto* value = find_member(reply, name);
    return value != nullptr && value->IsString() ? printable(value->GetString(), 1000) : "";
  };
  if (find_member(reply, "problem") != nullptr) {
    return cat(text("file"), ": line ", number("line"), ": ", text("problem"),
               "\nbad: ", number("records"), " records before it are good\n");
  }
  return cat("good: ", number("records"), " records up to start ", number("starts"), "; ",
             number("open"), " leases open, ", format_bytes(Bytes(number("lent_bytes"))),
             " lent\n");
}

Result<rapidjson::Document> leases_of_ledger(const std::string& path) {
  std::vector<File> files;
  auto file = read_ledger(path);
  if (!file) return std::move(file).error();
  files.push_back(*std::move(file));
  // What a daemon that was killed leaves: the next start cuts it off.
  std::string& text = files.front().text;
  text.resize(text.rfind('\n') + 1);
  const Replay all = replay(files);
  if (all.problem) {
    return Error{Code::kInvalid, 0, cat(path, ": line ", all.problem->second.line),
                 cat(all.problem->second.what, " (see carveoutctl audit)")};
  }
  JsonWriter json;
  json.object().array("leases");
  for (const auto& [id, lease] : all.history.open()) {
    if (lease.state != LedgerHistory::State::kRequested) write_lease(json, lease.record);
  }
  return parse(json.end_array().end().take());
}

Result<RecordedLeases> recorded_leases(const std::string& path, std::string_view boot) {
  const auto files = read_with_previous(path);
  if (!files) return files.error();
  RecordedLeases all;
  for (const File& file : *files)
    take_leases(file.text, boot, all);
  if (all.records == 0) {
    return Error{Code::kInvalid, 0, path, "there is no record in it (see carveoutctl audit)"};
  }
  return all;
}

}  // namespace carveout::ctl
