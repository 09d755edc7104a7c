// The C ABI's memory that is lent: the watch, fork, cancellation.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

// --- cancellation ---

// In a child, since a cancellation that cannot be unwound ends the process.
TEST_F(CApiLent, IsNoCancellationPoint) {
  const test::ScriptedLender silent(path_, {Answer{}});
  options_.timeout_ms = 300;
  EXPECT_EQ(test::run_in_child([&] {
              carveout_status_t status = CARVEOUT_OK;
              std::thread other([&] {
                status = open();
                ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
              });
              std::this_thread::sleep_for(std::chrono::milliseconds(100));
              ::pthread_cancel(other.native_handle());
              other.join();
              return status == CARVEOUT_ERROR_TIMED_OUT ? 0 : 1;
            }),
            0);
}

// Whether a thread comes back from that with a cancellation pending.
bool comes_back(const std::function<void()>& call) {
  bool back = false;
  std::thread other([&] {
    ::pthread_cancel(::pthread_self());
    call();
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    back = true;
  });
  other.join();
  return back;
}

TEST_F(CApiLent, ComesBackFromEveryCallWithACancellationPending) {
  const test::ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
  const std::vector<std::pair<const char*, std::function<void()>>> calls{
      {"options_init", [&] { (void)carveout_options_init(&options_, sizeof options_); }},
      {"open", [&] { (void)carveout_close(std::exchange(handle_, nullptr), nullptr), open(); }},
      {"get_info", [&] { (void)info(); }},
      {"watch_fd", [&] { (void)carveout_watch_fd(handle_); }},
      {"is_lender_gone", [&] { (void)carveout_is_lender_gone(handle_); }},
      {"after_fork_in_child", [&] { carveout_after_fork_in_child(handle_); }},
      {"close", [&] { (void)carveout_close(std::exchange(handle_, nullptr), &error_); }},
      {"version", [] { (void)carveout_version(); }},
      {"status_name", [] { (void)carveout_status_name(CARVEOUT_OK); }},
  };
  for (const auto& [name, call] : calls) {
    EXPECT_EQ(test::run_in_child([&, &call = call] {
                if (open() != CARVEOUT_OK) return 1;
                return comes_back(call) ? 0 : 2;
              }),
              0)
        << name;
  }
  const auto sleeps = [] { ::pause(); };
  EXPECT_EQ(test::run_in_child([&] { return comes_back(sleeps) ? 0 : 2; }), 2) << "it is pending";
}

}  // namespace
}  // namespace carveout::client
