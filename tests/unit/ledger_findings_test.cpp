// What the fuzzers of the ledger (tests/fuzz) have found, each once more.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/crc32c.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "ledger.hpp"
#include "ledger_scan.hpp"
#include "unit/helpers.hpp"

namespace carveout::daemon {
namespace {

using testing::HasSubstr;
using State = LedgerHistory::State;

constexpr Bytes kReservation = mib(16);
constexpr std::uint64_t kHighest = std::numeric_limits<std::uint64_t>::max();

// A line with the CRC that fits it; `body` is without its closing brace.
std::string sealed(std::string_view body) {
  std::array<char, 9> crc{};
  std::snprintf(crc.data(), crc.size(), "%08x", crc32c(body));
  return cat(body, R"(,"crc32c":")", crc.data(), "\"}\n");
}

std::string_view without_end(const std::string& line) {
  return std::string_view(line).substr(0, line.size() - 1);
}

// A ledger told line by line, each record with the number that it should have.
class Story {
 public:
  Story& add(LedgerRecord record) {
    record.seq = ++seq_;
    record.boot = "boot";
    record.start = 1;
    lines_.push_back(encode(record));
    return *this;
  }
  Story& start(std::string_view follows = "", std::uint64_t lease = 0, std::uint64_t number = 0) {
    LedgerRecord record;
    record.event = LedgerEvent::kStarted;
    record.reservation = kReservation;
    record.follows = follows;
    record.lease = lease;
    if (number != 0) seq_ = number - 1;
    return add(record);
  }
  Story& add(LedgerEvent event, std::uint64_t lease, bool carried = false,
             Bytes size = kSliceBytes) {
    LedgerRecord record;
    record.event = event;
    record.lease = lease;
    record.connection = 1;
    record.asked = record.size = size;
    if (event != LedgerEvent::kRequested) record.since_unix_us = 1;
    record.carried = carried;
    return add(record);
  }
  Story& damage() {
    lines_.back()[2] ^= 1;
    return *this;
  }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (const std::string& line : lines_)
      all += line;
    return all;
  }

 private:
  std::uint64_t seq_ = 0;
  std::vector<std::string> lines_;
};

// The first problem, or "good".
std::string audit(const std::string& text) {
  LedgerHistory history;
  const LedgerScan scan = scan_ledger(text, history, OnProblem::kStop);
  return scan.problem ? cat("line ", scan.problem->line, ": ", scan.problem->what) : "good";
}

class LedgerFindings : public testing::Test {
 protected:
  auto open(const Story& story, std::size_t max_file = Ledger::kMaxFile) const {
    return Ledger::open(directory_.file("ledger", story.text()), kReservation, max_file);
  }
  std::string now() const { return *read_text(directory_.path("ledger"), 1U << 20U); }

  test::TemporaryDirectory directory_;
};

// A record of a damaged file is restated with all texts as they were read; 256 bytes that are not
// UTF-8 became 1024, of which the next file had 256 and so on, and a boot of any length was longer
// than a line may be.
TEST_F(LedgerFindings, ATextStaysAsItIsHoweverOftenItIsRestated) {
  LedgerRecord record;
  record.boot = record.command = record.reason = std::string(300, '\xff');
  record.unit = std::string(255, 'x') + "\u00fc";
  record.cgroup = std::string(85, '\n') + "\\\u20ac";
  record.event = LedgerEvent::kLost;
  const std::string once = encode(record);
  const auto read = decode(without_end(once));
  ASSERT_TRUE(read) << read.error().describe();
  EXPECT_EQ(read->unit, std::string(255, 'x') + "\\");
  EXPECT_EQ(encode(*read), once);
  EXPECT_LT(once.size(), kMaxLedgerLine);
}

TEST_F(LedgerFindings, ATextIsNotCutWithinACharacter) {
  LedgerRecord record;
  record.event = LedgerEvent::kStopped;
  // The control character becomes four, and of the last character only a part has room.
  record.reason = "\n" + std::string(250, 'x') + "\u20ac";
  const auto read = decode(without_end(encode(record)));
  ASSERT_TRUE(read) << read.error().describe();
  EXPECT_EQ(read->reason, "\\x0a" + std::string(250, 'x'));
}

TEST_F(LedgerFindings, ATextThatNoDaemonWritesIsNotTaken) {
  constexpr std::string_view kHead =
      R"({"seq":1,"start":1,"unix_us":1,"mono_us":1,"event":"stopped",)";
  EXPECT_TRUE(decode(without_end(sealed(cat(kHead, R"("boot":"b")")))));
  for (const std::string& boot : {std::string("\x7f"), std::string("\xff"), std::string("\\u0000"),
                                  std::string(257, 'b'), std::string(7000, 'b')}) {
    const auto read = decode(without_end(sealed(cat(kHead, R"("boot":")", boot, "\""))));
    ASSERT_FALSE(read) << boot;
    EXPECT_THAT(read.error().message, HasSubstr("\"boot\""));
  }
}

// The ids of a lease were taken from any record, and raised the highest that had been used.
TEST_F(LedgerFindings, NothingIsTakenThatTheEventDoesNotHave) {
  const auto read = decode(without_end(
      sealed(R"({"seq":2,"boot":"b","start":1,"unix_us":1,"mono_us":1,"event":"repaired",)"
             R"("reservation_bytes":2,"follows":"x","connection":5,"lease":5,"uid":5,"gid":5,)"
             R"("pid":5,"asked_bytes":5)")));
  ASSERT_TRUE(read) << read.error().describe();
  EXPECT_EQ(read->lease, 0U);
  EXPECT_EQ(read->connection, 0U);
  EXPECT_EQ(read->uid + read->gid + read->pid, 0U);
  EXPECT_EQ(read->asked + read->reservation, Bytes(0));
  EXPECT_EQ(read->follows, "");
}

TEST_F(LedgerFindings, WhatIsRequiredIsWrittenEvenIfItIsZero) {
  for (const auto event : {LedgerEvent::kRequested, LedgerEvent::kGranted, LedgerEvent::kAdopted}) {
    LedgerRecord record;
    record.event = event;
    const auto read = decode(without_end(encode(record)));
    EXPECT_TRUE(read) << name_of(event) << ": " << read.error().describe();
  }
}

// It was then restated without the time it was granted at, which could not be read again: the lease
// was lost at the start after the next.
TEST_F(LedgerFindings, ALeaseWhoseGrantIsDamagedIsRestatedReadably) {
  Story story;
  story.start().add(LedgerEvent::kRequested, 1).add(LedgerEvent::kGranted, 1).damage();
  story.add(LedgerEvent::kAnswered, 1);
  const auto ledger = open(story);
  ASSERT_TRUE(ledger) << ledger.error().describe();
  EXPECT_EQ(audit(now()), "good");
  LedgerHistory history;
  scan_ledger(now(), history, OnProblem::kStop);
  ASSERT_TRUE(history.open().contains(1));
  EXPECT_EQ(history.open().at(1).state, State::kLent);
  EXPECT_NE(history.open().at(1).record.since_unix_us, 0U);
}

// What is open there could go missing at the end of the text, which passed for good; what a start
// then added did not.
TEST_F(LedgerFindings, AFileDoesNotBeginWithinAnother) {
  Story story;
  story.start().add(LedgerEvent::kRequested, 1).start("ledger.1", 1);
  EXPECT_THAT(audit(story.text()), HasSubstr("line 3: (started, number 3) a new file"));
  const auto ledger = open(story);
  ASSERT_TRUE(ledger) << ledger.error().describe();
  EXPECT_EQ(audit(now()), "good");
}

// Together they were 0 bytes, beside which the whole reservation could be granted.
TEST_F(LedgerFindings, WhatIsCarriedOverDoesNotAddUpToNothing) {
  const Bytes half(1ULL << 63U);
  Story story;
  story.start("ledger.1", 2).add(LedgerEvent::kAdopted, 1, true, half);
  EXPECT_EQ(audit(story.text()), "good");
  story.add(LedgerEvent::kGranted, 2, true, half);
  EXPECT_THAT(audit(story.text()), HasSubstr("line 3"));
  EXPECT_TRUE(open(story));
  EXPECT_EQ(audit(now()), "good");
}

// It passed for good, and the lease that it should have restated was gone.
TEST_F(LedgerFindings, AnAnswerIsNotCarriedOver) {
  LedgerHistory history;
  LedgerRecord record;
  record.seq = 7;
  record.follows = "ledger.1";
  history.take(record);
  record = {};
  record.seq = 8;
  record.event = LedgerEvent::kAdopted;
  record.carried = true;
  record.lease = 1;
  record.asked = record.size = kSliceBytes;
  EXPECT_FALSE(history.objection(record));
  record.event = LedgerEvent::kAnswered;
  EXPECT_TRUE(history.objection(record));
}

TEST_F(LedgerFindings, NoLeaseZeroIsCarriedOver) {
  Story story;
  story.start("ledger.1").add(LedgerEvent::kGranted, 0, true);
  EXPECT_THAT(audit(story.text()), HasSubstr("line 2"));
}

// The next would have been 0: the first record of a ledger, and no lease.
TEST_F(LedgerFindings, NumbersThatAreUsedUpAreNotGoneOnFrom) {
  Story numbers;
  numbers.start("ledger.1", 0, kHighest);
  Story leases;
  leases.start("", kHighest);
  for (const Story& story : {numbers, leases}) {
    const auto ledger = open(story);
    ASSERT_FALSE(ledger);
    EXPECT_EQ(ledger.error().code, Code::kInvalid);
    EXPECT_THAT(ledger.error().message, HasSubstr("used up"));
    EXPECT_EQ(now(), story.text());
  }
}

// A daemon that dies between a file's head and its next record leaves such a file. It was replaced
// by another if it was large, with nothing between the two heads, which the audit does not take.
TEST_F(LedgerFindings, AFileThatIsNothingButItsHeadIsGoneOnIn) {
  Story story;
  story.start("ledger.1", 2).add(LedgerEvent::kAdopted, 1, true);
  story.add(LedgerEvent::kRequested, 2, true);
  const auto ledger = open(story, story.text().size());
  ASSERT_TRUE(ledger) << ledger.error().describe();
  EXPECT_TRUE(now().starts_with(story.text()));
  EXPECT_EQ(audit(now()), "good");
  (*ledger)->lose(1, "");
  (*ledger)->lose(2, "");
  for (int i = 0; i < 10; ++i) {
    LedgerRecord record;
    record.event = LedgerEvent::kRefused;
    EXPECT_TRUE((*ledger)->append(record));
  }
  // It has been replaced in the end.
  LedgerHistory history;
  for (const char* name : {"ledger.1", "ledger"}) {
    const auto text = read_text(directory_.path(name), 1U << 20U);
    ASSERT_TRUE(text) << name;
    EXPECT_FALSE(scan_ledger(*text, history, OnProblem::kStop).problem) << name;
  }
  EXPECT_TRUE(history.open().empty());
}

// 64 MiB were made room for, and touched, for any ledger.
TEST_F(LedgerFindings, AFileTakesNoMoreRoomThanItsOwn) {
  for (const std::size_t size : {0U, 1U, 4095U, 4096U, 4097U, 300'000U}) {
    const std::string text(size, 'x');
    const std::string path = directory_.file("text", text);
    const auto read = read_text(path, 64U << 20U);
    ASSERT_TRUE(read);
    EXPECT_EQ(*read, text);
    EXPECT_LE(read->capacity(), 4096 + 4 * size);
    for (const std::size_t limit : {size / 2, size, size + 1})
      EXPECT_EQ(read_text(path, limit)->size(), std::min(limit, size));
  }
}

}  // namespace
}  // namespace carveout::daemon
