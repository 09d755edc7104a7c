#include "ledger_record.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include "base/crc32c.hpp"
#include "base/json.hpp"
#include "base/text.hpp"

namespace carveout::daemon {
namespace {

constexpr std::array<std::string_view, 10> kNames{"started",  "requested", "granted", "answered",
                                                  "refused",  "released",  "adopted", "lost",
                                                  "repaired", "stopped"};

// The record's end: the CRC of everything before it.
constexpr std::string_view kSeal = R"(,"crc32c":")";
constexpr std::size_t kCrcDigits = 8;
constexpr std::size_t kSealed = kSeal.size() + kCrcDigits + 2;  // and "}

// Each byte may become two (quoted); a line of five texts is then still far below the limit.
constexpr std::size_t kMaxText = 256;

std::string hexadecimal(std::uint32_t value) {
  std::string digits(kCrcDigits, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, value >>= 4U)
    *digit = "0123456789abcdef"[value & 0xFU];
  return digits;
}

Error bad(std::string message) {
  return {Code::kInvalid, 0, "ledger record", std::move(message)};
}

bool tells_of_a_borrower(LedgerEvent event) {
  return event == LedgerEvent::kRequested || event == LedgerEvent::kGranted ||
         event == LedgerEvent::kAdopted || event == LedgerEvent::kRefused;
}

bool tells_of_a_grant(LedgerEvent event) {
  return event == LedgerEvent::kGranted || event == LedgerEvent::kAdopted;
}

bool tells_of_a_size(LedgerEvent event) {
  return event == LedgerEvent::kRequested || tells_of_a_grant(event);
}

bool is_of_a_lease(LedgerEvent event) {
  return tells_of_a_borrower(event) || event == LedgerEvent::kAnswered ||
         event == LedgerEvent::kReleased || event == LedgerEvent::kLost;
}

// A text as it stands in a record: printable and not too long. What is so already stays as it is,
// however often it is restated.
std::string fit(std::string_view text) {
  std::string safe = printable(text.substr(0, kMaxText), kMaxText);
  if (safe.size() <= kMaxText) return safe;
  std::size_t end = kMaxText;
  while ((static_cast<unsigned char>(safe[end]) & 0xC0U) == 0x80U)
    --end;  // not within a character
  safe.resize(end);
  return safe;
}

void write_text(JsonWriter& json, std::string_view name, std::string_view value) {
  if (!value.empty()) json.text(name, fit(value));
}

void write_number(JsonWriter& json, std::string_view name, std::uint64_t value,
                  bool required = false) {
  if (value != 0 || required) json.number(name, value);
}

// Reads members; remembers the first that is missing or not what it should be.
class Members {
 public:
  explicit Members(const rapidjson::Value& object) : object_(object) {}

  std::uint64_t number(const char* name, bool required,
                       std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
    const auto* value = find_member(object_, name);
    if (value == nullptr && !required) return 0;
    if (value != nullptr && value->IsUint64() && value->GetUint64() <= most) {
      return value->GetUint64();
    }
    complain(name);
    return 0;
  }
  std::uint32_t number32(const char* name, bool required) {
    constexpr auto kMost = std::numeric_limits<std::uint32_t>::max();
    return static_cast<std::uint32_t>(number(name, required, kMost));
  }
  std::string text(const char* name, bool required) {
    const auto* value = find_member(object_, name);
    if (value == nullptr && !required) return {};
    if (value != nullptr && value->IsString()) {
      std::string read(value->GetString(), value->GetStringLength());
      if (read == fit(read)) return read;
    }
    complain(name);
    return {};
  }
  bool boolean(const char* name) {
    const auto* value = find_member(object_, name);
    if (value != nullptr && !value->IsBool()) complain(name);
    return value != nullptr && value->IsTrue();
  }
  void complain(const char* name) {
    if (!wrong_) wrong_ = name;
  }
  [[nodiscard]] const std::optional<std::string>& wrong() const { return wrong_; }

 private:
  const rapidjson::Value& object_;
  std::optional<std::string> wrong_;
};

// What is before the seal, if the seal fits it.
Result<std::string_view> open_seal(std::string_view line) {
  if (line.size() >= kMaxLedgerLine) return bad("is longer than any that we write");
  if (line.size() < kSealed || !line.ends_with("\"}")) return bad("is cut short, or not a record");
  const std::string_view body = line.substr(0, line.size() - kSealed);
  const std::string_view seal = line.substr(body.size(), kSeal.size());
  const std::string_view digits = line.substr(body.size() + kSeal.size(), kCrcDigits);
  if (seal != kSeal) return bad("has no CRC at its end");
  const std::string computed = hexadecimal(crc32c(body));
  if (digits != computed) {
    return bad(cat("has been changed: its CRC is ", computed, ", not ", printable(digits, 8)));
  }
  return body;
}

}  // namespace

std::string_view name_of(LedgerEvent event) {
  return kNames.at(static_cast<std::size_t>(event));
}

std::string encode(const LedgerRecord& record) {
  JsonWriter json;
  json.object()
      .number("seq", record.seq)
      .text("boot", fit(record.boot))
      .number("start", record.start)
      .number("unix_us", record.unix_us)
      .number("mono_us", record.mono_us)
      .text("event", name_of(record.event));
  if (record.event == LedgerEvent::kStarted) {
    json.number("reservation_bytes", record.reservation.count())
        .number("last_connection", record.connection)
        .number("last_lease", record.lease);
    write_text(json, "follows", record.follows);
  }
  if (record.carried) json.boolean("carried", true);
  if (is_of_a_lease(record.event)) {
    json.number("connection", record.connection).number("lease", record.lease);
  }
  if (tells_of_a_borrower(record.event)) {
    json.number("uid", record.uid)
        .number("gid", record.gid)
        .number("pid", record.pid)
        .number("asked_bytes", record.asked.count());
  }
  write_number(json, "bytes", record.size.count(), tells_of_a_size(record.event));
  write_number(json, "inode", record.inode);
  write_number(json, "since_unix_us", record.since_unix_us, tells_of_a_grant(record.event));
  write_text(json, "command", record.command);
  write_text(json, "unit", record.unit);
  write_text(json, "cgroup", record.cgroup);
  write_text(json, "reason", record.reason);
  std::string line = json.end().take();
  line.pop_back();  // the closing brace comes behind the CRC
  const std::string crc = hexadecimal(crc32c(line));
  return cat(line, kSeal, crc, "\"}\n");
}

Result<LedgerRecord> decode(std::string_view line) {
  const auto body = open_seal(line);
  if (!body) return body.error();
  rapidjson::Document document;
  document.Parse<rapidjson::kParseIterativeFlag>(line.data(), line.size());
  if (document.HasParseError() || !document.IsObject()) return bad("is not a JSON object");

  Members members(document);
  LedgerRecord record;
  const std::string event = members.text("event", true);
  const auto* const known = std::find(kNames.begin(), kNames.end(), event);
  if (known == kNames.end()) return bad(cat("has no known event: \"", printable(event, 40), "\""));
  record.event = static_cast<LedgerEvent>(known - kNames.begin());
  record.seq = members.number("seq", true);
  record.boot = members.text("boot", true);
  record.start = members.number("start", true);
  record.unix_us = members.number("unix_us", true);
  record.mono_us = members.number("mono_us", true);
  // Nothing is taken from a record that its event does not have.
  if (record.event == LedgerEvent::kStarted) {
    record.reservation = Bytes(members.number("reservation_bytes", true));
    record.connection = members.number("last_connection", true);
    record.lease = members.number("last_lease", true);
    record.follows = members.text("follows", false);
  }
  record.carried = members.boolean("carried");
  if (is_of_a_lease(record.event)) {
    record.connection = members.number("connection", true);
    record.lease = members.number("lease", true);
  }
  if (tells_of_a_borrower(record.event)) {
    record.uid = members.number32("uid", true);
    record.gid = members.number32("gid", true);
    record.pid = members.number32("pid", true);
    record.asked = Bytes(members.number("asked_bytes", true));
  }
  record.size = Bytes(members.number("bytes", tells_of_a_size(record.event)));
  record.inode = members.number("inode", false);
  record.since_unix_us = members.number("since_unix_us", tells_of_a_grant(record.event));
  record.command = members.text("command", false);
  record.unit = members.text("unit", false);
  record.cgroup = members.text("cgroup", false);
  record.reason = members.text("reason", false);
  if (members.wrong()) return bad(cat("has no good \"", *members.wrong(), "\""));
  return record;
}

}  // namespace carveout::daemon
