#include "holders.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "base/text.hpp"
#include "ledger_record.hpp"
#include "tables.hpp"
#include "unit/helpers.hpp"

namespace carveout::ctl {
namespace {

using daemon::LedgerEvent;
using daemon::LedgerRecord;
using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// --- the joining ---

Holding holding(BufferKind kind, std::uint64_t inode, pid_t pid, Bytes size = mib(2)) {
  Holding made;
  made.kind = kind;
  made.named = true;
  made.inode = inode;
  made.size = size;
  made.pid = pid;
  made.descriptors = 1;
  return made;
}
Holding renamed(Holding made) {
  made.named = false;
  return made;
}

constexpr auto kMemfd = BufferKind::kMemfd;
constexpr auto kDmaBuf = BufferKind::kDmaBuf;

RecordedLease lease(std::uint64_t inode, bool ended = false, Bytes size = mib(2)) {
  return {.size = size, .inode = inode, .ended = ended};
}

// "LEASE STATE PID" of each row.
std::vector<std::string> rows(const std::map<std::uint64_t, RecordedLease>& leases,
                              const std::vector<Holding>& holdings, bool lends_dma_bufs) {
  std::vector<std::string> all;
  for (const Holder& row : join(leases, holdings, lends_dma_bufs)) {
    all.push_back(cat(row.lease ? cat(*row.lease) : "-", " ", row.state, " ", row.holding.pid));
  }
  return all;
}

TEST(Join, ByInodeInTheOrderOfLeaseAndProcess) {
  EXPECT_THAT(rows({{1, lease(10)}, {2, lease(20, true)}, {3, lease(30)}},
                   {holding(kMemfd, 20, 7), holding(kMemfd, 10, 9), holding(kMemfd, 20, 5),
                    holding(kMemfd, 99, 5), holding(kMemfd, 10, 8)},
                   false),
              ElementsAre("1 lent 8", "1 lent 9", "2 ended 5", "2 ended 7"));
}

TEST(Join, OfADmaBufWhateverItIsCalled) {
  EXPECT_THAT(rows({{1, lease(10)}}, {renamed(holding(kDmaBuf, 10, 5))}, true),
              ElementsAre("1 lent 5"));
  EXPECT_THAT(rows({{1, lease(10)}}, {renamed(holding(kDmaBuf, 10, 5))}, false), IsEmpty())
      << "another's, with the inode of a memory file";
}

TEST(Join, ShowsDmaBufsOfOursThatNoRecordKnows) {
  Holding mapped = holding(kDmaBuf, 8, 3, Bytes(0));
  mapped.mapped = mib(6);
  const std::vector<Holding> holdings{holding(kDmaBuf, 9, 4), mapped, holding(kDmaBuf, 10, 5),
                                      renamed(holding(kDmaBuf, 11, 6)), holding(kMemfd, 12, 7)};
  EXPECT_THAT(rows({{1, lease(10)}}, holdings, true),
              ElementsAre("1 lent 5", "- unknown 3", "- unknown 4"));
  EXPECT_EQ(join({}, {mapped}, true).at(0).size, mib(6));
  EXPECT_EQ(join({}, {holding(kDmaBuf, 9, 4)}, true).at(0).size, mib(2));
}

TEST(Join, TakesNothingOfAnotherSize) {
  EXPECT_THAT(rows({{1, lease(10)}}, {holding(kMemfd, 10, 5, mib(4))}, false), IsEmpty());
  EXPECT_THAT(rows({{1, lease(10)}}, {holding(kMemfd, 10, 5, Bytes(0))}, false),
              ElementsAre("1 lent 5"))
      << "of a mapping the size is not known";
}

TEST(Join, OfSeveralWithOneInodeTakesTheLatestThatFits) {
  const std::map<std::uint64_t, RecordedLease> leases{
      {3, lease(10, true)}, {4, lease(10)}, {5, lease(10, false, mib(4))}};
  EXPECT_THAT(rows(leases, {holding(kMemfd, 10, 7)}, false), ElementsAre("4 lent 7"));
  EXPECT_THAT(rows(leases, {holding(kMemfd, 10, 7, mib(4))}, false), ElementsAre("5 lent 7"));
}

TEST(Join, LeavesLeasesWithoutAnInode) {
  EXPECT_THAT(rows({{1, lease(0)}}, {holding(kMemfd, 0, 5)}, false), IsEmpty());
}

// --- what is on record ---

LedgerRecord record(std::uint64_t seq, LedgerEvent event, std::uint64_t lease_id,
                    const std::string& boot = "this") {
  LedgerRecord made;
  made.seq = seq;
  made.boot = boot;
  made.start = 1;
  made.event = event;
  made.lease = lease_id;
  made.connection = 1;
  made.asked = made.size = mib(2 * lease_id);
  made.inode = 100 + lease_id;
  made.reservation = mib(64);
  return made;
}

LedgerRecord follows(std::uint64_t seq) {
  LedgerRecord made = record(seq, LedgerEvent::kStarted, 9);
  made.follows = "ledger.1";
  return made;
}

class Recorded : public testing::Test {
 protected:
  void put(const char* name, const std::vector<LedgerRecord>& records, const char* end = "") const {
    std::string text;
    for (const LedgerRecord& each : records)
      text += encode(each);
    (void)directory_.file(name, text + end);
  }
  [[nodiscard]] Result<RecordedLeases> read() const {
    return recorded_leases(directory_.path("ledger"), "this");
  }
  // "LEASE INODE" with "ended" behind it.
  [[nodiscard]] std::vector<std::string> leases() const {
    std::vector<std::string> all;
    const auto recorded = read();
    if (!recorded) return {recorded.error().describe()};
    for (const auto& [id, known] : recorded->leases)
      all.push_back(cat(id, " ", known.inode, known.ended ? " ended" : ""));
    return all;
  }

  const TemporaryDirectory directory_;
};

const std::vector<LedgerRecord> kStory{
    record(1, LedgerEvent::kStarted, 0),   record(2, LedgerEvent::kRequested, 1),
    record(3, LedgerEvent::kGranted, 1),   record(4, LedgerEvent::kAnswered, 1),
    record(5, LedgerEvent::kRequested, 2), record(6, LedgerEvent::kGranted, 2),
    record(7, LedgerEvent::kAnswered, 2),  record(8, LedgerEvent::kRequested, 3),
    record(9, LedgerEvent::kRefused, 3),   record(10, LedgerEvent::kReleased, 1)};

TEST_F(Recorded, LeasesAreThoseThatWereGranted) {
  put("ledger", kStory);
  EXPECT_THAT(leases(), ElementsAre("1 101 ended", "2 102"));
  EXPECT_EQ(read()->leases.at(2).size, mib(4));
  EXPECT_EQ(read()->records, 10U);
}

TEST_F(Recorded, LeasesWithATornEnd) {
  put("ledger", kStory, "{\"seq\":11,\"boot");
  EXPECT_THAT(leases(), ElementsAre("1 101 ended", "2 102"));
  EXPECT_EQ(read()->unreadable, 0U);
}

TEST_F(Recorded, LeasesOfADamagedLedger) {
  put("ledger", kStory, "{\"seq\":11,\"boot\n\n");
  EXPECT_THAT(leases(), ElementsAre("1 101 ended", "2 102"));
  EXPECT_EQ(read()->unreadable, 2U);
}

TEST_F(Recorded, LeasesOfOtherBootsHaveNoInodes) {
  put("ledger",
      {record(1, LedgerEvent::kGranted, 1, "before"), record(2, LedgerEvent::kGranted, 2, "before"),
       record(3, LedgerEvent::kStarted, 0), record(4, LedgerEvent::kLost, 1),
       record(5, LedgerEvent::kLost, 2), record(6, LedgerEvent::kGranted, 3)});
  EXPECT_THAT(leases(), ElementsAre("3 103"));
  EXPECT_THAT(read()->earlier, ElementsAre(1U, 2U));
}

TEST_F(Recorded, LeasesOfTheFileBefore) {
  LedgerRecord carried = record(12, LedgerEvent::kAdopted, 2);
  carried.carried = true;
  put("ledger.1", kStory);
  put("ledger", {follows(11), carried, record(13, LedgerEvent::kReleased, 2)});
  EXPECT_THAT(leases(), ElementsAre("1 101 ended", "2 102 ended"));
  std::filesystem::remove(directory_.path("ledger.1"));
  EXPECT_THAT(leases(), ElementsAre("2 102 ended"));
}

TEST_F(Recorded, LeasesOfAFileBeforeThatItDoesNotGoOnFrom) {
  put("ledger.1", kStory);
  put("ledger", {record(1, LedgerEvent::kStarted, 0), record(2, LedgerEvent::kGranted, 1)});
  EXPECT_THAT(leases(), ElementsAre("1 101")) << "their numbers began anew";
}

TEST_F(Recorded, LeasesOfAFileThatIsJustBeingReplaced) {
  put("ledger",
      {follows(11), record(12, LedgerEvent::kGranted, 1), record(13, LedgerEvent::kReleased, 1)});
  std::filesystem::create_hard_link(directory_.path("ledger"), directory_.path("ledger.1"));
  EXPECT_THAT(leases(), ElementsAre("1 101 ended"));
  EXPECT_EQ(read()->records, 3U);
}

TEST_F(Recorded, LeasesOfWhatIsNoLedger) {
  EXPECT_EQ(read().error().number, ENOENT);
  (void)directory_.file("ledger", "");
  EXPECT_EQ(read().error().code, Code::kInvalid);
  (void)directory_.file("ledger", "root:x:0:0:root:/root:/bin/sh\n");
  EXPECT_EQ(read().error().code, Code::kInvalid);
}

// --- what people read ---

TEST(HoldersTable, CountsInWords) {
  rapidjson::Document reply;
  reply.Parse(R"({"ok": true, "holders": [
    {"lease": 7, "state": "ended", "bytes": 2097152, "inode": 5, "pid": 40, "uid": 4294967295,
     "command": "a\nb", "descriptors": 2, "mappings": 1},
    {"lease": null, "state": "unknown", "bytes": 4194304, "inode": 6, "pid": 4, "uid": 4294967295,
     "command": "c", "descriptors": 0, "mappings": 3}], "unexamined": 0, "notes": ["mind\n this"]})");
  EXPECT_EQ(holders_table(reply, "nobody"),
            "LEASE    STATE   SIZE  PID  USER        COMMAND  HOLDS\n"
            "    7    ended  2 MiB   40  4294967295  a\\x0ab   2 descriptors, 1 mapping\n"
            "    -  unknown  4 MiB    4  4294967295  c        3 mappings\n"
            "note: mind\\x0a this\n");
}

TEST(HoldersTable, SaysThatThereAreNone) {
  rapidjson::Document reply;
  reply.Parse(R"({"ok": true, "holders": [], "unexamined": 0, "notes": []})");
  EXPECT_EQ(holders_table(reply, "nobody holds lease 7"), "nobody holds lease 7\n");
}

}  // namespace
}  // namespace carveout::ctl
