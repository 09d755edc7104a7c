// The log on standard error. Each test writes from a child whose standard error is the test's.

#include "journal.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/text.hpp"
#include "unit/helpers.hpp"

namespace carveout::daemon {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::EndsWith;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

// Runs `body` in a child with `error` for its standard error; the child's exit code.
int log_to(int error, const std::function<int(Journal&)>& body) {
  return test::run_in_child([&] {
    ::dup2(error, STDERR_FILENO);
    ::unsetenv("JOURNAL_STREAM");
    std::signal(SIGPIPE, SIG_IGN);  // as main() does
    Journal journal;
    return body(journal);
  });
}

struct Logged {
  int code = -1;
  std::string text;
  [[nodiscard]] std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
      all.push_back(line);
    return all;
  }
};

Logged log_to_pipe(const std::function<int(Journal&)>& body, int capacity = 65536) {
  test::Pipe pipe = test::make_pipe();
  EXPECT_EQ(::fcntl(pipe.write_end.get(), F_SETPIPE_SZ, capacity), capacity);
  Logged logged;
  logged.code = log_to(pipe.write_end.get(), body);
  // What we lent is as it was: others may share it.
  EXPECT_EQ(::fcntl(pipe.write_end.get(), F_GETFL) & O_NONBLOCK, 0);
  pipe.write_end.reset();
  logged.text = test::read_all(pipe.read_end.get());
  return logged;
}

TEST(Journal, WritesPlainLinesWithoutAJournal) {
  const Logged logged = log_to_pipe([](Journal& journal) {
    journal.log(Level::kNotice, Event::kStarted, "first");
    journal.log(Level::kError, Event::kTrouble, "second", {.lease = 1, .uid = 2});
    return static_cast<int>(journal.dropped());
  });
  EXPECT_EQ(logged.text, "carveoutd: first\ncarveoutd: second\n");
  EXPECT_EQ(logged.code, 0);
}

TEST(Journal, KeepsATextOnOneLine) {
  const Logged logged = log_to_pipe([](Journal& journal) {
    journal.log(Level::kInfo, Event::kRefused, "a\nb\r\x1b[31m\xff\xc2\x9b");
    journal.log(Level::kInfo, Event::kRefused, std::string_view("a\0b", 3));
    return 0;
  });
  EXPECT_THAT(logged.lines(),
              ElementsAre("carveoutd: a\\x0ab\\x0d\\x1b[31m\\xff\\xc2\\x9b", "carveoutd: a\\x00b"));
}

TEST(Journal, CutsALongText) {
  const Logged logged = log_to_pipe([](Journal& journal) {
    journal.log(Level::kInfo, Event::kRefused, std::string(100'000, 'x'));
    journal.log(Level::kInfo, Event::kRefused, "next");
    return static_cast<int>(journal.dropped());
  });
  EXPECT_EQ(logged.code, 0);
  ASSERT_THAT(logged.lines(), SizeIs(2));
  EXPECT_LT(logged.lines()[0].size(), 2100U);
  EXPECT_THAT(logged.lines()[0], EndsWith("xxx..."));
  EXPECT_EQ(logged.lines()[1], "carveoutd: next");
}

TEST(Journal, WritesALineWholeHoweverMuchOfItIsEscaped) {
  // A pipe takes up to PIPE_BUF bytes whole or not at all; more of them may be torn.
  const Logged logged = log_to_pipe([](Journal& journal) {
    journal.log(Level::kInfo, Event::kRefused, std::string(3'000, '\x01'));
    return static_cast<int>(journal.dropped());
  });
  EXPECT_LE(logged.text.size(), static_cast<std::size_t>(PIPE_BUF));
  EXPECT_THAT(logged.text, EndsWith("\n"));
}

// 100 lines into what takes fewer: how many were dropped, or 200 if that took long.
int log_a_hundred_lines(Journal& journal) {
  const auto took = test::time_of([&journal] {
    for (int i = 0; i < 100; ++i) {
      journal.log(Level::kInfo, Event::kRefused, cat("line ", i, " ", std::string(100, 'x')));
    }
  });
  return took > std::chrono::seconds(5) ? 200 : static_cast<int>(journal.dropped());
}

TEST(Journal, DropsAndCountsWhatAFullPipeDoesNotTake) {
  const Logged logged = log_to_pipe(log_a_hundred_lines, 4096);
  EXPECT_GT(logged.code, 0);
  EXPECT_LT(logged.code, 100);
  EXPECT_THAT(logged.lines(), SizeIs(100 - logged.code));
  EXPECT_THAT(logged.lines(), Each(StartsWith("carveoutd: line ")));
  EXPECT_THAT(logged.lines(), Each(EndsWith("xxx")));
}

TEST(Journal, WritesAgainWhenThereIsRoom) {
  test::Pipe pipe = test::make_pipe();
  ASSERT_EQ(::fcntl(pipe.write_end.get(), F_SETPIPE_SZ, 4096), 4096);
  const int code = log_to(pipe.write_end.get(), [&pipe](Journal& journal) {
    log_a_hundred_lines(journal);
    const auto dropped = journal.dropped();
    std::array<char, 4096> taken{};
    if (::read(pipe.read_end.get(), taken.data(), taken.size()) <= 0) return 1;
    journal.log(Level::kInfo, Event::kRefused, "the last");
    return journal.dropped() == dropped ? 0 : 2;
  });
  EXPECT_EQ(code, 0);
  pipe.write_end.reset();
  EXPECT_THAT(test::read_all(pipe.read_end.get()), EndsWith("carveoutd: the last\n"));
}

TEST(Journal, DropsAndCountsWhatAFullSocketDoesNotTake) {
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    auto [ours, theirs] = test::socket_pair(type);
    const int small = 4608;
    ASSERT_EQ(::setsockopt(theirs.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    const int dropped = log_to(theirs.get(), log_a_hundred_lines);
    EXPECT_GT(dropped, 0) << type;
    EXPECT_LT(dropped, 100) << type;
    EXPECT_EQ(::fcntl(theirs.get(), F_GETFL) & O_NONBLOCK, 0);
  }
}

TEST(Journal, DoesNotWaitForATerminalThatNobodyReads) {
  const UniqueFd terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!terminal || ::grantpt(terminal.get()) != 0 || ::unlockpt(terminal.get()) != 0) {
    GTEST_SKIP() << "no pseudo-terminals here";
  }
  std::array<char, 64> name{};
  ASSERT_EQ(::ptsname_r(terminal.get(), name.data(), name.size()), 0);
  const UniqueFd screen(::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(screen);
  const int dropped = log_to(screen.get(), [](Journal& journal) {
    log_a_hundred_lines(journal);
    return log_a_hundred_lines(journal) > 0 ? 0 : 1;
  });
  EXPECT_EQ(dropped, 0);
}

TEST(Journal, SurvivesAReaderThatLeft) {
  test::Pipe pipe = test::make_pipe();
  pipe.read_end.reset();
  EXPECT_EQ(log_to(pipe.write_end.get(), log_a_hundred_lines), 100);
  auto [ours, theirs] = test::socket_pair(SOCK_STREAM);
  ours.reset();
  EXPECT_EQ(log_to(theirs.get(), log_a_hundred_lines), 100);
}

TEST(Journal, WritesToAFile) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("log", "before\n");
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC));
  EXPECT_EQ(log_to(file.get(), log_a_hundred_lines), 0);
  ASSERT_EQ(::lseek(file.get(), 0, SEEK_SET), 0);
  const std::string text = test::read_all(file.get());
  EXPECT_THAT(text, StartsWith("before\ncarveoutd: line 0 "));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 101);
}

TEST(Journal, SurvivesStandardErrorBeingClosed) {
  const int code = test::run_in_child([] {
    ::close(STDERR_FILENO);
    Journal journal;
    journal.log(Level::kInfo, Event::kRefused, "nobody reads this");
    return journal.dropped() == 1 ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
}

TEST(Journal, LimitsWhatAPeerCanHaveWritten) {
  const Logged logged = log_to_pipe([](Journal& journal) {
    for (int i = 0; i < 50; ++i) {
      journal.log_of_peer(Level::kInfo, Event::kRefused, cat("of five ", i), {.uid = 5});
    }
    for (int i = 0; i < 3; ++i) {
      journal.log_of_peer(Level::kInfo, Event::kRefused, cat("of six ", i), {.uid = 6});
    }
    journal.log(Level::kNotice, Event::kStopped, "ours");
    const bool counted = journal.left_out() == 50 - Journal::kBurst;
    return counted ? static_cast<int>(journal.dropped()) : 100;
  });
  std::vector<std::string> expected;
  for (unsigned i = 0; i < Journal::kBurst; ++i)
    expected.push_back(cat("carveoutd: of five ", i));
  for (int i = 0; i < 3; ++i)
    expected.push_back(cat("carveoutd: of six ", i));
  expected.emplace_back("carveoutd: ours");
  EXPECT_EQ(logged.lines(), expected);
  EXPECT_EQ(logged.code, 0);  // left out, not dropped
}

TEST(Journal, SaysLaterHowManyLinesOfAPeerItLeftOut) {
  const Logged logged = log_to_pipe([](Journal& journal) {
    const Fields peer{.uid = 5};
    for (unsigned i = 0; i < Journal::kBurst + 7; ++i) {
      journal.log_of_peer(Level::kInfo, Event::kRefused, "early", peer);
    }
    std::this_thread::sleep_for(Journal::kWindow + std::chrono::milliseconds(20));
    for (unsigned i = 0; i < Journal::kBurst + 7; ++i) {
      journal.log_of_peer(Level::kInfo, Event::kRefused, "late", peer);
    }
    return 0;
  });
  const auto lines = logged.lines();
  ASSERT_THAT(lines, SizeIs(2 * Journal::kBurst));
  EXPECT_EQ(lines[Journal::kBurst - 1], "carveoutd: early");
  EXPECT_EQ(lines[Journal::kBurst], "carveoutd: late (7 earlier lines of uid 5 were left out)");
  EXPECT_EQ(lines[Journal::kBurst + 1], "carveoutd: late");
}

}  // namespace
}  // namespace carveout::daemon
