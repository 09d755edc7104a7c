// Ledgers line by line: what is good passes, and no damage does.

#include "ledger_scan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "unit/ledger_story.hpp"

namespace carveout::daemon {
namespace {

using testing::HasSubstr;

LedgerScan strict(std::string_view text, LedgerHistory& history) {
  return scan_ledger(text, history, OnProblem::kStop);
}

std::string problem_of(const LedgerScan& scan) {
  return scan.problem ? cat("line ", scan.problem->line, ": ", scan.problem->what) : "none";
}

TEST(LedgerScan, OfNothing) {
  LedgerHistory history;
  const LedgerScan scan = strict("", history);
  EXPECT_EQ(scan.records, 0U);
  EXPECT_FALSE(scan.problem);
  EXPECT_EQ(scan.torn, 0U);
  EXPECT_TRUE(history.empty());
}

TEST(LedgerScan, LegalStoriesPass) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    LedgerStory story(seed);
    story.tell(300);
    LedgerHistory history;
    std::size_t records = 0;
    for (const auto& lines : story.files()) {
      const LedgerScan scan = strict(LedgerStory::text_of(lines), history);
      ASSERT_EQ(problem_of(scan), "none") << "seed " << seed;
      EXPECT_EQ(scan.records, lines.size());
      EXPECT_EQ(scan.torn, 0U);
      records += scan.records;
    }
    EXPECT_EQ(records, story.records());
    EXPECT_EQ(history.last().start, story.starts());
    std::map<std::uint64_t, LedgerStory::State> open;
    for (const auto& [lease, its] : history.open())
      open[lease] = its.state;
    EXPECT_EQ(open, story.open()) << "seed " << seed;
  }
}

TEST(LedgerScan, AFilePassesWithoutThoseBefore) {
  LedgerStory story(4711);
  story.tell(2000);
  ASSERT_GT(story.files().size(), 5U);
  for (const auto& lines : story.files()) {
    LedgerHistory history;
    EXPECT_EQ(problem_of(strict(LedgerStory::text_of(lines), history)), "none");
  }
}

TEST(LedgerScan, AFileThatIsMissingOrOutOfOrderIsNoticed) {
  LedgerStory story(3);
  story.tell(1000);
  ASSERT_GT(story.files().size(), 3U);
  const auto& files = story.files();
  LedgerHistory history;
  ASSERT_FALSE(strict(LedgerStory::text_of(files[0]), history).problem);
  LedgerHistory skipped = history;
  EXPECT_THAT(problem_of(strict(LedgerStory::text_of(files[2]), skipped)), HasSubstr("line 1: "));
  EXPECT_THAT(problem_of(strict(LedgerStory::text_of(files[0]), history)), HasSubstr("line 1: "));
}

TEST(LedgerScan, AFileDoesNotBeginWithinAnother) {
  LedgerStory story(1);
  story.request();
  story.grant();
  const std::string first = LedgerStory::text_of(story.files().back());
  story.next_file();
  ASSERT_EQ(story.files().size(), 2U);
  const std::string second = LedgerStory::text_of(story.files().back());
  LedgerHistory history;
  EXPECT_EQ(problem_of(strict(first, history)), "none");
  EXPECT_EQ(problem_of(strict(second, history)), "none");
  history = {};
  const LedgerScan scan = strict(first + second, history);
  ASSERT_TRUE(scan.problem);
  EXPECT_EQ(scan.problem->line, story.files().front().size() + 1);
  EXPECT_THAT(scan.problem->what, HasSubstr("does not begin within another"));
}

// One story of thousands of records over several starts and files, and how things stood before each
// of its lines: what is damaged from a line on need not be read from the beginning.
class DamagedLedger : public testing::Test {
 protected:
  struct Place {
    std::size_t file;
    std::size_t line;
  };
  static void SetUpTestSuite() {
    told_ = new Told;
    told_->story.tell(4000);
    LedgerHistory history;
    for (const auto& lines : told_->story.files()) {
      told_->before.emplace_back();
      for (const std::string& line : lines) {
        told_->before.back().push_back(history);
        ASSERT_FALSE(strict(line, history).problem);
      }
    }
  }
  static void TearDownTestSuite() { delete std::exchange(told_, nullptr); }

  [[nodiscard]] static const std::vector<LedgerStory::Lines>& files() {
    return told_->story.files();
  }
  [[nodiscard]] static std::vector<Place> places() {
    std::vector<Place> all;
    for (std::size_t file = 0; file < files().size(); ++file) {
      for (std::size_t line = 0; line < files()[file].size(); ++line)
        all.push_back({file, line});
    }
    return all;
  }
  // The scan of `text` as it stands from `place` on, and of the files behind it.
  [[nodiscard]] static LedgerScan scan_from(const Place& place, std::string_view text) {
    LedgerHistory history = told_->before[place.file][place.line];
    LedgerScan scan = strict(text, history);
    for (std::size_t file = place.file + 1; !scan.problem && file < files().size(); ++file)
      scan = strict(LedgerStory::text_of(files()[file]), history);
    return scan;
  }
  // Some lines from `first` on.
  [[nodiscard]] static std::string lines(const Place& first, std::size_t count) {
    std::string text;
    const auto& all = files()[first.file];
    for (std::size_t i = first.line; i < all.size() && i < first.line + count; ++i)
      text += all[i];
    return text;
  }

 private:
  struct Told {
    LedgerStory story{20'220'224};
    std::vector<std::vector<LedgerHistory>> before;
  };
  inline static Told* told_ = nullptr;
};

TEST_F(DamagedLedger, IsALongStory) {
  EXPECT_GE(places().size(), 4000U);
  EXPECT_GE(files().size(), 10U);
}

TEST_F(DamagedLedger, AThousandOfAThousandFlippedBitsAreCaught) {
  std::mt19937_64 random(1);
  std::vector<std::string> texts;
  std::size_t bytes = 0;
  for (const auto& file : files()) {
    texts.push_back(LedgerStory::text_of(file));
    bytes += texts.back().size();
  }
  int caught = 0;
  for (int i = 0; i < 1000; ++i) {
    std::size_t at = random() % bytes;
    std::size_t file = 0;
    while (at >= texts[file].size())
      at -= texts[file++].size();
    Place place{file, 0};
    for (std::size_t begin = 0; at >= begin + files()[file][place.line].size(); ++place.line)
      begin += files()[file][place.line].size();
    std::string text = lines(place, 3);  // the damaged one, and two behind it
    std::size_t begin = 0;
    for (std::size_t line = 0; line < place.line; ++line)
      begin += files()[file][line].size();
    char& byte = text[at - begin];
    byte = static_cast<char>(byte ^ static_cast<char>(1U << (random() % 8)));
    const LedgerScan scan = scan_from(place, text);
    ASSERT_TRUE(scan.problem) << "byte " << at << " of file " << file;
    EXPECT_EQ(scan.problem->line, 1U) << "it is the damaged line that is named";
    EXPECT_EQ(scan.records, 0U);
    ++caught;
  }
  EXPECT_EQ(caught, 1000);
}

TEST_F(DamagedLedger, TheProblemsLineIsCountedFromTheBeginningOfItsFile) {
  for (const std::size_t line : {std::size_t{0}, std::size_t{1}, files()[0].size() - 1}) {
    LedgerStory::Lines damaged = files()[0];
    damaged[line][10] ^= 1;
    LedgerHistory history;
    const LedgerScan scan = strict(LedgerStory::text_of(damaged), history);
    ASSERT_TRUE(scan.problem);
    EXPECT_EQ(scan.problem->line, line + 1);
    EXPECT_EQ(scan.records, line);
  }
}

TEST_F(DamagedLedger, ADroppedLineIsCaughtUnlessItIsTheLast) {
  for (const Place& place : places()) {
    const std::string rest = lines({place.file, place.line + 1}, 2);
    const bool is_last = place.file + 1 == files().size() && rest.empty();
    EXPECT_EQ(scan_from(place, rest).problem.has_value(), !is_last)
        << "line " << place.line << " of file " << place.file;
  }
}

TEST_F(DamagedLedger, ADoubledLineIsCaught) {
  for (const Place& place : places()) {
    const LedgerScan scan = scan_from(place, lines(place, 1) + lines(place, 2));
    ASSERT_TRUE(scan.problem) << "line " << place.line << " of file " << place.file;
    EXPECT_EQ(scan.problem->line, 2U);
  }
}

TEST_F(DamagedLedger, SwappedLinesAreCaught) {
  for (const Place& place : places()) {
    const std::string second = lines({place.file, place.line + 1}, 1);
    if (second.empty()) continue;
    const LedgerScan scan = scan_from(place, second + lines(place, 1));
    ASSERT_TRUE(scan.problem) << "line " << place.line << " of file " << place.file;
    EXPECT_EQ(scan.problem->line, 1U);
  }
}

TEST_F(DamagedLedger, AnInsertedLineIsCaught) {
  const Place place{1, 5};
  for (const char* line : {"\n", "{}\n", "hello\n", "{\"seq\":1}\n"}) {
    const LedgerScan scan = scan_from(place, line + lines(place, 2));
    ASSERT_TRUE(scan.problem) << line;
    EXPECT_EQ(scan.problem->line, 1U);
  }
}

TEST_F(DamagedLedger, ATornEndIsFoundAtEveryLength) {
  const Place last{files().size() - 1, files().back().size() - 1};
  const std::string line = lines(last, 1);
  for (std::size_t length = 1; length < line.size(); ++length) {
    const LedgerScan scan = scan_from(last, line.substr(0, length));
    EXPECT_EQ(scan.torn, length);
    EXPECT_EQ(problem_of(scan),
              cat("line 1: the last line is cut short (", length, " bytes of it)"));
    EXPECT_EQ(scan.records, 0U);
  }
  EXPECT_FALSE(scan_from(last, line).problem);
}

// --- the daemon's way ---

class LedgerGoesOn : public testing::Test {
 protected:
  LedgerGoesOn() {
    for (int i = 0; i < 3; ++i) {
      story_.request();
      story_.grant();
      story_.answer();
    }
    story_.release();
    lines_ = story_.files().front();
  }
  LedgerScan scan(std::string_view more = {}) {
    return scan_ledger(LedgerStory::text_of(lines_) + std::string(more), history_,
                       OnProblem::kGoOn);
  }
  // As the undamaged ledger has it.
  void expect_all() const {
    EXPECT_EQ(history_.last().seq, lines_.size());
    EXPECT_EQ(history_.open().size(), story_.open().size());
  }

  LedgerStory story_{1};
  LedgerStory::Lines lines_;
  LedgerHistory history_;
};

TEST_F(LedgerGoesOn, ATornEndIsNoProblem) {
  const LedgerScan found = scan("{\"seq\":12");
  EXPECT_FALSE(found.problem);
  EXPECT_EQ(found.torn, 9U);
  EXPECT_EQ(found.records, lines_.size());
  expect_all();
}

TEST_F(LedgerGoesOn, WhatIsNoRecordIsLeftOut) {
  const LedgerStory::Lines whole = lines_;
  for (std::size_t at = 0; at <= whole.size(); ++at) {
    LedgerStory::Lines damaged = whole;
    damaged.insert(damaged.begin() + static_cast<std::ptrdiff_t>(at), "garbage\n");
    history_ = {};
    const LedgerScan found = scan_ledger(LedgerStory::text_of(damaged), history_, OnProblem::kGoOn);
    ASSERT_TRUE(found.problem);
    EXPECT_EQ(found.problem->line, at + 1);
    EXPECT_EQ(found.records, whole.size());
    expect_all();
  }
}

TEST_F(LedgerGoesOn, TheFirstProblemIsTheOneThatIsTold) {
  lines_[4][20] ^= 1;
  lines_[2][20] ^= 1;
  const LedgerScan found = scan();
  ASSERT_TRUE(found.problem);
  EXPECT_EQ(found.problem->line, 3U);
  EXPECT_THAT(found.problem->what, HasSubstr("has been changed"));
  EXPECT_EQ(history_.last().seq, lines_.size());
}

TEST_F(LedgerGoesOn, ADamagedReleaseLeavesItsLeaseOpen) {
  lines_.back()[20] ^= 1;
  EXPECT_EQ(problem_of(scan()).substr(0, 8), cat("line ", lines_.size(), ":").substr(0, 8));
  EXPECT_EQ(history_.open().size(), story_.open().size() + 1);
}

TEST_F(LedgerGoesOn, ADamagedRequestLosesNothing) {
  lines_[1][20] ^= 1;
  EXPECT_TRUE(scan().problem);
  expect_all();
}

TEST_F(LedgerGoesOn, GarbageHasNoRecords) {
  const LedgerScan found = scan_ledger(std::string(1000, '\n') + "x", history_, OnProblem::kGoOn);
  EXPECT_EQ(found.records, 0U);
  EXPECT_EQ(found.torn, 1U);
  EXPECT_EQ(found.problem->line, 1U);
  EXPECT_TRUE(history_.empty());
}

}  // namespace
}  // namespace carveout::daemon
