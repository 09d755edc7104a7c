// The other way: what result_file.cpp has written.

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "files/result_check.hpp"
#include "files/result_file.hpp"

namespace carveout::probe {
namespace {

using JsonValue = JsonDocument::ValueType;

// The schema has seen to what there must be and of which type.
const JsonValue& member(const JsonValue& object, const char* name) {
  return *find_member(object, name);
}

// What is missing here may be.
std::string text(const JsonValue& object, const char* name) {
  const auto* value = find_member(object, name);
  return value == nullptr ? "" : std::string(value->GetString(), value->GetStringLength());
}
std::uint64_t number(const JsonValue& object, const char* name) {
  const auto* value = find_member(object, name);
  return value == nullptr ? 0 : value->GetUint64();
}
double real(const JsonValue& object, const std::string& name) {
  const auto* value = find_member(object, name.c_str());
  return value == nullptr ? 0 : value->GetDouble();
}
std::optional<unsigned> known(const JsonValue& object, const char* name) {
  const auto* value = find_member(object, name);
  return value == nullptr ? std::nullopt : std::optional(value->GetUint());
}

Machine machine_of(const JsonValue& object) {
  Machine machine{.host = text(object, "host"),
                  .kernel = text(object, "kernel"),
                  .processor = text(object, "processor"),
                  .gpu = text(object, "gpu"),
                  .driver = text(object, "driver"),
                  .cuda = text(object, "cuda"),
                  .lender = text(object, "lender"),
                  .page_bytes = number(object, "page_bytes"),
                  .cache_bytes = {}};
  for (const JsonValue& size : member(object, "cache_bytes").GetArray())
    machine.cache_bytes.push_back(size.GetUint64());
  return machine;
}

ArmRecord arm_of(const JsonValue& object) {
  return {.name = text(object, "name"),
          .source = text(object, "source"),
          .map = text(object, "map"),
          .memory = text(object, "memory"),
          .page_bytes = number(object, "page_bytes"),
          .unavailable = text(object, "unavailable"),
          .ended = text(object, "ended")};
}

Moment moment_of(const JsonValue& object) {
  return {.unix_s = real(object, "unix_s"),
          .load_average = real(object, "load_average"),
          .governor = text(object, "governor"),
          .sm_mhz = known(object, "sm_mhz"),
          .memory_mhz = known(object, "memory_mhz"),
          .celsius = known(object, "celsius"),
          .other_processes = known(object, "other_processes")};
}

class ResultReader {
 public:
  ResultReader(const JsonDocument& document, const std::string& name)
      : document_(document), name_(name) {}

  Result<Report> read() {
    read_run();
    if (auto arms = read_arms(); !arms) return arms.error();
    const auto& series = member(document_, "series");
    for (rapidjson::SizeType i = 0; i < series.Size(); ++i) {
      if (auto one = read_series(series[i], cat("/series/", i)); !one) return one.error();
    }
    return std::move(report_);
  }

 private:
  void read_run() {
    report_.version = text(document_, "version");
    report_.command = text(document_, "command");
    report_.engine = text(document_, "engine") == name_of(EngineKind::kGpu) ? EngineKind::kGpu
                                                                            : EngineKind::kCpu;
    report_.engine_detail = text(document_, "engine_detail");
    report_.started_unix_s = real(document_, "started_unix_s");
    report_.ended_unix_s = real(document_, "ended_unix_s");
    report_.size = Bytes(number(document_, "size_bytes"));
    report_.threads = number(document_, "threads");
    report_.blocks = number(document_, "blocks");
    report_.reread_size = Bytes(number(document_, "reread_size_bytes"));
    report_.machine = machine_of(member(document_, "machine"));
  }

  Result<void> read_arms() {
    for (const JsonValue& object : member(document_, "arms").GetArray()) {
      ArmRecord arm = arm_of(object);
      if (find_arm(arm.name)) {
        return wrong(name_, cat("/arms/", report_.arms.size(), "/name"),
                     cat("is another arm's, too: ", printable(arm.name, 100)));
      }
      report_.arms.push_back(std::move(arm));
    }
    return {};
  }

  Result<void> read_series(const JsonValue& object, const std::string& where) {
    const std::string arm_name = text(object, "arm");
    const auto arm = find_arm(arm_name);
    if (!arm) {
      return wrong(name_, cat(where, "/arm"), cat("is none of /arms: ", printable(arm_name, 100)));
    }
    const auto row = row_named(text(object, "row"));
    if (!row) return wrong(name_, cat(where, "/row"), "is no row");
    Series series{.arm = *arm,
                  .row = *row,
                  .size = Bytes(number(object, "size_bytes")),
                  .batches = {},
                  .moments = {}};
    if (!seen_.emplace(series.row, series.size, series.arm).second) {
      return wrong(name_, where, "is there twice: the same row of the same arm at the same size");
    }
    const auto& batches = member(object, "batches");
    if (batches.Size() > report_.blocks) {
      return wrong(name_, cat(where, "/batches"),
                   cat("has ", batches.Size(), " elements, more than /blocks"));
    }
    const std::string suffix = field_suffix_of(facts(*row).unit);
    for (const JsonValue& batch : batches.GetArray()) {
      series.batches.push_back({.cold = real(batch, cat("cold_", suffix)),
                                .median = real(batch, cat("median_", suffix)),
                                .autocorrelation = real(batch, "autocorrelation"),
                                .count = static_cast<std::size_t>(number(batch, "count"))});
      series.moments.push_back(moment_of(member(batch, "conditions")));
    }
    report_.series.push_back(std::move(series));
    return {};
  }

  [[nodiscard]] std::optional<std::size_t> find_arm(std::string_view name) const {
    for (std::size_t i = 0; i < report_.arms.size(); ++i) {
      if (report_.arms[i].name == name) return i;
    }
    return std::nullopt;
  }

  const JsonDocument& document_;
  const std::string& name_;
  Report report_;
  std::set<std::tuple<Row, Bytes, std::size_t>> seen_;
};

}  // namespace

Result<Report> from_json(const std::string& text, const std::string& name) {
  const auto document = checked_json(text, name);
  if (!document) return document.error();
  return ResultReader(*document, name).read();
}

Result<Report> read_report(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) return system_error(errno, path, "cannot be opened");
  // Whoever writes into a pipe (`compare a.json <(zcat b.json.gz)`) is waited for. One that nobody
  // writes into was not waited for, and ends at once.
  struct stat facts {};
  if (::fstat(file.get(), &facts) == 0 && S_ISFIFO(facts.st_mode))
    (void)::fcntl(file.get(), F_SETFL, 0);
  // One byte more than is read: from_json() says so of a larger file.
  const auto text = read_up_to(file.get(), kMaxResultBytes + 1, path);
  if (!text) return text.error();
  return from_json(*text, path);
}

}  // namespace carveout::probe
