// A lender that is silent, slow or gone, several claims on one connection, and what watch() shows.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unit/client_lender_fixture.hpp"

namespace carveout::client {
namespace {

using std::chrono::milliseconds;
using test::Answer;
using test::ScriptedLender;
using test::Then;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr milliseconds kBound{5000};  // far more than what it bounds takes on a busy machine

class ClientWaits : public ClientLender {
 protected:
  static Deadline in(int limit_ms) { return wire::Clock::now() + milliseconds(limit_ms); }
};

TEST_F(ClientWaits, WaitsNoLongerThanItsDeadline) {
  const UniqueFd deaf = test::listen_at(path_, SOCK_SEQPACKET, 8);  // never accepts
  const std::size_t before = test::open_descriptors();
  const auto took = test::time_of(
      [this] { EXPECT_EQ(borrow_within(milliseconds(60)).error().code, Code::kTimedOut); });
  EXPECT_GE(took, milliseconds(59));
  EXPECT_LT(took, kBound);
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST_F(ClientWaits, WaitsNoLongerForALenderThatReadsAndIsSilent) {
  const ScriptedLender lender(path_, {Answer{}});
  const auto took = test::time_of(
      [this] { EXPECT_EQ(borrow_within(milliseconds(60)).error().code, Code::kTimedOut); });
  EXPECT_GE(took, milliseconds(59));
  EXPECT_LT(took, kBound);
}

TEST_F(ClientWaits, WaitsNoLongerForAFullQueue) {
  const UniqueFd busy = test::listen_at(path_, SOCK_SEQPACKET, 1);
  std::vector<Lender> queued;
  for (;;) {
    auto next = Lender::connect(path_, wire::Clock::now());
    if (!next) break;
    queued.push_back(*std::move(next));
  }
  const auto took = test::time_of([this] {
    const Error error = borrow_within(milliseconds(60)).error();
    EXPECT_EQ(error.code, Code::kTimedOut);
    EXPECT_THAT(error.describe(), Not(HasSubstr(path_)));
  });
  EXPECT_GE(took, milliseconds(59));
  EXPECT_LT(took, kBound);
}

TEST_F(ClientWaits, TakesALateGrantThatIsInTime) {
  const ScriptedLender lender(
      path_, {Answer{{{kGrant, {memory_.get()}}}, Then::kStay, milliseconds(100)}});
  EXPECT_TRUE(borrow_now());
}

TEST_F(ClientWaits, IsNotKeptWaitingBySignals) {
  const ScriptedLender lender(path_, {Answer{}});
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGALRM, &action, &before), 0);
  const itimerval often{{0, 2000}, {0, 2000}};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  const auto took = test::time_of(
      [this] { EXPECT_EQ(borrow_within(milliseconds(80)).error().code, Code::kTimedOut); });
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  EXPECT_GE(took, milliseconds(79));
  EXPECT_LT(took, kBound);
}

TEST_F(ClientWaits, TakesNoGrantFromALenderThatHadLeftBefore) {
  const UniqueFd listener = test::listen_at(path_, SOCK_SEQPACKET, 1);
  auto connection = test::required(Lender::connect(path_, in(20'000)));
  const std::size_t before = test::open_descriptors();
  {
    const UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    test::send_datagram(accepted.get(), {kGrant, {memory_.get()}});
  }
  const auto loan = connection.claim(key_, mib(4), in(20'000));
  ASSERT_FALSE(loan);
  EXPECT_EQ(loan.error().code, Code::kClosed);
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST_F(ClientWaits, RaisesNoSigpipe) {
  EXPECT_EQ(test::run_in_child([this] {
              ::signal(SIGPIPE, SIG_DFL);
              const UniqueFd listener = test::listen_at(path_, SOCK_SEQPACKET, 1);
              const auto soon = wire::Clock::now() + std::chrono::seconds(5);
              auto connection = test::required(Lender::connect(path_, soon));
              UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)).reset();
              return connection.claim(key_, mib(2), soon).error().code == Code::kClosed ? 0 : 1;
            }),
            0);
}

// --- several claims on one connection ---

TEST_F(ClientWaits, ClaimsSeveralTimesOnOneConnection) {
  ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
  const std::size_t before = test::open_descriptors();
  {
    auto connection = test::required(Lender::connect(path_, in(20'000)));
    std::vector<Loan> loans;
    for (int i = 0; i < 10; ++i) {
      loans.push_back(test::required(connection.claim(key_, mib(4), in(20'000))));
    }
    EXPECT_EQ(test::open_descriptors(), before + 11);
    loans.clear();
    EXPECT_EQ(test::open_descriptors(), before + 1) << "the claims are the connection's";
    EXPECT_EQ(lender.events().size(), 11U) << "and it has not ended";
  }
  EXPECT_EQ(test::open_descriptors(), before);
}

std::ptrdiff_t requests_in(const std::vector<std::string>& events) {
  return std::count_if(events.begin(), events.end(),
                       [](const std::string& event) { return event.starts_with('{'); });
}

TEST_F(ClientWaits, TakesNoFurtherClaimBehindAFailedOne) {
  const Answer grant{{{kGrant, {memory_.get()}}}};
  for (const Answer& bad : {Answer{{{kFull}}}, Answer{{{"junk"}}}, Answer{{{kGrant}}}, Answer{},
                            Answer{{}, Then::kClose}}) {
    ScriptedLender lender(path_, {grant, bad, grant});
    const std::size_t before = test::open_descriptors();
    {
      auto connection = test::required(Lender::connect(path_, in(20'000)));
      const Loan loan = test::required(connection.claim(key_, mib(4), in(20'000)));
      EXPECT_FALSE(connection.claim(key_, mib(4), in(100)));
      const auto again = connection.claim(key_, mib(4), in(20'000));
      ASSERT_FALSE(again) << "a late reply would be taken for this claim's";
      EXPECT_EQ(again.error().code, Code::kClosed);
      EXPECT_LE(requests_in(lender.events()), 2) << "and it is not even asked";
      EXPECT_GE(connection.watch(), 0) << "whoever has mapped the first unmaps it first";
    }
    EXPECT_EQ(test::open_descriptors(), before);
    ::unlink(path_.c_str());
  }
}

TEST_F(ClientWaits, HasOneDeadlineOverAllClaims) {
  const ScriptedLender lender(path_,
                              {Answer{{{kGrant, {memory_.get()}}}, Then::kStay, milliseconds(40)}});
  const auto deadline = in(100);
  auto connection = test::required(Lender::connect(path_, deadline));
  std::size_t granted = 0;
  while (auto loan = connection.claim(key_, mib(4), deadline)) {
    ++granted;
  }
  EXPECT_LT(granted, 3U) << "each of them came within the limit, but not all";
}

// --- the lease's end ---

short poll_now(int descriptor, short events) {
  pollfd item{descriptor, events, 0};
  EXPECT_GE(::poll(&item, 1, 0), 0);
  return item.revents;
}

TEST_F(ClientWaits, WatchShowsThatTheLenderIsGone) {
  for (const bool half : {false, true}) {
    const UniqueFd listener = test::listen_at(path_, SOCK_SEQPACKET, 1);
    const Lender connection = test::required(Lender::connect(path_, in(20'000)));
    UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_EQ(poll_now(connection.watch(), POLLRDHUP), 0);
    EXPECT_FALSE(connection.gone());
    ASSERT_EQ(::send(accepted.get(), "x", 1, 0), 1);
    EXPECT_EQ(poll_now(connection.watch(), POLLRDHUP), 0) << "what comes unasked is no end";
    EXPECT_FALSE(connection.gone());
    if (half) {
      ::shutdown(accepted.get(), SHUT_WR);
    } else {
      accepted.reset();
    }
    EXPECT_NE(poll_now(connection.watch(), POLLRDHUP) & POLLRDHUP, 0);
    EXPECT_EQ((poll_now(connection.watch(), 0) & POLLHUP) != 0, !half);
    EXPECT_TRUE(connection.gone());
    EXPECT_TRUE(connection.gone()) << "and it stays so";
    ::unlink(path_.c_str());
  }
}

TEST_F(ClientWaits, WatchShowsALenderThatLeftARequestUnread) {
  const UniqueFd listener = test::listen_at(path_, SOCK_SEQPACKET, 1);
  auto connection = test::required(Lender::connect(path_, in(20'000)));
  UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_EQ(connection.claim(key_, mib(2), in(10)).error().code, Code::kTimedOut);
  EXPECT_FALSE(connection.gone());
  accepted.reset();
  EXPECT_TRUE(connection.gone());
}

TEST_F(ClientWaits, WatchShowsThatTheLenderHasDied) {
  ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
  const Lease lease = test::required(borrow_now());
  EXPECT_FALSE(lease.lender_gone());
  lender.kill();
  EXPECT_TRUE(lease.lender_gone());
  EXPECT_NE(poll_now(lease.watch(), POLLRDHUP) & (POLLRDHUP | POLLHUP), 0);
}

TEST_F(ClientWaits, AMovedLeaseIsStillOne) {
  ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
  const std::size_t before = test::open_descriptors();
  {
    Lease first = test::required(borrow_now());
    Lease second = test::required(borrow_now());
    EXPECT_EQ(test::open_descriptors(), before + 4);
    const int watched = second.watch();
    first = std::move(second);
    EXPECT_EQ(first.watch(), watched);
    EXPECT_FALSE(first.lender_gone());
    EXPECT_EQ(test::open_descriptors(), before + 2);
    EXPECT_TRUE(second.lender_gone());  // NOLINT(bugprone-use-after-move): says what is left
    EXPECT_LT(second.watch(), 0);
  }
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST_F(ClientWaits, AChildClosesItsCopyOnly) {
  ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
  const std::size_t before = test::open_descriptors();
  Lease lease = test::required(borrow_now());
  EXPECT_EQ(test::run_in_child([&] {
              lease.abandon_in_child();
              const bool closed = lease.watch() < 0 && !lease.loan().memory &&
                                  lease.lender_gone() && test::open_descriptors() == before;
              return closed ? 0 : 1;
            }),
            0);
  EXPECT_FALSE(lease.lender_gone());
  // A later connection is served after whatever had ended before it.
  const Lease later = test::required(borrow_now());
  EXPECT_THAT(lender.events(), Not(Contains("ended")));
}

TEST_F(ClientWaits, AChildThatKeepsItsCopyKeepsTheClaim) {
  ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
  test::Pipe pipe = test::make_pipe();
  std::optional<Lease> lease = test::required(borrow_now());
  const pid_t child = ::fork();
  if (child == 0) {
    pipe.write_end.reset();
    (void)test::wait_readable(pipe.read_end.get(), std::chrono::seconds(30));
    ::_exit(0);
  }
  lease.reset();
  const Lease later = test::required(borrow_now());
  EXPECT_THAT(lender.events(), Not(Contains("ended")));
  pipe.write_end.reset();
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  const Lease last = test::required(borrow_now());
  EXPECT_THAT(lender.events(), Contains("ended"));
}

}  // namespace
}  // namespace carveout::client
