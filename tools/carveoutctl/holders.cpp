#include "holders.hpp"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "control_client.hpp"

namespace carveout::ctl {
namespace {

using Leases = std::map<std::uint64_t, RecordedLease>;

// What is known of leases, and what of them is not.
struct Known {
  Leases leases;
  std::set<std::uint64_t> earlier;  // before this boot
  std::vector<std::string> notes;
};

std::uint64_t number(const rapidjson::Value& object, const char* name) {
  const auto* value = find_member(object, name);
  return value != nullptr && value->IsUint64() ? value->GetUint64() : 0;
}

std::string text(const rapidjson::Value& object, const char* name) {
  const auto* value = find_member(object, name);
  return value != nullptr && value->IsString() ? value->GetString() : "";
}

// "1 process", "2 processes"
std::string count(std::uint64_t many, std::string_view one, std::string_view more) {
  return cat(many, " ", many == 1 ? one : more);
}

Result<void> add_ledger(const std::string& path, Known& known) {
  auto boot = read_text("/proc/sys/kernel/random/boot_id", 64);
  if (!boot) return std::move(boot).error();
  while (boot->ends_with('\n'))
    boot->pop_back();
  auto recorded = recorded_leases(path, *boot);
  if (!recorded) return std::move(recorded).error();
  known.leases = std::move(recorded->leases);
  known.earlier = std::move(recorded->earlier);
  if (recorded->unreadable != 0) {
    known.notes.push_back(
        cat(count(recorded->unreadable, "line", "lines"), " of ", printable(path, 200),
            " cannot be read (see carveoutctl audit): the leases recorded there may not be known"));
  }
  if (known.leases.empty() && !known.earlier.empty()) {
    known.notes.push_back(
        cat("all leases on record in ", printable(path, 200), " are from before this boot"));
  }
  return {};
}

// What the daemon says of a lease counts for more than the record: it is later.
void add_open_leases(const rapidjson::Value& reply, bool nvidia, Known& known) {
  for (auto& [id, lease] : known.leases)
    lease.ended = true;
  const auto* leases = find_member(reply, "leases");
  if (leases == nullptr || !leases->IsArray()) return;
  for (const auto& lease : leases->GetArray()) {
    if (!lease.IsObject()) continue;
    known.leases.insert_or_assign(number(lease, "lease"),
                                  RecordedLease{.size = Bytes(number(lease, "bytes")),
                                                .inode = nvidia ? 0 : number(lease, "inode"),
                                                .ended = false});
  }
}

Result<Known> know(const HoldersQuery& query, const Result<rapidjson::Document>& status) {
  Known known;
  if (!query.ledger.empty()) {
    if (auto added = add_ledger(query.ledger, known); !added) return added.error();
    return known;
  }
  const std::string ledger = text(*status, "ledger");
  if (ledger.empty()) {
    known.notes.emplace_back(
        "the daemon keeps no ledger: of its leases only those that are open are known");
  } else if (auto added = add_ledger(ledger, known); !added) {
    known.notes.push_back(cat("only leases that are open are known: ", added.error().describe()));
  }
  // After the ledger: what ended between the two is not taken for lent.
  const auto open = ask(query.control, "leases");
  if (!open) return open.error();
  add_open_leases(*open, text(*status, "descriptor") == "nvidia", known);
  return known;
}

// Whether something can be said of the one lease that is asked for.
Result<void> look_up(std::uint64_t lease, Known& known) {
  const std::string context = cat("lease ", lease);
  const auto found = known.leases.find(lease);
  if (found != known.leases.end()) {
    if (found->second.inode == 0) {
      return Error{Code::kInvalid, 0, context,
                   "was lent as an NVIDIA file, which has no inode of its own: who holds it cannot "
                   "be found (fuser /dev/nvidiactl names everybody who uses the GPU)"};
    }
    return {};
  }
  if (known.earlier.contains(lease)) {
    known.notes.push_back(cat(context, " is from before this boot, and so was its memory"));
    return {};
  }
  std::string message =
      "no such lease: it is neither open nor on record (see carveoutctl leases; holders without a "
      "lease shows all that is held)";
  for (const std::string& note : known.notes)
    message += cat("; ", note);
  return Error{Code::kNotFound, 0, context, std::move(message)};
}

void note_nvidia_files(Known& known) {
  const auto nvidia = std::count_if(
      known.leases.begin(), known.leases.end(),
      [](const auto& entry) { return entry.second.inode == 0 && !entry.second.ended; });
  if (nvidia != 0) {
    known.notes.push_back(
        cat(count(static_cast<std::uint64_t>(nvidia), "open lease is", "open leases are"),
            " lent as NVIDIA files, which have no inode of their own: who holds them cannot be "
            "found"));
  }
}

void note_limits(const ProcScan& scan, Known& known) {
  const std::string_view remedy = ::geteuid() == 0 ? ", even as root" : ": run as root";
  if (scan.unexamined != 0) {
    known.notes.push_back(
        cat(count(scan.unexamined, "process", "processes"), " could not be examined", remedy));
  }
  if (scan.hides) known.notes.push_back(cat("some processes are hidden (hidepid)", remedy));
}

// What nothing in /proc shows: a descriptor on its way through a socket, an import of a driver's,
// or a process that has something else than lent memory of that kind.
void note_unseen(std::uint64_t missing, const std::vector<Holder>& rows, Known& known) {
  std::map<std::uint64_t, std::uint64_t> kept;  // by inode: several may hold one
  for (const Holder& row : rows) {
    if (row.state != "lent") kept[row.holding.inode] = row.size.count();
  }
  std::uint64_t seen = 0;
  for (const auto& [inode, bytes] : kept)
    seen += bytes;
  if (missing > seen) {
    known.notes.push_back(cat(format_bytes(Bytes(missing - seen)),
                              " more are missing, held by what /proc does not show"));
  }
}

rapidjson::Document written(const std::vector<Holder>& rows, std::uint64_t unexamined,
                            const std::vector<std::string>& notes) {
  rapidjson::Document reply(rapidjson::kObjectType);
  auto& memory = reply.GetAllocator();
  const auto string = [&memory](std::string_view from) {
    const std::string safe = printable(from, 4096);
    return rapidjson::Value(safe.data(), static_cast<rapidjson::SizeType>(safe.size()), memory);
  };
  rapidjson::Value list(rapidjson::kArrayType);
  for (const Holder& row : rows) {
    rapidjson::Value item(rapidjson::kObjectType);
    item.AddMember("lease", row.lease ? rapidjson::Value(*row.lease) : rapidjson::Value(), memory);
    item.AddMember("state", string(row.state), memory);
    item.AddMember("bytes", row.size.count(), memory);
    item.AddMember("inode", row.holding.inode, memory);
    item.AddMember("pid", row.holding.pid, memory);
    item.AddMember("uid", row.holding.uid, memory);
    item.AddMember("command", string(row.holding.command), memory);
    item.AddMember("descriptors", row.holding.descriptors, memory);
    item.AddMember("mappings", row.holding.mappings, memory);
    list.PushBack(item, memory);
  }
  rapidjson::Value remarks(rapidjson::kArrayType);
  for (const std::string& note : notes)
    remarks.PushBack(string(note), memory);
  reply.AddMember("ok", true, memory);
  reply.AddMember("holders", list, memory);
  reply.AddMember("unexamined", unexamined, memory);
  reply.AddMember("notes", remarks, memory);
  return reply;
}

// By lease; what no record knows comes last, by buffer.
auto order_of(const Holder& row) {
  return std::tuple(!row.lease, row.lease.value_or(row.holding.inode), row.holding.pid);
}

}  // namespace

std::vector<Holder> join(const Leases& leases, const std::vector<Holding>& holdings,
                         bool lends_dma_bufs) {
  std::multimap<std::uint64_t, Leases::const_iterator> by_inode;  // of one inode: by lease
  for (auto lease = leases.begin(); lease != leases.end(); ++lease)
    if (lease->second.inode != 0) by_inode.emplace(lease->second.inode, lease);
  std::vector<Holder> rows;
  for (const Holding& holding : holdings) {
    const bool dma_buf = holding.kind == BufferKind::kDmaBuf;
    if (!holding.named && !(dma_buf && lends_dma_bufs)) continue;
    const auto [first, last] = by_inode.equal_range(holding.inode);
    std::optional<Leases::const_iterator> match;
    for (auto next = first; next != last; ++next) {
      // A dma-buf can be lent whole only, and a sealed memory file keeps its size.
      const bool fits = holding.size == Bytes(0) || holding.size == next->second->second.size;
      if (fits) match = next->second;
    }
    if (match) {
      const auto& [id, lease] = **match;
      rows.push_back({id, lease.ended ? "ended" : "lent", lease.size, holding});
    } else if (dma_buf && holding.named) {
      rows.push_back({std::nullopt, "unknown", std::max(holding.size, holding.mapped), holding});
    }
  }
  std::sort(rows.begin(), rows.end(),
            [](const Holder& a, const Holder& b) { return order_of(a) < order_of(b); });
  return rows;
}

Result<rapidjson::Document> holders(const HoldersQuery& query) {
  auto status = ask(query.control, "status");
  if (!status && query.ledger.empty()) return std::move(status).error();
  std::set<pid_t> leave_out{::getpid()};
  bool lends_dma_bufs = true;  // as far as is known
  if (status) {
    leave_out.insert(static_cast<pid_t>(number(*status, "pid")));
    lends_dma_bufs = text(*status, "descriptor") != "memfd";
  }
  // First, so that whatever is found has its record by now.
  const auto scan = scan_proc("/proc", leave_out);
  if (!scan) return scan.error();
  auto known = know(query, status);
  if (!known) return std::move(known).error();
  if (query.lease) {
    if (auto found = look_up(*query.lease, *known); !found) return found.error();
  } else {
    note_nvidia_files(*known);
  }
  auto rows = join(known->leases, scan->holdings, lends_dma_bufs);
  if (query.lease) {
    std::erase_if(rows, [&query](const Holder& row) { return row.lease != query.lease; });
  }
  note_limits(*scan, *known);
  if (status && !query.lease) note_unseen(number(*status, "missing_bytes"), rows, *known);
  return written(rows, scan->unexamined, known->notes);
}

}  // namespace carveout::ctl
