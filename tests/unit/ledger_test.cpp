// The ledger's file: how it is taken up, and what it is found as.

#include "ledger.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "unit/ledger_fixture.hpp"

namespace carveout::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using State = LedgerHistory::State;

class LedgerFile : public LedgerFileTest {
 protected:
  // Three leases: 1 is lent, 2 granted, 3 requested.
  void leave_three() const {
    const auto ledger = open();
    lend(*ledger, 1, 2);
    EXPECT_TRUE(ledger->append(of(LedgerEvent::kRequested, 2)));
    EXPECT_TRUE(ledger->append(of(LedgerEvent::kGranted, 2)));
    EXPECT_TRUE(ledger->append(of(LedgerEvent::kRequested, 3)));
  }
  static void expect_pending(const Ledger& ledger, std::uint64_t lease, State state) {
    const auto& all = ledger.history().open();
    ASSERT_TRUE(all.contains(lease)) << lease;
    EXPECT_EQ(all.at(lease).state, state) << lease;
    EXPECT_TRUE(all.at(lease).pending) << lease;
  }
  // The ledger with one bit of a line (from 1) changed.
  void damage(std::size_t line) const {
    std::string all = text();
    std::size_t at = 0;
    for (std::size_t i = 1; i < line; ++i)
      at = all.find('\n', at) + 1;
    all[at + 20] ^= 1;
    test::write_file(path_, all);
  }
};

TEST_F(LedgerFile, AFreshOneBeginsWithItsStart) {
  const auto ledger = open();
  const auto records = records_of(text());
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].event, LedgerEvent::kStarted);
  EXPECT_EQ(records[0].seq, 1U);
  EXPECT_EQ(records[0].start, 1U);
  EXPECT_EQ(records[0].reservation, Slices(kReserved).bytes());
  EXPECT_EQ(records[0].follows, "");
  EXPECT_EQ(records[0].boot + "\n", read("/proc/sys/kernel/random/boot_id"));
  EXPECT_EQ(ledger->records(), 1U);
  EXPECT_EQ(ledger->owed(), 0U);
  EXPECT_EQ(ledger->path(), path_);
  EXPECT_TRUE(ledger->same_boot());
  EXPECT_THAT(ledger->notes(), IsEmpty());
  EXPECT_TRUE(ledger->history().open().empty());
  EXPECT_EQ(audit(), "good");
  EXPECT_THAT(files(), ElementsAre("ledger.jsonl"));
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
}

TEST_F(LedgerFile, IsClosedOnExecAndKeepsOneDescriptor) {
  const int next = test::make_pipe().read_end.get();  // the lowest that is free, now again
  const std::size_t before = test::open_descriptors();
  const auto ledger = open();
  EXPECT_EQ(test::open_descriptors(), before + 1);
  EXPECT_TRUE(test::is_close_on_exec(next));
}

TEST_F(LedgerFile, IsTakenUpAgain) {
  leave_three();
  const std::string before = text();
  const auto ledger = open();
  EXPECT_EQ(text().substr(0, before.size()), before) << "append-only";
  const auto last = records_of(text()).back();
  EXPECT_EQ(last.event, LedgerEvent::kStarted);
  EXPECT_EQ(last.seq, 8U);
  EXPECT_EQ(last.start, 2U);
  EXPECT_EQ(last.lease, 3U);
  EXPECT_EQ(last.connection, 103U);
  EXPECT_TRUE(ledger->same_boot());
  EXPECT_EQ(ledger->records(), 1U);
  expect_pending(*ledger, 1, State::kLent);
  expect_pending(*ledger, 2, State::kGranted);
  expect_pending(*ledger, 3, State::kRequested);
  EXPECT_EQ(audit(), "good");
}

TEST_F(LedgerFile, CountsItsStarts) {
  for (std::uint64_t start = 1; start <= 4; ++start) {
    const auto ledger = open();
    EXPECT_EQ(ledger->history().last().start, start);
  }
  EXPECT_EQ(audit(), "good");
}

TEST_F(LedgerFile, FillsInWhatAllRecordsHave) {
  const auto ledger = open();
  LedgerRecord odd = of(LedgerEvent::kRequested, 1);
  odd.seq = 4711;
  odd.boot = "nonsense";
  odd.start = 4711;
  ASSERT_TRUE(ledger->append(odd));
  ASSERT_TRUE(ledger->append(of(LedgerEvent::kGranted, 1)));
  const auto records = records_of(text());
  EXPECT_EQ(records[1].seq, 2U);
  EXPECT_EQ(records[1].start, 1U);
  EXPECT_EQ(records[1].boot, records[0].boot);
  EXPECT_EQ(records[2].since_unix_us, records[2].unix_us) << "a grant begins now";
  EXPECT_NEAR(static_cast<double>(records[2].unix_us) / 1e6, static_cast<double>(::time(nullptr)),
              60);
}

TEST_F(LedgerFile, CountsLeasesOverStarts) {
  std::uint64_t lease = 99;
  for (std::uint64_t expected = 1; expected <= 3; ++expected) {
    const auto ledger = open();
    ASSERT_TRUE(ledger->request(of(LedgerEvent::kRequested, 77), lease));
    EXPECT_EQ(lease, expected);
  }
  EXPECT_EQ(audit(), "good");
}

TEST_F(LedgerFile, OfAnotherBoot) {
  LedgerRecord started = of(LedgerEvent::kStarted, 0);
  started.seq = 1;
  started.boot = "another boot";
  started.start = 6;
  started.mono_us = ~std::uint64_t{0};  // it was up for long
  started.reservation = Slices(kReserved).bytes();
  LedgerRecord requested = of(LedgerEvent::kRequested, 1);
  requested.seq = 2;
  requested.boot = started.boot;
  requested.start = 6;
  requested.mono_us = started.mono_us;
  test::write_file(path_, encode(started) + encode(requested));
  for (const std::size_t max_file : {Ledger::kMaxFile, text().size()}) {
    test::write_file(path_, encode(started) + encode(requested));
    const auto ledger = open(max_file);
    EXPECT_FALSE(ledger->same_boot());
    EXPECT_EQ(ledger->history().last().start, 7U);
    expect_pending(*ledger, 1, State::kRequested);
    ledger->lose(1, "the machine was restarted");
    EXPECT_EQ(audit(), "good");
  }
  EXPECT_EQ(audit_both(), "good") << "the new file began in the other boot's time";
}

// --- a torn end ---

TEST_F(LedgerFile, ATornEndIsCutOffAndRecorded) {
  leave_three();
  const std::string whole = text();
  const std::string last = whole.substr(whole.rfind('\n', whole.size() - 2) + 1);
  for (const std::size_t length : {std::size_t{1}, last.size() / 2, last.size() - 1}) {
    test::write_file(path_, whole + last.substr(0, length));
    const auto ledger = open();
    EXPECT_EQ(text().substr(0, whole.size()), whole);
    const auto records = records_of(text());
    EXPECT_EQ(records.back().event, LedgerEvent::kRepaired);
    EXPECT_THAT(records.back().reason, HasSubstr(cat("the ", length, " bytes")));
    ASSERT_EQ(ledger->notes().size(), 1U);
    EXPECT_THAT(ledger->notes()[0], HasSubstr("cut short"));
    expect_pending(*ledger, 3, State::kRequested);
    EXPECT_EQ(audit(), "good");
    EXPECT_THAT(files(), ElementsAre("ledger.jsonl"));
  }
}

TEST_F(LedgerFile, AnEmptyOneIsFresh) {
  test::write_file(path_, "");
  const auto ledger = open();
  EXPECT_THAT(ledger->notes(), IsEmpty());
  EXPECT_EQ(audit(), "good");
}

// --- damage ---

TEST_F(LedgerFile, ADamagedOneIsKeptAndGoesOnWithWhatCanBeRead) {
  leave_three();
  const std::string whole = text();
  for (std::size_t line = 1; line <= 7; ++line) {
    test::write_file(path_, whole);
    damage(line);
    const std::string damaged = text();
    const auto ledger = open();
    EXPECT_EQ(read(previous_), damaged);
    EXPECT_EQ(audit(), "good") << "line " << line;
    ASSERT_EQ(ledger->notes().size(), 1U);
    EXPECT_THAT(ledger->notes()[0], HasSubstr(cat("line ", line, " ")));
    EXPECT_THAT(ledger->notes()[0], HasSubstr(previous_));
    const auto records = records_of(text());
    EXPECT_EQ(records.front().follows, "ledger.jsonl.1");
    EXPECT_EQ(records.back().event, LedgerEvent::kRepaired);
    EXPECT_EQ(ledger->history().last().start, 2U);
    EXPECT_THAT(files(), ElementsAre("ledger.jsonl", "ledger.jsonl.1"));
  }
}

TEST_F(LedgerFile, WhatIsLentIsKnownWithoutAnyOneOfItsRecords) {
  leave_three();
  const std::string whole = text();
  for (std::size_t line = 2; line <= 4; ++line) {  // its request, its grant, its answer
    test::write_file(path_, whole);
    damage(line);
    const auto ledger = open();
    expect_pending(*ledger, 1, line == 4 ? State::kGranted : State::kLent);
    const LedgerRecord& known = ledger->history().open().at(1).record;
    EXPECT_EQ(known.size, Slices(2).bytes());
    EXPECT_EQ(known.uid, 1000U);
    EXPECT_NE(known.since_unix_us, 0U);
    ledger->append_owed(of(LedgerEvent::kAdopted, 1, 2));
    EXPECT_EQ(audit(), "good") << "line " << line;
  }
}

TEST_F(LedgerFile, WhatNoLeaseCanHaveBeenLikeIsLeftBehind) {
  leave_three();
  LedgerRecord odd = of(LedgerEvent::kRequested, 4);
  odd.seq = 8;
  odd.start = 1;
  odd.size = Slices(3).bytes();  // for one that was asked for
  test::write_file(path_, text() + encode(odd));
  const auto ledger = open();
  EXPECT_EQ(audit(), "good");
  EXPECT_EQ(ledger->history().open().size(), 3U);
  EXPECT_EQ(ledger->history().last_lease(), 4U);
}

TEST_F(LedgerFile, AnotherKindOfFileIsLeftAlone) {
  for (const std::string other :
       {"this is\nno ledger\n\n{}\nat all", "one line, and not even ended", "secret\n", "\n"}) {
    test::write_file(path_, other);
    const auto opened = Ledger::open(path_, Slices(kReserved).bytes());
    ASSERT_FALSE(opened) << other;
    EXPECT_THAT(opened.error().describe(), HasSubstr("another kind of file"));
    EXPECT_EQ(read(path_), other);
    EXPECT_NE(::access(previous_.c_str(), F_OK), 0);
  }
}

TEST_F(LedgerFile, ADamagedFirstRecordIsStillALedgers) {
  const std::string damaged = "{\"seq\":1,\"boot\":\"...\nand more\nat all";
  test::write_file(path_, damaged);
  const auto ledger = open();
  EXPECT_EQ(read(previous_), damaged);
  EXPECT_EQ(audit(), "good");
  EXPECT_EQ(ledger->history().last().start, 1U);
  EXPECT_TRUE(ledger->history().open().empty());
}

TEST_F(LedgerFile, WhatIsTooLargeForALedgerIsLeftAlone) {
  test::write_file(path_, "a database of somebody's");
  ASSERT_EQ(::truncate(path_.c_str(), (64 << 20) + 1), 0);
  const Error error = refusal();
  EXPECT_EQ(error.code, Code::kInvalid);
  EXPECT_THAT(error.describe(), HasSubstr("too large for a ledger"));
  EXPECT_EQ(std::filesystem::file_size(path_), (64U << 20U) + 1);
}

TEST_F(LedgerFile, OneWhoseNumbersAreUsedUpIsLeftAlone) {
  LedgerRecord started = of(LedgerEvent::kStarted, 0);
  started.boot = "this boot";
  started.follows = "ledger.jsonl.1";
  started.seq = ~std::uint64_t{0};
  test::write_file(path_, encode(started));
  const std::string before = text();
  EXPECT_THAT(refusal().describe(), HasSubstr("numbers are used up"));
  EXPECT_EQ(text(), before);
}

// --- what is no file of ours ---

TEST_F(LedgerFile, AFifoIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const Error error = refusal();
  EXPECT_EQ(error.code, Code::kInvalid);
  EXPECT_THAT(error.describe(), HasSubstr("not a plain file"));
}

TEST_F(LedgerFile, ASymbolicLinkIsNotFollowed) {
  const std::string target = directory_.file("precious", "precious");
  ASSERT_EQ(::symlink(target.c_str(), path_.c_str()), 0);
  EXPECT_EQ(refusal().number, ELOOP);
  EXPECT_EQ(read(target), "precious");
}

TEST_F(LedgerFile, ADirectoryIsRefused) {
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  EXPECT_EQ(refusal().number, EISDIR);
}

TEST_F(LedgerFile, ItsDirectoryMustBeThere) {
  const auto ledger = Ledger::open(directory_.path("no/ledger.jsonl"), mib(2));
  ASSERT_FALSE(ledger);
  EXPECT_EQ(ledger.error().code, Code::kSystem);
  EXPECT_EQ(ledger.error().number, ENOENT);
  EXPECT_THAT(ledger.error().describe(), HasSubstr("no/ledger.jsonl"));
}

TEST_F(LedgerFile, IsOneDaemonsAlone) {
  auto first = open();
  const std::string before = text();
  const Error error = refusal();
  EXPECT_EQ(error.code, Code::kInvalid);
  EXPECT_THAT(error.describe(), HasSubstr("another carveoutd writes it"));
  EXPECT_EQ(text(), before);
  first.reset();
  EXPECT_NE(open(), nullptr);
}

TEST_F(LedgerFile, IsOneDaemonsAloneAfterARotationToo) {
  const auto first = open(2000);
  for (std::uint64_t lease = 1; lease <= 10; ++lease) {
    lend(*first, lease);
    first->end(lease, "");
  }
  ASSERT_THAT(files(), ElementsAre("ledger.jsonl", "ledger.jsonl.1"));
  EXPECT_THAT(refusal().describe(), HasSubstr("another carveoutd writes it"));
}

}  // namespace
}  // namespace carveout::daemon
