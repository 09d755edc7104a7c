#pragma once

// Lending with a source that does as it is told, a worker that is served by hand, and a log that
// can be read.

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lending.hpp"
#include "unit/helpers.hpp"

namespace carveout::daemon {

// Touched on the worker while a grant is prepared, and on the test's thread before and after.
class FakeSource final : public Source {
 public:
  [[nodiscard]] Description describe() const override;
  Result<Buffer> allocate(Bytes size) override;
  Result<UniqueFd> share(const Buffer& buffer) override;
  Result<void> scrub(Buffer& buffer) override;
  std::optional<std::string> take_warning() override;

  bool kernel_zeroes = true;
  std::optional<Error> allocate_error, share_error, scrub_error;
  std::optional<std::string> warning;
  std::function<void(Bytes size)> on_allocate;
  std::vector<std::string> calls;
};

class FakeBorrower final : public Lending::Borrower {
 public:
  void on_granted(const Lease& lease, UniqueFd memory) override;
  void on_failed() override;

  std::function<void()> when_failed;
  std::uint64_t lease = 0;  // of the last grant
  UniqueFd memory;
  int granted = 0;
  int failed = 0;
  static std::vector<const FakeBorrower*> order;  // in which they were answered
};

class LendingTest : public testing::Test {
 protected:
  // With a ledger, everything is recorded in it; with a store, connections are kept in it
  // ($NOTIFY_SOCKET says where).
  explicit LendingTest(std::unique_ptr<Ledger> ledger = nullptr, std::size_t store = 0);
  ~LendingTest() override;

  bool begin(FakeBorrower& borrower, std::uint64_t slices, std::uint64_t connection = 1);
  // Asks and serves until there is an answer.
  void grant(FakeBorrower& borrower, std::uint64_t slices, std::uint64_t connection = 1);
  // As the loop does, until `condition` holds.
  void serve_until(const std::function<bool()>& condition);
  // Everything submitted so far has been through the worker and is done.
  void settle();
  // Keeps the worker busy from now until open_gate().
  void close_gate();
  void open_gate();
  // Turns the loop for a while. Once a test.
  void run_loop(std::chrono::milliseconds time);

  void expect(std::uint64_t free, std::uint64_t largest) const;
  // What has been logged since the last call.
  std::string logged();

  static constexpr std::uint64_t kSlices = 16;
  static const Peer kPeer;

  test::Pipe log_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<EventLoop> loop_ = *EventLoop::create();
  FakeSource source_;
  Reservation reservation_{Bytes(0x280200000), Slices(kSlices)};
  std::pair<UniqueFd, UniqueFd> connection_ = test::socket_pair();
  std::unique_ptr<Ledger> ledger_;
  Supervisor supervisor_;
  std::unique_ptr<Worker> worker_ = *Worker::start();
  Lending lending_;
  // Its first timer makes the loop open a descriptor, which no test shall count.
  EventLoop::Source never_ = *loop_->after(std::chrono::hours(1), [] {});
  std::size_t descriptors_ = 0;  // open when the test begins

 private:
  std::optional<std::promise<void>> gate_;
};

}  // namespace carveout::daemon
