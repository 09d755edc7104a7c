#include "ledger_record.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidjson/document.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/crc32c.hpp"
#include "base/json.hpp"
#include "base/text.hpp"

namespace carveout::daemon {
namespace {

using testing::HasSubstr;

constexpr std::array kEvents{
    LedgerEvent::kStarted,  LedgerEvent::kRequested, LedgerEvent::kGranted, LedgerEvent::kAnswered,
    LedgerEvent::kRefused,  LedgerEvent::kReleased,  LedgerEvent::kAdopted, LedgerEvent::kLost,
    LedgerEvent::kRepaired, LedgerEvent::kStopped};

bool tells_of_a_borrower(LedgerEvent event) {
  return event == LedgerEvent::kRequested || event == LedgerEvent::kGranted ||
         event == LedgerEvent::kAdopted || event == LedgerEvent::kRefused;
}

bool is_of_a_lease(LedgerEvent event) {
  return tells_of_a_borrower(event) || event == LedgerEvent::kAnswered ||
         event == LedgerEvent::kReleased || event == LedgerEvent::kLost;
}

// With every member that its event can have, each different.
LedgerRecord full(LedgerEvent event) {
  LedgerRecord record{.seq = 7,
                      .boot = "0e5f7f0c-5b5c-4b0e-9d8a-2f1d2c3b4a59",
                      .start = 3,
                      .unix_us = 1'700'000'000'123'456,
                      .mono_us = 5'000'001,
                      .event = event};
  if (event == LedgerEvent::kStarted) {
    record.reservation = mib(2046);
    record.follows = "ledger.jsonl.1";
  }
  if (event == LedgerEvent::kStarted || is_of_a_lease(event)) {
    record.connection = 41;
    record.lease = 17;
  }
  if (tells_of_a_borrower(event)) {
    record.uid = 1000;
    record.gid = 1001;
    record.pid = 4242;
    record.asked = Bytes(3'000'000);
  }
  record.carried = true;
  record.size = mib(4);
  record.inode = 99;
  record.since_unix_us = 1'699'999'999'000'000;
  record.command = "python3";
  record.unit = "train.service";
  record.cgroup = "/system.slice/train.service";
  record.reason = "because";
  return record;
}

auto members_of(const LedgerRecord& record) {
  return std::tie(record.seq, record.boot, record.start, record.unix_us, record.mono_us,
                  record.event, record.reservation, record.follows, record.carried,
                  record.connection, record.lease, record.uid, record.gid, record.pid, record.asked,
                  record.size, record.inode, record.since_unix_us, record.command, record.unit,
                  record.cgroup, record.reason);
}

// Without its '\n'.
std::string line_of(const LedgerRecord& record) {
  std::string line = encode(record);
  EXPECT_EQ(line.back(), '\n');
  line.pop_back();
  return line;
}

// A line with a good CRC. `body` goes up to the closing brace.
std::string sealed(std::string_view body) {
  std::string digits;
  for (int shift = 28; shift >= 0; shift -= 4)
    digits += "0123456789abcdef"[(crc32c(body) >> static_cast<unsigned>(shift)) & 0xFU];
  return cat(body, R"(,"crc32c":")", digits, "\"}");
}

// The event's line with one member replaced by this piece of JSON, or taken out, and a good CRC.
std::string changed(LedgerEvent event, const char* name, std::optional<std::string> json) {
  rapidjson::Document document;
  document.Parse(line_of(full(event)).c_str());
  document.RemoveMember("crc32c");
  document.RemoveMember(name);
  rapidjson::StringBuffer buffer;
  rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
  document.Accept(writer);
  std::string body(buffer.GetString(), buffer.GetSize() - 1);
  if (json) body += cat(",\"", name, "\":", *json);
  return sealed(body);
}

std::string complaint(std::string_view line) {
  const auto record = decode(line);
  return record ? "" : record.error().message;
}

TEST(LedgerRecord, IsOneLineOfJson) {
  EXPECT_EQ(
      line_of(full(LedgerEvent::kGranted)),
      sealed(R"({"seq":7,"boot":"0e5f7f0c-5b5c-4b0e-9d8a-2f1d2c3b4a59","start":3,)"
             R"("unix_us":1700000000123456,"mono_us":5000001,"event":"granted","carried":true,)"
             R"("connection":41,"lease":17,"uid":1000,"gid":1001,"pid":4242,)"
             R"("asked_bytes":3000000,"bytes":4194304,"inode":99,"since_unix_us":1699999999000000,)"
             R"("command":"python3","unit":"train.service","cgroup":"/system.slice/train.service",)"
             R"("reason":"because")"));
}

TEST(LedgerRecord, ComesBackWithEveryMember) {
  for (const LedgerEvent event : kEvents) {
    const LedgerRecord record = full(event);
    const auto again = decode(line_of(record));
    ASSERT_TRUE(again) << name_of(event) << ": " << again.error().message;
    EXPECT_EQ(members_of(*again), members_of(record)) << name_of(event);
  }
}

TEST(LedgerRecord, ComesBackWithTheLargestNumbers) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  constexpr auto kMost32 = std::numeric_limits<std::uint32_t>::max();
  LedgerRecord record = full(LedgerEvent::kGranted);
  record.seq = record.start = record.unix_us = record.mono_us = kMost;
  record.connection = record.lease = record.inode = record.since_unix_us = kMost;
  record.asked = record.size = Bytes(kMost);
  record.uid = record.gid = record.pid = kMost32;
  const auto again = decode(line_of(record));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(members_of(*again), members_of(record));
}

TEST(LedgerRecord, WhatItIsWithoutStaysOut) {
  LedgerRecord record = full(LedgerEvent::kReleased);
  record.carried = false;
  record.inode = record.since_unix_us = 0;
  record.command.clear();
  record.unit.clear();
  record.cgroup.clear();
  record.reason.clear();
  const std::string line = line_of(record);
  for (const char* name : {"carried", "inode", "since", "command", "unit", "cgroup", "reason"})
    EXPECT_EQ(line.find(name), std::string::npos) << name;
  EXPECT_EQ(members_of(*decode(line)), members_of(record));
}

// A grant whose own record was lost goes on without its beginning.
TEST(LedgerRecord, ALeaseOfUnknownBeginningCanBeRead) {
  for (const LedgerEvent event : {LedgerEvent::kGranted, LedgerEvent::kAdopted}) {
    LedgerRecord record = full(event);
    record.since_unix_us = 0;
    EXPECT_EQ(complaint(line_of(record)), "") << name_of(event);
  }
}

TEST(LedgerRecord, HostileTextStaysOnItsLine) {
  const std::string hostile =
      "a\"b\\c\nd\r\x1b[31m\x7f\xff\xc2\x9b\xe2\x80{\"seq\":1}" + std::string(1, '\0') + "\xc3\xa4";
  LedgerRecord record = full(LedgerEvent::kAdopted);
  record.command = record.unit = record.cgroup = record.reason = hostile;
  const std::string line = line_of(record);
  EXPECT_TRUE(std::all_of(line.begin(), line.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte != 0x7f;
  }));
  EXPECT_TRUE(is_utf8(line));
  const auto again = decode(line);
  ASSERT_TRUE(again) << again.error().message;
  for (const std::string* text : {&again->command, &again->unit, &again->cgroup, &again->reason})
    EXPECT_EQ(*text, printable(hostile, hostile.size()));
  EXPECT_EQ(again->pid, record.pid) << "what stands in a text is no member";
  EXPECT_EQ(line_of(*again), line) << "read and written again it is the same";
}

TEST(LedgerRecord, NoLineIsTooLong) {
  for (const LedgerEvent event : kEvents) {
    for (const char filler : {'x', '"', '\\', '\n', '\0', '\x7f', '\xff'}) {
      LedgerRecord record = full(event);
      record.seq = record.start = record.unix_us = record.mono_us = record.connection =
          record.lease = record.inode = record.since_unix_us =
              std::numeric_limits<std::uint64_t>::max();
      record.command = record.unit = record.cgroup = record.reason = std::string(10'000, filler);
      if (event == LedgerEvent::kStarted) record.follows = record.command;
      EXPECT_LT(encode(record).size(), kMaxLedgerLine) << name_of(event);
      const auto again = decode(line_of(record));
      ASSERT_TRUE(again) << name_of(event) << ": " << again.error().message;
      EXPECT_EQ(encode(*again), encode(record)) << "however often it is restated";
    }
  }
}

TEST(LedgerRecord, IsRefusedWithAnySingleBitFlipped) {
  for (const LedgerEvent event : kEvents) {
    std::string line = line_of(full(event));
    for (std::size_t bit = 0; bit < line.size() * 8; ++bit) {
      const auto mask = static_cast<char>(1U << (bit % 8));
      line[bit / 8] = static_cast<char>(line[bit / 8] ^ mask);
      EXPECT_FALSE(decode(line)) << "bit " << bit << ": " << printable(line, 1000);
      line[bit / 8] = static_cast<char>(line[bit / 8] ^ mask);
    }
  }
}

TEST(LedgerRecord, IsRefusedWhenItIsCutShort) {
  const std::string line = line_of(full(LedgerEvent::kGranted));
  for (std::size_t length = 0; length < line.size(); ++length)
    EXPECT_FALSE(decode(line.substr(0, length))) << length;
  EXPECT_FALSE(decode(line + "\n"));
  EXPECT_FALSE(decode(line + " "));
  EXPECT_FALSE(decode(line.substr(1)));
}

TEST(LedgerRecord, SaysWhatIsWrongWithTheCrc) {
  std::string line = line_of(full(LedgerEvent::kStopped));
  EXPECT_THAT(complaint("hello"), HasSubstr("cut short, or not a record"));
  EXPECT_THAT(complaint(R"({"seq":1,"start":1,"boot":"a boot"})"), HasSubstr("no CRC at its end"));
  line.at(line.find("because")) = 'B';
  EXPECT_THAT(complaint(line), HasSubstr("has been changed: its CRC is "));
}

TEST(LedgerRecord, TheCrcIsInLowerCase) {
  LedgerRecord record = full(LedgerEvent::kAnswered);
  std::string line;
  std::string upper;
  do {
    ++record.seq;
    line = line_of(record);
    upper = line;
    std::transform(upper.end() - 10, upper.end() - 2, upper.end() - 10,
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  } while (upper == line);  // digits only
  EXPECT_TRUE(decode(line));
  EXPECT_FALSE(decode(upper));
}

TEST(LedgerRecord, TheCrcComesLast) {
  const std::string line = line_of(full(LedgerEvent::kStopped));
  EXPECT_FALSE(decode(cat(line.substr(0, line.size() - 1), R"(,"more":1})")));
  EXPECT_FALSE(decode(sealed(R"({"seq":1,"crc32c":"00000000")")));
}

TEST(LedgerRecord, ALineOfTheWholeLengthIsReadAndNotOneLonger) {
  const std::string whole = line_of(full(LedgerEvent::kGranted));
  const std::string members = whole.substr(1, whole.find(R"(,"crc32c")") - 1);
  const auto padded = [&](std::size_t size) {
    return sealed(cat("{", std::string(size - whole.size(), ' '), members));
  };
  EXPECT_EQ(complaint(padded(kMaxLedgerLine - 1)), "");
  EXPECT_THAT(complaint(padded(kMaxLedgerLine)), HasSubstr("longer than any"));
}

TEST(LedgerRecord, WhatIsNoJsonIsRefusedInSpiteOfItsCrc) {
  for (const char* body : {"{", "[1", "nonsense", R"({"seq":1)", R"({"seq":1}{"a":2)"})
    EXPECT_NE(complaint(sealed(body)), "") << body;
  EXPECT_THAT(complaint(sealed("{")), HasSubstr("not a JSON object"));
}

TEST(LedgerRecord, UnknownMembersDoNotDisturb) {
  EXPECT_EQ(complaint(changed(LedgerEvent::kStopped, "more", R"({"a":[1]})")), "");
}

TEST(LedgerRecord, UnknownEventsAreRefused) {
  for (const char* event : {R"("Started")", R"("")", R"("started ")", R"("st\u0000")", "1", "null"})
    EXPECT_THAT(complaint(changed(LedgerEvent::kStarted, "event", event)),
                HasSubstr("no known event"))
        << event;
  EXPECT_THAT(complaint(changed(LedgerEvent::kStarted, "event", std::nullopt)),
              HasSubstr("no known event"));
}

// --- members that are missing or not what they should be ---

std::vector<const char*> required_numbers(LedgerEvent event) {
  std::vector<const char*> names{"seq", "start", "unix_us", "mono_us"};
  const auto add = [&names](std::initializer_list<const char*> more) {
    names.insert(names.end(), more);
  };
  if (event == LedgerEvent::kStarted) add({"reservation_bytes", "last_connection", "last_lease"});
  if (is_of_a_lease(event)) add({"connection", "lease"});
  if (tells_of_a_borrower(event)) add({"uid", "gid", "pid", "asked_bytes"});
  const bool granted = event == LedgerEvent::kGranted || event == LedgerEvent::kAdopted;
  if (granted || event == LedgerEvent::kRequested) add({"bytes"});
  if (granted) add({"since_unix_us"});
  return names;
}

void expect_named(LedgerEvent event, const char* name, const std::optional<std::string>& json) {
  EXPECT_EQ(complaint(changed(event, name, json)), cat("has no good \"", name, "\""))
      << name_of(event) << " with " << json.value_or("nothing");
}

TEST(LedgerRecord, AMissingMemberIsNamed) {
  for (const LedgerEvent event : kEvents) {
    for (const char* name : required_numbers(event))
      expect_named(event, name, std::nullopt);
    expect_named(event, "boot", std::nullopt);
  }
}

TEST(LedgerRecord, AMemberThatIsNoNumberIsNamed) {
  for (const LedgerEvent event : kEvents) {
    std::vector<const char*> names = required_numbers(event);
    names.push_back("inode");  // need not be there, but then is a number
    for (const char* name : names) {
      for (const char* json : {"-1", "1.5", "1e3", "18446744073709551616", "\"1\"", "true", "null"})
        expect_named(event, name, json);
    }
  }
}

TEST(LedgerRecord, IdsOfUsersAndProcessesHave32Bits) {
  for (const char* name : {"uid", "gid", "pid"}) {
    expect_named(LedgerEvent::kGranted, name, "4294967296");
    EXPECT_EQ(complaint(changed(LedgerEvent::kGranted, name, "4294967295")), "") << name;
  }
}

TEST(LedgerRecord, AMemberThatIsNoTextIsNamed) {
  for (const LedgerEvent event : kEvents) {
    for (const char* name : {"boot", "command", "unit", "cgroup", "reason"}) {
      for (const char* json : {"1", "null", "[\"a\"]", "false"})
        expect_named(event, name, json);
    }
  }
  expect_named(LedgerEvent::kStarted, "follows", "1");
}

TEST(LedgerRecord, ATextThatWeDidNotWriteIsNamed) {
  const std::string longer = cat("\"", std::string(257, 'x'), "\"");
  for (const char* name : {"boot", "command", "unit", "cgroup", "reason"}) {
    for (const std::string& json : {std::string(R"("\n")"), std::string(R"("\u0000")"), longer})
      expect_named(LedgerEvent::kGranted, name, json);
  }
}

TEST(LedgerRecord, WhatItsEventDoesNotHaveIsNotTaken) {
  for (const char* name : {"follows", "reservation_bytes", "connection", "lease", "uid", "pid"}) {
    const auto record = decode(changed(LedgerEvent::kStopped, name, "5"));
    ASSERT_TRUE(record) << name;
    EXPECT_EQ(members_of(*record), members_of(full(LedgerEvent::kStopped))) << name;
  }
}

TEST(LedgerRecord, CarriedIsTrueOrFalse) {
  for (const char* json : {"1", "null", "\"true\""})
    expect_named(LedgerEvent::kGranted, "carried", json);
  EXPECT_FALSE(decode(changed(LedgerEvent::kGranted, "carried", "false"))->carried);
}

}  // namespace
}  // namespace carveout::daemon
