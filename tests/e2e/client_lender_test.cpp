// The lender's client against carveoutd and against lenders of another make, which write their
// replies as the protocol allows: what works with one works with all.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "client/lender.hpp"
#include "client/settings.hpp"
#include "support/daemon_process.hpp"
#include "support/memory.hpp"
#include "support/scripted_lender.hpp"

namespace carveout::client {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr Bytes kReservation = mib(64);

// Who lends: nothing stands for carveoutd.
using Make = std::optional<test::Style>;

class Borrowing : public testing::TestWithParam<Make> {
 protected:
  void SetUp() override {
    // As Windows' editors would leave it.
    test::write_file(directory_.file("crlf-key"), "secret\r\nsecond line\r\n", 0600);
    if (const Make make = GetParam()) {
      scripted_.emplace(directory_.file("lend.sock"),
                        test::lender_of(kReservation.count(), "secret", *make));
      socket_ = directory_.file("lend.sock");
    } else {
      daemon_.emplace(CARVEOUTD, std::vector<std::string>{"--size", "64MiB"});
      socket_ = daemon_->socket();
    }
  }

  // As the environment would have it, with the key file unless a key is given.
  [[nodiscard]] LenderSettings settings(const std::optional<std::string>& key = {}) const {
    const auto read = settings_from([&](const std::string& row) -> std::optional<std::string> {
      if (row == "CARVEOUT") return "1";
      if (row == "CARVEOUT_SOCKET") return socket_;
      if (row == "CARVEOUT_KEY") return key;
      if (row == "CARVEOUT_KEY_FILE" && !key) return directory_.file("crlf-key");
      return std::nullopt;
    });
    if (!read || !*read) throw std::runtime_error("the settings are refused");
    return {(*read)->socket, *(*read)->key};
  }
  static Deadline soon() { return wire::Clock::now() + std::chrono::seconds(20); }
  [[nodiscard]] Result<Lease> ask(Bytes size) const { return borrow(settings(), size, soon()); }
  [[nodiscard]] Lease take(Bytes size) const {
    auto lease = ask(size);
    if (!lease) throw std::runtime_error(lease.error().describe());
    return *std::move(lease);
  }
  // A release is noticed before whoever connects later is served, but perhaps after it was asked.
  [[nodiscard]] bool all_is_free() const {
    return test::eventually([this] { return ask(kReservation).has_value(); });
  }
  // The lender dies.
  void kill() {
    if (daemon_) daemon_->kill();
    if (scripted_) scripted_->kill();
  }

  test::TempDir directory_;
  std::string socket_;
  std::optional<test::DaemonProcess> daemon_;
  std::optional<test::ScriptedLender> scripted_;
};

TEST_P(Borrowing, GivesMemoryOfTheSizeThatWasAsked) {
  for (const Bytes size : {Bytes(1), mib(2), mib(3), kReservation}) {
    const Lease lease = take(size);
    const Bytes whole = Slices::holding(size).bytes();
    EXPECT_EQ(lease.loan().size, whole);
    EXPECT_EQ(lease.loan().base, Bytes(10739515392));
    EXPECT_EQ(lease.loan().kind, DescriptorKind::kMemfd);
    EXPECT_TRUE(test::is_zeroed_memory(lease.loan().memory.get(), whole.count()));
    EXPECT_FALSE(lease.lender_gone());
  }
  EXPECT_TRUE(all_is_free());
}

TEST_P(Borrowing, TellsAWrongKeyFromAFullReservation) {
  const Lease held = take(mib(60));
  const std::size_t before = test::count_descriptors(::getpid());
  const auto wrong = borrow(settings("swordfish"), mib(2), soon());
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Code::kRefused);
  EXPECT_THAT(wrong.error().message,
              AllOf(HasSubstr("missing or unknown key"), Not(HasSubstr("swordfish"))));
  const auto full = ask(mib(6));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kRefused);
  EXPECT_THAT(full.error().message, AllOf(HasSubstr("not enough free carveout"), HasSubstr("4 MiB"),
                                          Not(HasSubstr("key"))));
  const auto beyond = ask(mib(66));
  ASSERT_FALSE(beyond);
  EXPECT_THAT(beyond.error().message, HasSubstr("size must be an integer from 1 to 67108864"));
  EXPECT_EQ(test::count_descriptors(::getpid()), before);
  EXPECT_FALSE(held.lender_gone()) << "others' refusals are not its business";
}

TEST_P(Borrowing, NeverGivesLessThanTheFixedDefault) {
  const auto lease = ask(Settings{}.size);
  ASSERT_FALSE(lease) << "64 MiB are there, but 1792 MiB are the default";
  EXPECT_EQ(lease.error().code, Code::kRefused);
}

TEST_P(Borrowing, ClaimsPieceByPieceOnOneConnection) {
  {
    auto lender = Lender::connect(socket_, soon());
    ASSERT_TRUE(lender);
    std::vector<Loan> loans;
    for (std::uint64_t i = 0; i < Slices::holding(kReservation).count(); ++i) {
      auto loan = lender->claim(settings().key, mib(2), soon());
      ASSERT_TRUE(loan) << loan.error().describe();
      loans.push_back(*std::move(loan));
    }
    const auto more = lender->claim(settings().key, mib(2), soon());
    ASSERT_FALSE(more);
    EXPECT_EQ(more.error().code, Code::kRefused);
    EXPECT_TRUE(test::eventually([&] { return lender->gone(); })) << "a refusal is the end of all";
  }
  EXPECT_TRUE(all_is_free());
}

TEST_P(Borrowing, IsGivenBackByClosing) {
  {
    const Lease lease = take(kReservation);
    EXPECT_FALSE(ask(mib(2)));
  }
  EXPECT_TRUE(all_is_free());
}

TEST_P(Borrowing, MemoryThatIsMappedOutlivesItsDescriptorAndItsLender) {
  Lease lease = take(mib(4));
  test::Mapping mapping(lease.loan().memory.get(), mib(4).count());
  lease.loan().memory.reset();
  mapping.fill(0x5A);
  EXPECT_FALSE(lease.lender_gone()) << "the connection is the claim";
  kill();
  EXPECT_TRUE(test::eventually([&] { return lease.lender_gone(); }));
  EXPECT_TRUE(mapping.all(0x5A));
}

TEST_P(Borrowing, WatchShowsThatTheLenderHasDied) {
  const Lease lease = take(mib(2));
  pollfd item{lease.watch(), POLLRDHUP, 0};
  EXPECT_EQ(::poll(&item, 1, 50), 0);
  EXPECT_FALSE(lease.lender_gone());
  kill();
  EXPECT_EQ(::poll(&item, 1, 20'000), 1);
  EXPECT_NE(item.revents & (POLLRDHUP | POLLHUP), 0);
  EXPECT_TRUE(lease.lender_gone());
  const auto again = ask(mib(2));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().number, ECONNREFUSED);
}

// --- fork ---

// A child that takes its one step when it is told to, and then lives until it is killed.
class Child {
 public:
  explicit Child(const std::function<void()>& step) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
      throw std::runtime_error("socketpair");
    }
    ours_ = UniqueFd(ends[0]);
    const UniqueFd theirs(ends[1]);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ours_.reset();
    char order = 0;
    if (::recv(theirs.get(), &order, 1, 0) == 1) step();
    (void)::send(theirs.get(), "x", 1, MSG_NOSIGNAL);
    for (;;)
      ::pause();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Child(Child&&) = delete;
  Child& operator=(Child&&) = delete;
  ~Child() { kill(); }

  // Has the step taken: it is done, or has replaced the child by another program.
  void go() const {
    char done = 0;
    EXPECT_EQ(::send(ours_.get(), "x", 1, 0), 1);
    EXPECT_GE(::recv(ours_.get(), &done, 1, 0), 0);
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  UniqueFd ours_;
  pid_t pid_ = -1;
};

TEST_P(Borrowing, AChildThatDiesEndsNoLeaseOfItsParents) {
  const Lease lease = take(kReservation);
  Child child([] {});
  child.kill();
  EXPECT_FALSE(ask(mib(2))) << "it is still lent";
  EXPECT_FALSE(lease.lender_gone());
}

TEST_P(Borrowing, AChildKeepsTheLeaseUntilItEnds) {
  std::optional<Lease> lease = take(kReservation);
  Child child([] {});
  lease.reset();
  EXPECT_FALSE(ask(mib(2))) << "the child has it";
  child.kill();
  EXPECT_TRUE(all_is_free());
}

TEST_P(Borrowing, AChildThatAbandonsItLeavesItToItsParent) {
  std::optional<Lease> lease = take(kReservation);
  Child child([&] { lease->abandon_in_child(); });
  child.go();
  EXPECT_FALSE(ask(mib(2))) << "it says nothing to the lender";
  EXPECT_FALSE(lease->lender_gone());
  lease.reset();
  EXPECT_TRUE(all_is_free()) << "the child lives, and does not hold it";
}

TEST_P(Borrowing, AProgramThatAChildBecomesHoldsNothing) {
  std::optional<Lease> lease = take(kReservation);
  Child child([] { ::execlp("sleep", "sleep", "1000", nullptr); });
  child.go();
  lease.reset();
  EXPECT_TRUE(all_is_free());
}

std::string name_of(const testing::TestParamInfo<Make>& info) {
  if (!info.param) return "Carveoutd";
  switch (*info.param) {
    case test::Style::kLetter:
      return "Letter";
    case test::Style::kCompact:
      return "Compact";
    case test::Style::kSpaced:
      return "Spaced";
    case test::Style::kReordered:
      return "Reordered";
    case test::Style::kExtra:
      return "ExtraMembers";
    case test::Style::kEscaped:
      return "Escaped";
    case test::Style::kSlow:
      return "Slow";
  }
  return "Unknown";
}

INSTANTIATE_TEST_SUITE_P(From, Borrowing,
                         testing::Values(Make(), Make(test::Style::kLetter),
                                         Make(test::Style::kCompact), Make(test::Style::kSpaced),
                                         Make(test::Style::kReordered), Make(test::Style::kExtra),
                                         Make(test::Style::kEscaped), Make(test::Style::kSlow)),
                         name_of);

}  // namespace
}  // namespace carveout::client
