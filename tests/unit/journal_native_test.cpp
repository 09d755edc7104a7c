// The journal's native protocol, spoken to a journal of the test's own in a mount namespace.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "journal.hpp"
#include "unit/helpers.hpp"

namespace carveout::daemon {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;
using testing::StartsWith;

constexpr int kWaived = 77;
constexpr const char* kSocket = "/run/systemd/journal/socket";

// An empty /run that only this process sees.
bool hide_run() {
  if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", "/run", "tmpfs", 0, nullptr) == 0 &&
         std::filesystem::create_directories("/run/systemd/journal");
}

// A socket where the journal has its own.
UniqueFd listen_as_journal() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un address{AF_UNIX, "/run/systemd/journal/socket"};
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return {};
  }
  return socket;
}

std::string next_entry(const UniqueFd& journal) {
  std::array<char, 65536> entry{};
  const ssize_t got = ::recv(journal.get(), entry.data(), entry.size(), 0);
  return got < 0 ? std::string() : std::string(entry.data(), static_cast<std::size_t>(got));
}

// Says to the process that its standard error is the journal, as a service manager does.
void announce(ino_t wrong_by) {
  struct stat status {};
  ::fstat(STDERR_FILENO, &status);
  ::setenv("JOURNAL_STREAM", cat(status.st_dev, ":", status.st_ino + wrong_by).c_str(), 1);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    all.push_back(line);
  return all;
}

class NativeJournal : public testing::Test {
 protected:
  // Runs `body` in a child with an empty /run; what it wrote to standard error and to `out`.
  void run(const std::function<int(int out)>& body) {
    test::Pipe error = test::make_pipe();
    test::Pipe out = test::make_pipe();
    code_ = test::run_in_child([&] {
      ::dup2(error.write_end.get(), STDERR_FILENO);
      return hide_run() ? body(out.write_end.get()) : kWaived;
    });
    error.write_end.reset();
    out.write_end.reset();
    error_ = test::read_all(error.read_end.get());
    out_ = test::read_all(out.read_end.get());
  }
  [[nodiscard]] bool waived() const { return code_ == kWaived; }

  int code_ = -1;
  std::string error_, out_;
};

#define RUN_OR_SKIP(...) \
  run(__VA_ARGS__);      \
  if (waived()) GTEST_SKIP() << "needs a mount namespace, which this user cannot have"

bool put(int out, std::string_view text) {
  return ::write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

TEST_F(NativeJournal, GetsAllFields) {
  RUN_OR_SKIP([](int out) {
    const UniqueFd socket = listen_as_journal();
    announce(0);
    Journal journal;
    journal.log(Level::kWarning, Event::kGranted, "granted it",
                {.lease = 12, .uid = 1000, .pid = 4321, .bytes = mib(2)});
    return put(out, next_entry(socket)) ? static_cast<int>(journal.dropped()) : 1;
  });
  EXPECT_EQ(code_, 0);
  EXPECT_EQ(error_, "");
  EXPECT_THAT(lines_of(out_),
              ElementsAre("MESSAGE=granted it", "PRIORITY=4", "SYSLOG_IDENTIFIER=carveoutd",
                          StartsWith("MESSAGE_ID="), "CARVEOUT_LEASE=12", "CARVEOUT_PEER_UID=1000",
                          "CARVEOUT_PEER_PID=4321", "CARVEOUT_BYTES=2097152"));
  EXPECT_TRUE(out_.ends_with('\n'));
}

TEST_F(NativeJournal, GetsOnlyTheFieldsThatThereAre) {
  RUN_OR_SKIP([](int out) {
    const UniqueFd socket = listen_as_journal();
    announce(0);
    Journal journal;
    journal.log(Level::kError, Event::kTrouble, "plain");
    return put(out, next_entry(socket)) ? 0 : 1;
  });
  EXPECT_THAT(lines_of(out_),
              ElementsAre("MESSAGE=plain", "PRIORITY=3", "SYSLOG_IDENTIFIER=carveoutd",
                          StartsWith("MESSAGE_ID=")));
}

TEST_F(NativeJournal, TakesNoFieldFromAText) {
  RUN_OR_SKIP([](int out) {
    const UniqueFd socket = listen_as_journal();
    announce(0);
    Journal journal;
    journal.log(Level::kInfo, Event::kRefused, "forged\nPRIORITY=0\nCARVEOUT_PEER_UID=0");
    return put(out, next_entry(socket)) ? 0 : 1;
  });
  EXPECT_THAT(lines_of(out_), Contains("MESSAGE=forged\\x0aPRIORITY=0\\x0aCARVEOUT_PEER_UID=0"));
  EXPECT_THAT(lines_of(out_), Contains("PRIORITY=6"));
  EXPECT_THAT(lines_of(out_), Not(Contains("PRIORITY=0")));
}

TEST_F(NativeJournal, GetsAnIdOfItsOwnForEachEvent) {
  RUN_OR_SKIP([](int out) {
    const UniqueFd socket = listen_as_journal();
    announce(0);
    Journal journal;
    for (const Event event :
         {Event::kStarted, Event::kStopped, Event::kGranted, Event::kReleased, Event::kRefused,
          Event::kDraining, Event::kReloaded, Event::kTrouble}) {
      journal.log(Level::kInfo, event, "x");
      if (!put(out, next_entry(socket))) return 1;
    }
    return 0;
  });
  std::set<std::string> ids;
  for (const std::string& line : lines_of(out_)) {
    if (!line.starts_with("MESSAGE_ID=")) continue;
    EXPECT_EQ(line.size(), 11U + 32U) << line;
    EXPECT_EQ(line.find_first_not_of("0123456789abcdef", 11), std::string::npos) << line;
    ids.insert(line);
  }
  EXPECT_EQ(ids.size(), 8U);
}

TEST_F(NativeJournal, IsNotWaitedForWhenItDoesNotRead) {
  RUN_OR_SKIP([](int) {
    const UniqueFd socket = listen_as_journal();
    announce(0);
    Journal journal;
    for (int i = 0; i < 10'000; ++i) {
      journal.log(Level::kInfo, Event::kRefused, std::string(500, 'x'));
    }
    std::uint64_t taken = 0;
    while (!next_entry(socket).empty())
      ++taken;
    return taken > 0 && taken + journal.dropped() == 10'000 ? 0 : 1;
  });
  EXPECT_EQ(code_, 0);
  EXPECT_EQ(error_, "");
}

TEST_F(NativeJournal, IsFoundAgainAfterARestart) {
  RUN_OR_SKIP([](int out) {
    UniqueFd socket = listen_as_journal();
    announce(0);
    Journal journal;
    socket.reset();
    journal.log(Level::kInfo, Event::kRefused, "nobody there");
    if (journal.dropped() != 1) return 1;
    ::unlink(kSocket);
    socket = listen_as_journal();
    journal.log(Level::kInfo, Event::kRefused, "somebody there again");
    return put(out, next_entry(socket)) && journal.dropped() == 1 ? 0 : 2;
  });
  EXPECT_EQ(code_, 0);
  EXPECT_THAT(lines_of(out_), Contains("MESSAGE=somebody there again"));
}

TEST_F(NativeJournal, IsNotUsedWhenStandardErrorIsSomethingElse) {
  RUN_OR_SKIP([](int out) {
    const UniqueFd socket = listen_as_journal();
    announce(1);
    Journal elsewhere;
    elsewhere.log(Level::kInfo, Event::kRefused, "redirected");
    ::unsetenv("JOURNAL_STREAM");
    Journal unset;
    unset.log(Level::kInfo, Event::kRefused, "not said");
    return put(out, next_entry(socket)) ? 0 : 1;
  });
  EXPECT_EQ(code_, 0);
  EXPECT_EQ(out_, "");
  EXPECT_EQ(error_, "carveoutd: redirected\ncarveoutd: not said\n");
}

TEST_F(NativeJournal, IsReplacedByLinesWhenItCannotBeReached) {
  RUN_OR_SKIP([](int) {
    announce(0);
    Journal journal;
    journal.log(Level::kInfo, Event::kRefused, "no journal");
    return static_cast<int>(journal.dropped());
  });
  EXPECT_EQ(code_, 0);
  EXPECT_EQ(error_, "carveoutd: no journal\n");
}

}  // namespace
}  // namespace carveout::daemon
