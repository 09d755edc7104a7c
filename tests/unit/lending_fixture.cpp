#include "unit/lending_fixture.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <utility>

#include "base/text.hpp"

#include "unit/call.hpp"
#include "unit/run_loop.hpp"

namespace carveout::daemon {
namespace {

// A journal takes what standard error is when it is made.
std::unique_ptr<Journal> journal_on(int error) {
  ::unsetenv("JOURNAL_STREAM");
  const UniqueFd before(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  ::dup2(error, STDERR_FILENO);
  auto journal = std::make_unique<Journal>();
  ::dup2(before.get(), STDERR_FILENO);
  return journal;
}

}  // namespace

Description FakeSource::describe() const {
  return {.name = "fake",
          .kind = DescriptorKind::kMemfd,
          .kernel_zeroes = kernel_zeroes,
          .limit = std::nullopt,
          .detail = ""};
}

Result<Buffer> FakeSource::allocate(Bytes size) {
  calls.push_back(cat("allocate ", Slices::holding(size).count()));
  if (on_allocate) on_allocate(size);
  if (allocate_error) return *allocate_error;
  UniqueFd file(::memfd_create("fake", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(size.count())), 0);
  return Buffer{std::move(file), size};
}

Result<UniqueFd> FakeSource::share(const Buffer& buffer) {
  calls.emplace_back("share");
  if (share_error) return *share_error;
  return UniqueFd(::fcntl(buffer.descriptor.get(), F_DUPFD_CLOEXEC, 0));
}

Result<void> FakeSource::scrub(Buffer& /*buffer*/) {
  calls.emplace_back("scrub");
  if (scrub_error) return *scrub_error;
  return {};
}

std::optional<std::string> FakeSource::take_warning() {
  return std::exchange(warning, std::nullopt);
}

std::vector<const FakeBorrower*> FakeBorrower::order;

void FakeBorrower::on_granted(const Lease& granted_lease, UniqueFd granted_memory) {
  lease = granted_lease.id;
  memory = std::move(granted_memory);
  ++granted;
  order.push_back(this);
}

void FakeBorrower::on_failed() {
  ++failed;
  order.push_back(this);
  if (when_failed) when_failed();
}

const Peer LendingTest::kPeer{.uid = ::getuid(), .gid = ::getgid(), .pid = ::getpid()};

LendingTest::LendingTest(std::unique_ptr<Ledger> ledger, std::size_t store)
    : log_(test::make_pipe()),
      journal_(journal_on(log_.write_end.get())),
      ledger_(std::move(ledger)),
      supervisor_(store),
      lending_(*loop_, *worker_, source_, reservation_, *journal_, ledger_.get(), supervisor_) {
  FakeBorrower::order.clear();
  descriptors_ = test::open_descriptors();
}

LendingTest::~LendingTest() {
  open_gate();
  // Before Lending goes, to which a grant in the worker's hands refers.
  if (worker_) worker_->stop();
}

bool LendingTest::begin(FakeBorrower& borrower, std::uint64_t slices, std::uint64_t connection) {
  return lending_.begin(borrower, connection, connection_.first.get(), kPeer,
                        Slices(slices).bytes());
}

void LendingTest::grant(FakeBorrower& borrower, std::uint64_t slices, std::uint64_t connection) {
  const int answers = borrower.granted + borrower.failed;
  ASSERT_TRUE(begin(borrower, slices, connection));
  serve_until([&] { return borrower.granted + borrower.failed > answers; });
}

void LendingTest::serve_until(const std::function<bool()>& condition) {
  while (!condition()) {
    ASSERT_TRUE(test::wait_readable(worker_->done_descriptor(), std::chrono::seconds(20)));
    worker_->run_done();
  }
}

void LendingTest::settle() {
  bool done = false;
  worker_->submit(std::make_unique<Call>([] {}, [&done] { done = true; }));
  serve_until([&done] { return done; });
}

void LendingTest::close_gate() {
  gate_.emplace();
  // The promise may be gone before the worker waits for it; its state is not.
  auto opened = std::make_shared<std::future<void>>(gate_->get_future());
  auto entered = std::make_shared<std::promise<void>>();
  auto inside = entered->get_future();
  worker_->submit(std::make_unique<Call>([opened, entered] {
    entered->set_value();
    opened->wait();
  }));
  inside.wait();
}

void LendingTest::open_gate() {
  if (!gate_) return;
  gate_->set_value();
  gate_.reset();
}

void LendingTest::run_loop(std::chrono::milliseconds time) {
  const auto timer = loop_->after(time, [this] { loop_->stop(); });
  ASSERT_TRUE(timer);
  ASSERT_TRUE(test::run(*loop_));
}

void LendingTest::expect(std::uint64_t free, std::uint64_t largest) const {
  const Figures now = lending_.figures_for(0, 1);
  EXPECT_EQ(now.size, Slices(kSlices).bytes());
  EXPECT_EQ(now.free, Slices(free).bytes());
  EXPECT_EQ(now.largest, Slices(largest).bytes());
}

std::string LendingTest::logged() {
  std::string text;
  std::array<char, 4096> part{};
  while (test::wait_readable(log_.read_end.get(), std::chrono::milliseconds(0))) {
    const ssize_t got = ::read(log_.read_end.get(), part.data(), part.size());
    if (got <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace carveout::daemon
