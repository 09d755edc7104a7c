#include "worker.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unit/call.hpp"
#include "unit/helpers.hpp"

namespace carveout::daemon {
namespace {

using std::chrono::milliseconds;

class WorkerTest : public testing::Test {
 protected:
  void submit(std::function<void()> work, std::function<void()> done = {}) {
    worker_->submit(std::make_unique<Call>(std::move(work), std::move(done)));
  }
  // As the loop does, until `condition` holds.
  void serve_until(const std::function<bool()>& condition) {
    while (!condition()) {
      ASSERT_TRUE(test::wait_readable(worker_->done_descriptor(), milliseconds(20'000)));
      worker_->run_done();
    }
  }

  std::unique_ptr<Worker> worker_ = *Worker::start();
};

TEST_F(WorkerTest, WorksElsewhereAndIsDoneHere) {
  std::thread::id worked, done;
  std::string name;
  submit(
      [&] {
        worked = std::this_thread::get_id();
        std::array<char, 16> buffer{};
        ::pthread_getname_np(::pthread_self(), buffer.data(), buffer.size());
        name = buffer.data();
      },
      [&] { done = std::this_thread::get_id(); });
  serve_until([&] { return done != std::thread::id(); });
  EXPECT_NE(worked, std::thread::id());
  EXPECT_NE(worked, std::this_thread::get_id());
  EXPECT_EQ(done, std::this_thread::get_id());
  EXPECT_EQ(name, "carveoutd-mem");
}

TEST_F(WorkerTest, KeepsTheOrder) {
  std::vector<int> worked, done;
  for (int i = 0; i < 200; ++i) {
    submit([&worked, i] { worked.push_back(i); }, [&done, i] { done.push_back(i); });
  }
  serve_until([&] { return done.size() == 200; });
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(worked[static_cast<std::size_t>(i)], i);
    EXPECT_EQ(done[static_cast<std::size_t>(i)], i);
  }
}

TEST_F(WorkerTest, IsReadableExactlyWhileTasksAreDone) {
  EXPECT_FALSE(test::wait_readable(worker_->done_descriptor(), milliseconds(0)));
  submit({});
  EXPECT_TRUE(test::wait_readable(worker_->done_descriptor(), milliseconds(20'000)));
  worker_->run_done();
  EXPECT_FALSE(test::wait_readable(worker_->done_descriptor(), milliseconds(0)));
  worker_->run_done();  // nothing to do, and no wait
}

TEST_F(WorkerTest, MayBeGivenMoreWhileTasksAreDone) {
  int done = 0;
  std::function<void()> again = [&] {
    if (++done < 10) submit({}, again);
  };
  submit({}, again);
  serve_until([&] { return done == 10; });
}

TEST_F(WorkerTest, ClosesADescriptorBeforeTheNextTask) {
  test::Pipe pipe = test::make_pipe();
  const int number = pipe.write_end.get();
  std::promise<void> started, gate;
  bool open_during = false, open_after = true, done = false;
  submit([&] {
    started.set_value();
    gate.get_future().wait();
    open_during = test::is_open(number);
  });
  // This one was there before the descriptor is handed over, and still comes after it.
  submit([&] { open_after = test::is_open(number); }, [&] { done = true; });
  started.get_future().wait();
  worker_->dispose(std::move(pipe.write_end));
  gate.set_value();
  serve_until([&] { return done; });
  EXPECT_TRUE(open_during);
  EXPECT_FALSE(open_after);
  EXPECT_EQ(test::read_all(pipe.read_end.get()), "");
}

TEST_F(WorkerTest, ClosingAloneWakesNobody) {
  test::Pipe pipe = test::make_pipe();
  worker_->dispose(std::move(pipe.write_end));
  EXPECT_EQ(test::read_all(pipe.read_end.get()), "");  // it is closed by now
  EXPECT_FALSE(test::wait_readable(worker_->done_descriptor(), milliseconds(20)));
}

// A connection over TCP whose close() waits a second for a peer that does not read. The peer's end
// is left in `peer`.
UniqueFd slow_to_close(UniqueFd& peer) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(listener.get(), generic, length) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), generic, &length) != 0 ||
      ::connect(client.get(), generic, length) != 0) {
    return {};
  }
  peer = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const std::string much(65536, 'x');
  while (::send(client.get(), much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  const linger second{1, 1};
  if (::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &second, sizeof second) != 0) return {};
  return client;
}

TEST_F(WorkerTest, TakesMoreWhileSomethingIsSlowToClose) {
  UniqueFd peer;
  UniqueFd slow = slow_to_close(peer);
  if (!slow) GTEST_SKIP() << "no TCP over the loopback interface here";
  worker_->dispose(std::move(slow));
  std::this_thread::sleep_for(milliseconds(100));  // by now it is at it
  bool done = false;
  const auto took = test::time_of([&] {
    submit({}, [&done] { done = true; });
    worker_->run_done();
  });
  EXPECT_LT(took, milliseconds(500));
  serve_until([&done] { return done; });
}

TEST_F(WorkerTest, StopFinishesTheTaskAtHandAndDropsTheOthers) {
  std::promise<void> begun, gate;
  bool worked = false, other_worked = false, done = false;
  submit(
      [&] {
        begun.set_value();
        gate.get_future().wait();
        worked = true;
      },
      [&] { done = true; });
  auto kept = std::make_shared<int>(1);
  submit([&other_worked, kept] { other_worked = true; }, [&done] { done = true; });
  test::Pipe pipe = test::make_pipe();
  worker_->dispose(std::move(pipe.write_end));
  begun.get_future().wait();
  std::thread opener([&gate] {
    std::this_thread::sleep_for(milliseconds(30));
    gate.set_value();
  });
  worker_->stop();
  opener.join();
  EXPECT_TRUE(worked);
  EXPECT_FALSE(other_worked);
  worker_.reset();
  EXPECT_FALSE(done);
  EXPECT_EQ(kept.use_count(), 1);
  EXPECT_EQ(test::read_all(pipe.read_end.get()), "");  // closed with the worker, not leaked
}

TEST_F(WorkerTest, StopTwiceIsStop) {
  worker_->stop();
  worker_->stop();
}

TEST_F(WorkerTest, DropsWhatIsSubmittedAfterStop) {
  worker_->stop();
  bool touched = false;
  auto kept = std::make_shared<int>(1);
  submit([&touched, kept] { touched = true; }, [&touched] { touched = true; });
  EXPECT_FALSE(test::wait_readable(worker_->done_descriptor(), milliseconds(20)));
  worker_.reset();
  EXPECT_FALSE(touched);
  EXPECT_EQ(kept.use_count(), 1);
}

TEST_F(WorkerTest, LeavesNothingBehind) {
  worker_.reset();
  const std::size_t before = test::open_descriptors();
  for (int i = 0; i < 20; ++i) {
    auto worker = Worker::start();
    ASSERT_TRUE(worker);
    EXPECT_TRUE(test::is_close_on_exec((*worker)->done_descriptor()));
    (*worker)->submit(std::make_unique<Call>([] {}));
  }
  EXPECT_EQ(test::open_descriptors(), before);
}

}  // namespace
}  // namespace carveout::daemon
