// The C ABI's memory that is lent: what a lender's answers become, the watch, fork, cancellation.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "unit/c_api_fixture.hpp"

namespace carveout::client {
namespace {

using test::Answer;

class CApiLent : public CApi {
 protected:
  void SetUp() override {
    CApi::SetUp();
    options_.source = CARVEOUT_SOURCE_DAEMON;
    options_.socket_path = path_.c_str();
    options_.key = "swordfish";
  }

  std::string path_ = directory_.path("lend.sock");
  UniqueFd memory_ = test::make_memory(mib(4).count());
};

TEST_F(CApiLent, CanBeWatched) {
  test::ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
  ASSERT_EQ(open(), CARVEOUT_OK) << error_.message;
  EXPECT_EQ(info().lender_base, 10739515392U);
  EXPECT_TRUE(test::is_close_on_exec(carveout_watch_fd(handle_)));
  EXPECT_EQ(carveout_is_lender_gone(handle_), 0);
  lender.kill();
  EXPECT_EQ(carveout_is_lender_gone(handle_), 1);
}

TEST_F(CApiLent, LeavesTheLeaseToTheParentOfAFork) {
  const test::ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
  ASSERT_EQ(open(), CARVEOUT_OK) << error_.message;
  EXPECT_EQ(test::run_in_child([&] {
              carveout_after_fork_in_child(handle_);
              if (carveout_watch_fd(handle_) != -1) return 1;
              if (carveout_is_lender_gone(handle_) != 1) return 2;
              return carveout_close(handle_, nullptr) == CARVEOUT_OK ? 0 : 3;
            }),
            0);
  EXPECT_EQ(carveout_is_lender_gone(handle_), 0);
}

TEST_F(CApiLent, IsNoCancellationPoint) {
  const test::ScriptedLender silent(path_, {Answer{}});
  options_.timeout_ms = 300;
  carveout_status_t status = CARVEOUT_OK;
  std::thread other([&] {
    status = open();
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ::pthread_cancel(other.native_handle());
  other.join();
  EXPECT_EQ(status, CARVEOUT_ERROR_TIMED_OUT);
}

}  // namespace
}  // namespace carveout::client
