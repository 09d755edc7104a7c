#include "wire/codec.hpp"

#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "base/json.hpp"
#include "base/text.hpp"

namespace carveout::wire {
namespace {

// Iterative: a datagram nested thousands deep must not use the stack for it.
constexpr unsigned kParseFlags = rapidjson::kParseIterativeFlag;

// How much of the daemon's reason is repeated in an error.
constexpr std::size_t kMaxReason = 200;

// The protocol's own reasons, as far as they are fixed.
constexpr std::array<std::string_view, 4> kReasons{kUnknownKey, "unknown op", kBadSize,
                                                   "not enough free carveout"};

// Collects the three members that the protocol knows from the top level of the request.
class RequestHandler : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, RequestHandler> {
 public:
  // Everything that has no overload below: null, true, false, fractions, exponents, and integers
  // beyond 64 bits (which are beyond any reservation).
  bool Default() { return other_value(); }

  bool Int(int value) { return value < 0 ? other_value() : integer(static_cast<unsigned>(value)); }
  bool Uint(unsigned value) { return integer(value); }
  bool Int64(std::int64_t value) {
    return value < 0 ? other_value() : integer(static_cast<std::uint64_t>(value));
  }
  bool Uint64(std::uint64_t value) { return integer(value); }

  bool String(const char* text, rapidjson::SizeType length, bool /*copy*/) {
    if (depth_ == 0) return false;
    if (depth_ > 1) return true;
    const std::string_view value(text, length);
    switch (member_) {
      case Member::kKey:
        has_key_ = true;
        request_.key = value;
        break;
      case Member::kOp:
        request_.op = value == "info" ? Op::kInfo : value == "alloc" ? Op::kAlloc : Op::kUnknown;
        break;
      case Member::kSize:
        request_.size.reset();
        break;
      case Member::kIgnored:
        break;
    }
    return true;
  }

  bool Key(const char* text, rapidjson::SizeType length, bool /*copy*/) {
    if (depth_ > 1) return true;
    const std::string_view name(text, length);
    member_ = name == "key"    ? Member::kKey
              : name == "op"   ? Member::kOp
              : name == "size" ? Member::kSize
                               : Member::kIgnored;
    return true;
  }

  bool StartObject() {
    if (depth_ > 0) other_value();
    ++depth_;
    return true;
  }
  bool StartArray() {
    if (!other_value()) return false;
    ++depth_;
    return true;
  }
  bool EndObject(rapidjson::SizeType /*members*/) {
    --depth_;
    return true;
  }
  bool EndArray(rapidjson::SizeType /*elements*/) {
    --depth_;
    return true;
  }

  std::optional<Request> take() && {
    if (!has_key_) return std::nullopt;
    return std::move(request_);
  }

 private:
  enum class Member { kIgnored, kKey, kOp, kSize };

  bool integer(std::uint64_t value) {
    if (!other_value()) return false;
    if (depth_ == 1 && member_ == Member::kSize) request_.size = Bytes(value);
    return true;
  }

  // A value of a type that the member cannot have undoes what an earlier duplicate said.
  bool other_value() {
    if (depth_ == 0) return false;
    if (depth_ > 1) return true;
    if (member_ == Member::kKey) has_key_ = false;
    if (member_ == Member::kOp) request_.op = Op::kUnknown;
    if (member_ == Member::kSize) request_.size.reset();
    return true;
  }

  Request request_;
  bool has_key_ = false;
  Member member_ = Member::kIgnored;
  unsigned depth_ = 0;
};

std::string reservation_members(const Info& info) {
  return cat("\"base\": ", info.base.count(), ", \"size\": ", info.size.count(),
             ", \"free\": ", info.free.count(), ", \"largest\": ", info.largest.count());
}

std::string encode_request(std::string_view key, std::string_view op, const Bytes* size) {
  JsonBuffer text;
  JsonTextWriter writer(text);
  const auto string = [&writer](std::string_view value) {
    writer.String(value.data(), static_cast<rapidjson::SizeType>(value.size()));
  };
  writer.StartObject();
  string("key");
  string(key);
  string("op");
  string(op);
  if (size != nullptr) {
    string("size");
    writer.Uint64(size->count());
  }
  writer.EndObject();
  return {text.GetString(), text.GetSize()};
}

Error unexpected(std::string_view what) {
  return Error{Code::kProtocol, 0, "the lender's reply", std::string(what)};
}

// Parses a reply into `document`, which is then an object. A NUL ends RapidJSON's input, so what
// stands behind one is checked for as well.
Result<void> parse_object(std::string_view datagram, JsonDocument& document) {
  if (datagram.size() > kMaxDatagram) return unexpected("is longer than any of the protocol's");
  if (!is_utf8(datagram)) return unexpected("is not UTF-8");
  rapidjson::MemoryStream stream(datagram.data(), datagram.size());
  document.ParseStream<kParseFlags>(stream);
  if (document.HasParseError() || stream.Tell() != datagram.size()) {
    return unexpected("is not JSON");
  }
  if (!document.IsObject()) return unexpected("is not a JSON object");
  return {};
}

// Of duplicate members the last counts, as with requests.
const JsonDocument::ValueType* last_member(const JsonDocument& document, std::string_view name) {
  const JsonDocument::ValueType* last = nullptr;
  for (const auto& member : document.GetObject()) {
    if (name == std::string_view(member.name.GetString(), member.name.GetStringLength()))
      last = &member.value;
  }
  return last;
}

// Reads whole numbers by name; false if one is missing or not a whole number.
bool read_sizes(const JsonDocument& document,
                std::initializer_list<std::pair<const char*, Bytes*>> members) {
  for (const auto& [name, value] : members) {
    const auto* found = last_member(document, name);
    if (found == nullptr || !found->IsUint64()) return false;
    *value = Bytes(found->GetUint64());
  }
  return true;
}

// How much of `secret` the text begins with: all of it, a telling part from anywhere in it, or the
// beginning that the text ends in. Otherwise 0.
std::size_t tells(std::string_view text, std::string_view secret) {
  constexpr std::size_t kTelling = 8;  // so much of it is not there by chance
  std::size_t most = 0;
  for (std::size_t from = 0; from < secret.size(); ++from) {
    const std::string_view part = secret.substr(from);
    const auto differs = std::mismatch(part.begin(), part.end(), text.begin(), text.end());
    const auto same = static_cast<std::size_t>(differs.first - part.begin());
    const bool cut = from == 0 && same == text.size() && same >= kTelling / 2;
    if (same == secret.size() || same >= kTelling || cut) most = std::max(most, same);
  }
  return most;
}

std::string without(std::string_view text, std::string_view secret) {
  std::string safe;
  while (!text.empty()) {
    const std::size_t told = tells(text, secret);
    safe += told > 0 ? "[the key]" : text.substr(0, 1);
    text.remove_prefix(std::max<std::size_t>(told, 1));
  }
  return safe;
}

bool is_fixed(std::string_view text) {
  return std::any_of(kReasons.begin(), kReasons.end(), [text](std::string_view reason) {
    if (reason != kBadSize || !text.starts_with(reason)) return text == reason;
    return text.find_first_not_of("0123456789", reason.size()) == std::string_view::npos;
  });
}

// A lender's words may repeat what it was sent: as the key is, or as the request had it. The
// protocol's own reasons stay what they are, even for a key that is a word of them.
std::string without_key(std::string_view text, std::string_view key) {
  if (is_fixed(text)) return std::string(text);
  std::string safe = without(text, key);
  JsonBuffer quoted;
  JsonTextWriter(quoted).String(key.data(), static_cast<rapidjson::SizeType>(key.size()));
  const std::string_view sent(quoted.GetString() + 1, quoted.GetSize() - 2);
  return sent == key ? safe : without(safe, sent);
}

// "..., which is 64 MiB": the most that may be asked for, for people, where the reason has it in
// bytes.
std::string size_in(std::string_view reason) {
  if (!reason.starts_with(kBadSize)) return {};
  const std::string_view digits = reason.substr(kBadSize.size());
  const char* const end = digits.data() + digits.size();
  std::uint64_t count = 0;
  const auto [rest, problem] = std::from_chars(digits.data(), end, count);
  if (problem != std::errc{} || rest != end || count % 1024 != 0) return {};
  return cat(", which is ", format_bytes(Bytes(count)));
}

// The refusal in `document`: "ok" is false, or it carries an "error".
std::optional<Error> refusal_in(const JsonDocument& document, std::string_view key = {}) {
  const auto* ok = last_member(document, "ok");
  const auto* error = last_member(document, "error");
  const bool refused = ok != nullptr && ok->IsFalse();
  if (!refused && error == nullptr) return std::nullopt;
  std::string reason = "refused without saying why";
  if (error != nullptr && error->IsString()) {
    const std::string_view words(error->GetString(), error->GetStringLength());
    reason = printable(without_key(words, key), kMaxReason);
    reason += size_in(reason);
  }
  if (Bytes free, largest; read_sizes(document, {{"free", &free}, {"largest", &largest}})) {
    reason += cat(": ", format_bytes(free), " are free, the largest claim now is ",
                  format_bytes(largest));
    if (largest == Bytes(0) && free > Bytes(0))
      reason +=
          " (it drains, cannot lend now, or this user has what it may; its operator sees why)";
  }
  return Error{Code::kRefused, 0, "the lender", std::move(reason)};
}

}  // namespace

std::optional<Request> parse_request(std::string_view datagram) {
  if (datagram.size() > kMaxDatagram || !is_utf8(datagram)) return std::nullopt;
  rapidjson::MemoryStream stream(datagram.data(), datagram.size());
  RequestHandler handler;
  // Room for the parser's own stack, so that an ordinary request allocates nothing.
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): the parser fills it
  alignas(std::max_align_t) std::array<char, 1024> room;
  JsonPool allocator(room.data(), room.size());
  rapidjson::GenericReader<rapidjson::UTF8<>, rapidjson::UTF8<>, JsonPool> reader(&allocator);
  if (reader.Parse<kParseFlags>(stream, handler).IsError()) return std::nullopt;
  // RapidJSON takes a NUL for the end of its input.
  if (stream.Tell() != datagram.size()) return std::nullopt;
  return std::move(handler).take();
}

std::string encode_info(const Info& info) {
  return cat("{", reservation_members(info), "}");
}

std::string encode_grant(const Grant& grant) {
  return cat("{\"ok\": true, \"base\": ", grant.base.count(), ", \"size\": ", grant.size.count(),
             "}");
}

std::string encode_refusal(Refusal refusal, const Info& now) {
  switch (refusal) {
    case Refusal::kUnknownKey:
      return R"({"ok": false, "error": "missing or unknown key"})";
    case Refusal::kUnknownOp:
      return R"({"ok": false, "error": "unknown op"})";
    case Refusal::kBadSize:
      return cat(R"({"ok": false, "error": "size must be an integer from 1 to )", now.size.count(),
                 "\"}");
    case Refusal::kNotEnough:
      break;
  }
  return cat(R"({"ok": false, "error": "not enough free carveout", )", reservation_members(now),
             "}");
}

std::string encode_info_request(std::string_view key) {
  return encode_request(key, "info", nullptr);
}

std::string encode_alloc_request(std::string_view key, Bytes size) {
  return encode_request(key, "alloc", &size);
}

Result<Info> parse_info_reply(std::string_view datagram, std::string_view key) {
  JsonDocument document;
  if (auto parsed = parse_object(datagram, document); !parsed) return parsed.error();
  if (auto refused = refusal_in(document, key)) return *std::move(refused);
  Info info;
  if (!read_sizes(document, {{"base", &info.base},
                             {"size", &info.size},
                             {"free", &info.free},
                             {"largest", &info.largest}})) {
    return unexpected("lacks one of base, size, free, largest as whole numbers");
  }
  return info;
}

Result<Grant> parse_grant_reply(std::string_view datagram, std::string_view key) {
  JsonDocument document;
  if (auto parsed = parse_object(datagram, document); !parsed) return parsed.error();
  if (auto refused = refusal_in(document, key)) return *std::move(refused);
  const auto* ok = last_member(document, "ok");
  if (ok == nullptr || !ok->IsTrue()) return unexpected("has no \"ok\": true");
  Grant grant;
  if (!read_sizes(document, {{"base", &grant.base}, {"size", &grant.size}})) {
    return unexpected("lacks base or size as a whole number");
  }
  return grant;
}

}  // namespace carveout::wire
