#pragma once

// A history that is told record by record, each as the daemon would write it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "ledger_history.hpp"

namespace carveout::daemon {

class LedgerHistoryTest : public testing::Test {
 protected:
  using State = LedgerHistory::State;

  // The next record, with its number, epoch and times.
  [[nodiscard]] LedgerRecord next(LedgerEvent event) const {
    const LedgerRecord& last = history_.last();
    LedgerRecord record;
    record.event = event;
    record.seq = last.seq + 1;
    record.boot = history_.empty() ? "this boot" : last.boot;
    record.start = history_.empty() ? 1 : last.start;
    record.mono_us = last.mono_us + 10;
    record.unix_us = 1'700'000'000'000'000 + record.mono_us;
    return record;
  }
  // Of a lease on the connection 100 + its id. What it asks for does not fill its last slice.
  [[nodiscard]] LedgerRecord of(LedgerEvent event, std::uint64_t lease,
                                std::uint64_t slices = 1) const {
    LedgerRecord record = next(event);
    record.lease = lease;
    record.connection = 100 + lease;
    record.uid = 1000;
    record.gid = 1001;
    record.pid = 4242;
    record.size = Slices(slices).bytes();
    record.asked = record.size - Bytes(1);
    return record;
  }
  [[nodiscard]] LedgerRecord carried(LedgerEvent event, std::uint64_t lease,
                                     std::uint64_t slices = 1) const {
    LedgerRecord record = of(event, lease, slices);
    record.carried = true;
    return record;
  }
  // The daemon's start, of this boot or of another.
  [[nodiscard]] LedgerRecord start(std::uint64_t slices = 8, const std::string& boot = {}) const {
    LedgerRecord record = next(LedgerEvent::kStarted);
    record.reservation = Slices(slices).bytes();
    if (!history_.empty()) ++record.start;
    if (!boot.empty()) record.boot = boot;
    return record;
  }
  // The head of the next file.
  [[nodiscard]] LedgerRecord next_file(std::uint64_t slices = 8) const {
    LedgerRecord record = next(LedgerEvent::kStarted);
    record.reservation = Slices(slices).bytes();
    record.follows = "ledger.jsonl.1";
    return record;
  }

  void good(const LedgerRecord& record) {
    const auto found = history_.objection(record);
    EXPECT_FALSE(found) << name_of(record.event) << ", " << record.seq << ": " << *found;
    history_.take(record);
  }
  // Nothing is taken of it.
  void bad(const LedgerRecord& record, const std::string& why) const {
    const auto found = history_.objection(record);
    ASSERT_TRUE(found) << name_of(record.event) << " is taken; expected: " << why;
    EXPECT_THAT(*found, testing::HasSubstr(why));
  }

  void request(std::uint64_t lease, std::uint64_t slices = 1) {
    good(of(LedgerEvent::kRequested, lease, slices));
  }
  void grant(std::uint64_t lease, std::uint64_t slices = 1) {
    request(lease, slices);
    good(of(LedgerEvent::kGranted, lease, slices));
  }
  void lend(std::uint64_t lease, std::uint64_t slices = 1) {
    grant(lease, slices);
    good(of(LedgerEvent::kAnswered, lease, slices));
  }

  void expect_open(std::uint64_t lease, State state, bool pending = false) const {
    const auto open = history_.open().find(lease);
    ASSERT_NE(open, history_.open().end()) << lease;
    EXPECT_EQ(open->second.state, state) << lease;
    EXPECT_EQ(open->second.pending, pending) << lease;
  }

  LedgerHistory history_;
};

}  // namespace carveout::daemon
