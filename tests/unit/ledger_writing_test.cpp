// What is written to the ledger: the ends of leases, rotation, a file system that is full, threads.

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "unit/ledger_fixture.hpp"

namespace carveout::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using State = LedgerHistory::State;
using Event = LedgerEvent;

class LedgerWriting : public LedgerFileTest {
 protected:
  [[nodiscard]] std::size_t size() const { return std::filesystem::file_size(path_); }
  [[nodiscard]] ino_t inode() const {
    struct stat status {};
    EXPECT_EQ(::stat(path_.c_str(), &status), 0);
    return status.st_ino;
  }
  [[nodiscard]] LedgerRecord last() const { return records_of(text()).back(); }
};

TEST_F(LedgerWriting, EndsARequestAsRefusedAndALeaseAsReleased) {
  const auto ledger = open();
  ASSERT_TRUE(ledger->append(of(Event::kRequested, 1)));
  ledger->end(1, "its peer left");
  EXPECT_EQ(last().event, Event::kRefused);
  EXPECT_EQ(last().reason, "its peer left");
  EXPECT_EQ(last().uid, 1000U);
  ASSERT_TRUE(ledger->append(of(Event::kRequested, 2)));
  ASSERT_TRUE(ledger->append(of(Event::kGranted, 2)));
  ledger->end(2, "");
  EXPECT_EQ(last().event, Event::kReleased);
  lend(*ledger, 3);
  ledger->end(3, "");
  EXPECT_EQ(last().event, Event::kReleased);
  EXPECT_EQ(last().connection, 103U);
  EXPECT_EQ(last().size, Slices(1).bytes());
  EXPECT_TRUE(ledger->history().open().empty());
  EXPECT_EQ(audit(), "good");
}

TEST_F(LedgerWriting, BeginsAnewWhenTheFileIsTakenAway) {
  const auto ledger = open();
  lend(*ledger, 1);
  std::filesystem::remove(path_);
  lend(*ledger, 2);
  EXPECT_EQ(audit(), "good") << "of the new file";
  EXPECT_THAT(text(), HasSubstr("the file had been removed"));
  EXPECT_EQ(ledger->history().open().size(), 2U);
  EXPECT_FALSE(ledger->failing());
}

TEST_F(LedgerWriting, RefusesWhatWasGranted) {
  const auto ledger = open();
  ASSERT_TRUE(ledger->append(of(Event::kRequested, 1)));
  ASSERT_TRUE(ledger->append(of(Event::kGranted, 1)));
  ledger->refuse(1, "it could not be sent");
  EXPECT_EQ(last().event, Event::kRefused);
  EXPECT_EQ(audit(), "good");
}

TEST_F(LedgerWriting, EndsNothingThatIsNotOpen) {
  const auto ledger = open();
  lend(*ledger, 1);
  ledger->end(1, "");
  const std::string before = text();
  for (const auto lease : {0U, 1U, 2U}) {
    ledger->end(lease, "");
    ledger->refuse(lease, "");
    ledger->lose(lease, "");
  }
  ledger->end_all("");
  EXPECT_EQ(text(), before);
}

TEST_F(LedgerWriting, EndsAll) {
  const auto ledger = open();
  lend(*ledger, 1);
  ASSERT_TRUE(ledger->append(of(Event::kRequested, 2)));
  ledger->end_all("the daemon stopped");
  EXPECT_TRUE(ledger->history().open().empty());
  ledger->append_owed(of(Event::kStopped, 0));
  EXPECT_THAT(events(),
              ElementsAre(Event::kStarted, Event::kRequested, Event::kGranted, Event::kAnswered,
                          Event::kRequested, Event::kReleased, Event::kRefused, Event::kStopped));
  EXPECT_EQ(audit(), "good");
}

TEST_F(LedgerWriting, LosesWhatAnEarlierStartLeft) {
  lend(*open(), 1);
  const auto ledger = open();
  ledger->lose(1, "its connection has ended");
  EXPECT_EQ(last().event, Event::kLost);
  EXPECT_EQ(audit(), "good");
}

// --- rotation ---

TEST_F(LedgerWriting, ARotationCarriesEverythingOver) {
  constexpr std::size_t kMaxFile = 8000;
  const auto ledger = open(kMaxFile);
  lend(*ledger, 1, 2);
  ASSERT_TRUE(ledger->append(of(Event::kRequested, 2)));
  ASSERT_TRUE(ledger->append(of(Event::kGranted, 2)));
  ASSERT_TRUE(ledger->append(of(Event::kRequested, 3)));
  const std::uint64_t since = ledger->history().open().at(1).record.since_unix_us;
  int rotations = 0;
  for (std::uint64_t lease = 4; lease < 300; ++lease) {
    const ino_t before = inode();
    std::uint64_t id = 0;
    ASSERT_TRUE(ledger->request(of(Event::kRequested, 0), id));
    ASSERT_EQ(id, lease);
    ASSERT_TRUE(ledger->append([&] {
      LedgerRecord granted = of(Event::kGranted, lease);
      granted.connection = 100;
      return granted;
    }()));
    ledger->end(lease, "");
    ASSERT_LE(size(), kMaxFile);
    if (inode() == before) continue;
    ++rotations;
    ASSERT_THAT(files(), ElementsAre("ledger.jsonl", "ledger.jsonl.1"));
    ASSERT_LE(std::filesystem::file_size(previous_), kMaxFile);
    ASSERT_EQ(audit(), "good");
    if (rotations > 1) {
      // The one before begins in the middle, with what was open then.
      ASSERT_EQ(records_of(read(previous_)).front().follows, "ledger.jsonl.1");
    }
    ASSERT_EQ(audit_both(), "good");
  }
  EXPECT_GT(rotations, 10);
  const auto& all = ledger->history().open();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all.at(1).state, State::kLent);
  EXPECT_EQ(all.at(1).record.since_unix_us, since);
  EXPECT_EQ(all.at(1).record.command, "python3");
  EXPECT_EQ(all.at(2).state, State::kGranted);
  EXPECT_EQ(all.at(3).state, State::kRequested);
  EXPECT_EQ(ledger->records(), ledger->history().last().seq);
}

TEST_F(LedgerWriting, AHalfFullFileIsReplacedAtTheStart) {
  {
    const auto ledger = open();
    lend(*ledger, 1);
    for (std::uint64_t lease = 2; lease <= 5; ++lease) {
      lend(*ledger, lease);
      ledger->end(lease, "");
    }
  }
  const std::string before = text();
  const auto ledger = open(before.size() * 3 / 2);
  EXPECT_EQ(read(previous_), before);
  EXPECT_THAT(events(), ElementsAre(Event::kStarted, Event::kAdopted, Event::kStarted));
  EXPECT_TRUE(ledger->history().open().at(1).pending);
  EXPECT_EQ(audit_both(), "good");
}

// As the start leaves it that died between its new file and its first record.
TEST_F(LedgerWriting, AFileThatIsOnlyAHeadIsGoneOnWith) {
  {
    const auto ledger = open();
    for (std::uint64_t lease = 1; lease <= 5; ++lease)
      lend(*ledger, lease);
  }
  const std::size_t half = size();
  EXPECT_NE(open(half), nullptr);
  std::string head = text();
  head.resize(head.rfind('\n', head.size() - 2) + 1);
  test::write_file(path_, head);
  const ino_t before = inode();
  const auto ledger = open(half);
  EXPECT_EQ(inode(), before);
  EXPECT_EQ(ledger->history().open().size(), 5U);
  EXPECT_EQ(audit_both(), "good");
}

TEST_F(LedgerWriting, NothingIsRotatedBeforeEverythingIsAdopted) {
  {
    const auto ledger = open();
    lend(*ledger, 1);
    lend(*ledger, 2);
  }
  const auto ledger = open(size() * 2 + 300);
  const ino_t before = inode();
  ledger->append_owed(of(Event::kAdopted, 1));
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(ledger->append(of(Event::kRefused, 0)));
  EXPECT_EQ(inode(), before);
  ledger->append_owed(of(Event::kAdopted, 2));
  ASSERT_TRUE(ledger->append(of(Event::kRefused, 0)));
  EXPECT_NE(inode(), before);
  EXPECT_EQ(audit_both(), "good");
}

TEST_F(LedgerWriting, MoreOpenLeasesThanAFileHoldsAreNotRestatedWithEachRecord) {
  constexpr std::size_t kMaxFile = 3000;
  {
    const auto ledger = open(kMaxFile);
    for (std::uint64_t lease = 1; lease <= 40; ++lease) {
      lend(*ledger, lease);
      ASSERT_EQ(audit(), "good");
    }
    int rotations = 0;
    for (int i = 0; i < 200; ++i) {
      const ino_t before = inode();
      ASSERT_TRUE(ledger->append(of(Event::kRefused, 0)));
      rotations += inode() == before ? 0 : 1;
    }
    EXPECT_LT(rotations, 10);
    EXPECT_EQ(audit_both(), "good");
  }
  const auto ledger = open(kMaxFile);
  EXPECT_EQ(ledger->history().open().size(), 40U);
  EXPECT_EQ(audit_both(), "good");
}

TEST_F(LedgerWriting, WhatAnInterruptedRotationLeftIsReplaced) {
  const std::string next = directory_.file("ledger.jsonl.next", "half of a");
  const auto ledger = open(2000);
  for (std::uint64_t lease = 1; lease <= 5; ++lease) {
    lend(*ledger, lease);
    ledger->end(lease, "");
  }
  EXPECT_THAT(files(), ElementsAre("ledger.jsonl", "ledger.jsonl.1"));
  EXPECT_EQ(audit_both(), "good");
}

// --- a full file system ---

TEST_F(LedgerWriting, WhatCannotBeRecordedIsRefused) {
  const auto ledger = open();
  lend(*ledger, 1);
  const std::string before = text();
  for (const auto room : {0U, 1U, 100U}) {
    const FileLimit full(size() + room);
    const auto refused = ledger->append(of(Event::kRequested, 2));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kSystem);
    EXPECT_THAT(refused.error().describe(), HasSubstr("cannot be written"));
    EXPECT_THAT(refused.error().describe(), HasSubstr(path_));
    std::uint64_t lease = 7;
    EXPECT_FALSE(ledger->request(of(Event::kRequested, 0), lease));
    EXPECT_EQ(lease, 0U);
    EXPECT_EQ(text(), before) << "nor a part of it";
    EXPECT_EQ(ledger->owed(), 0U);
    EXPECT_EQ(ledger->records(), 4U);
    EXPECT_FALSE(ledger->history().open().contains(2));
  }
  ASSERT_TRUE(ledger->append(of(Event::kRequested, 2)));
  EXPECT_EQ(audit(), "good");
}

TEST_F(LedgerWriting, WhatHasHappenedIsRecordedLaterAndFirst) {
  const auto ledger = open();
  ASSERT_TRUE(ledger->append(of(Event::kRequested, 1)));
  ASSERT_TRUE(ledger->append(of(Event::kGranted, 1)));
  lend(*ledger, 2);
  {
    const FileLimit full(size() + 10);
    ledger->append_owed(of(Event::kAnswered, 1));
    ledger->end(2, "");
    ledger->end(1, "");
    EXPECT_EQ(ledger->owed(), 3U);
    EXPECT_FALSE(ledger->append(of(Event::kRequested, 3)));
    EXPECT_EQ(ledger->owed(), 3U);
    EXPECT_EQ(audit(), "good");
  }
  ASSERT_TRUE(ledger->append(of(Event::kRequested, 3)));
  EXPECT_EQ(ledger->owed(), 0U);
  const auto all = records_of(text());
  ASSERT_EQ(all.size(), 10U);
  EXPECT_EQ(all[6].event, Event::kAnswered);
  EXPECT_EQ(all[7].event, Event::kReleased);
  EXPECT_EQ(all[7].lease, 2U);
  EXPECT_EQ(all[8].event, Event::kReleased);
  EXPECT_EQ(all[8].lease, 1U);
  EXPECT_EQ(all[9].event, Event::kRequested);
  EXPECT_EQ(audit(), "good");
}

TEST_F(LedgerWriting, WhatIsOwedTellsHowALeaseStands) {
  const auto ledger = open();
  for (std::uint64_t lease = 1; lease <= 3; ++lease) {
    ASSERT_TRUE(ledger->append(of(Event::kRequested, lease)));
    ASSERT_TRUE(ledger->append(of(Event::kGranted, lease)));
  }
  {
    const FileLimit full(size());
    ledger->append_owed(of(Event::kRequested, 1));  // held up: a request again, not a lease
    ledger->end(1, "its peer left");
    ledger->end(2, "");
    ledger->end(2, "");
    ledger->refuse(2, "");
    EXPECT_EQ(ledger->owed(), 3U);
    ledger->end_all("the daemon stopped");
    EXPECT_EQ(ledger->owed(), 4U);
  }
  ledger->append_owed(of(Event::kStopped, 0));
  EXPECT_EQ(ledger->owed(), 0U);
  const auto all = records_of(text());
  EXPECT_EQ(all.at(8).event, Event::kRefused);
  EXPECT_EQ(audit(), "good");
}

TEST_F(LedgerWriting, ARotationWithoutRoomLeavesTheLedgerAsItIs) {
  const auto ledger = open(4000);
  for (std::uint64_t lease = 1; lease <= 4; ++lease)
    lend(*ledger, lease);
  while (size() < 3800)
    ASSERT_TRUE(ledger->append(of(Event::kRefused, 0)));
  const std::string before = text();
  {
    const FileLimit full(500);  // not even the head
    EXPECT_FALSE(ledger->append(of(Event::kRequested, 5)));
    ledger->end(1, "");
    EXPECT_EQ(ledger->owed(), 1U);
    EXPECT_EQ(text(), before);
    EXPECT_THAT(files(), ElementsAre("ledger.jsonl"));
  }
  ASSERT_TRUE(ledger->append(of(Event::kRequested, 5)));
  EXPECT_THAT(files(), ElementsAre("ledger.jsonl", "ledger.jsonl.1"));
  EXPECT_EQ(ledger->history().open().size(), 4U);
  EXPECT_EQ(audit_both(), "good");
}

TEST_F(LedgerWriting, AStartThatCannotBeRecordedIsOwed) {
  lend(*open(), 1);
  const std::string before = text();
  std::unique_ptr<Ledger> ledger;
  {
    const FileLimit full(size() + 20);
    ledger = open();
    EXPECT_EQ(text(), before);
    EXPECT_TRUE(ledger->failing());
    EXPECT_THAT(ledger->notes(), testing::Contains(HasSubstr("cannot be written")));
    EXPECT_EQ(ledger->history().open().size(), 1U) << "what is lent goes on";
    EXPECT_FALSE(ledger->append(of(Event::kRequested, 2)));
    ledger->append_owed(of(Event::kAdopted, 1));
    EXPECT_FALSE(ledger->retry());
  }
  EXPECT_TRUE(ledger->retry());
  EXPECT_FALSE(ledger->failing());
  EXPECT_EQ(ledger->owed(), 0U);
  EXPECT_EQ(audit(), "good");
  EXPECT_EQ(ledger->history().open().size(), 1U);
  EXPECT_FALSE(ledger->history().any_pending());
  ASSERT_TRUE(ledger->append(of(Event::kRequested, 2)));
  EXPECT_EQ(audit(), "good");
}

TEST_F(LedgerWriting, SaysWhenItCanBeWrittenAgain) {
  const auto ledger = open();
  {
    const FileLimit full(size() + 20);
    EXPECT_FALSE(ledger->append(of(Event::kRequested, 1)));
    EXPECT_TRUE(ledger->failing());
  }
  EXPECT_TRUE(ledger->retry());
  EXPECT_FALSE(ledger->failing());
  EXPECT_EQ(last().event, Event::kRepaired);
  EXPECT_EQ(audit(), "good");
}

// --- threads ---

TEST_F(LedgerWriting, ThreadsAppendAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kEach = 100;
  const auto ledger = open(64'000);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&ledger] {
      for (int n = 0; n < kEach; ++n) {
        std::uint64_t lease = 0;
        LedgerRecord record = of(Event::kRequested, 0);
        EXPECT_TRUE(ledger->request(record, lease));
        record.event = Event::kGranted;
        record.lease = lease;
        EXPECT_TRUE(ledger->append(record));
        record.event = Event::kAnswered;
        ledger->append_owed(record);
        ledger->end(lease, "");
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_TRUE(ledger->history().open().empty());
  EXPECT_EQ(ledger->history().last_lease(), static_cast<std::uint64_t>(kThreads * kEach));
  EXPECT_EQ(audit_both(), "good");
}

}  // namespace
}  // namespace carveout::daemon
