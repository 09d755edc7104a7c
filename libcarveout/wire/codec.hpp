#pragma once

// The lending protocol's messages as bytes and back (docs/protocol.md). Pure: no I/O.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace carveout::wire {

// A longer datagram is answered like any unreadable one. Ours to choose: the protocol names no
// bound, and its own requests need under 400 bytes.
inline constexpr std::size_t kMaxDatagram = 4096;

enum class Op { kUnknown, kInfo, kAlloc };

// What a request says, as far as it can be told without knowing the key or the reservation.
struct Request {
  std::string key;
  Op op = Op::kUnknown;
  // Empty when `size` is missing, negative, or anything but a whole JSON number.
  std::optional<Bytes> size;
};

struct Info {
  Bytes base, size, free, largest;
};

struct Grant {
  Bytes base, size;
};

enum class Refusal { kUnknownKey, kUnknownOp, kBadSize, kNotEnough };

// --- the daemon's side ---

// Empty for whatever the protocol answers with "missing or unknown key" before the key is even
// compared: not JSON in UTF-8, not an object, no string member `key`, too long. Of duplicate
// members the last counts; members of nested objects do not.
std::optional<Request> parse_request(std::string_view datagram);

std::string encode_info(const Info& info);
std::string encode_grant(const Grant& grant);
// `now` is what the caller is told of the reservation; only the refusals that say so use it.
std::string encode_refusal(Refusal refusal, const Info& now);

// --- the client's side ---

std::string encode_info_request(std::string_view key);
std::string encode_alloc_request(std::string_view key, Bytes size);

// What a lender says of a key that is not its own, and of a size that it never has.
inline constexpr std::string_view kUnknownKey = "missing or unknown key";
inline constexpr std::string_view kBadSize = "size must be an integer from 1 to ";

// Both accept any spacing, member order and extra members; of duplicate members the last counts.
// Errors: kRefused with the daemon's own words (without `key`, bounded, escaped) when it said no,
// kProtocol when the datagram is not such a reply.
Result<Info> parse_info_reply(std::string_view datagram, std::string_view key = {});
Result<Grant> parse_grant_reply(std::string_view datagram, std::string_view key = {});

}  // namespace carveout::wire
