// What the service manager is told, with a socket of the test in its place.

#include "supervisor.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "unit/fake_manager.hpp"
#include "unit/helpers.hpp"

namespace carveout::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() {
    ::setenv("NOTIFY_SOCKET", path_.c_str(), 1);
    ::unsetenv("FDSTORE");
  }
  ~SupervisorTest() override {
    ::unsetenv("NOTIFY_SOCKET");
    ::unsetenv("FDSTORE");
  }
  [[nodiscard]] int descriptor() const { return connection_.first.get(); }

  test::TemporaryDirectory directory_;
  const std::string path_ = directory_.path("notify");
  FakeManager manager_{path_};
  std::pair<UniqueFd, UniqueFd> connection_ = test::socket_pair();
};

TEST_F(SupervisorTest, TellsToTheLetterWhatIsToBeStored) {
  Supervisor supervisor(10);
  EXPECT_TRUE(supervisor.has_store());
  EXPECT_EQ(supervisor.most(), 10U);
  ASSERT_TRUE(supervisor.store(42, descriptor()));
  EXPECT_EQ(supervisor.stored(), 1U);
  const auto told = manager_.told();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].text, "FDSTORE=1\nFDPOLL=0\nFDNAME=conn-42");
  EXPECT_EQ(told[0].descriptors, 1U);
  struct stat status {};
  ASSERT_EQ(::fstat(descriptor(), &status), 0);
  EXPECT_EQ(told[0].inode, status.st_ino);
  EXPECT_TRUE(test::is_open(descriptor())) << "it stays the caller's";
}

TEST_F(SupervisorTest, TellsToTheLetterWhatIsToBeRemoved) {
  Supervisor supervisor(10);
  ASSERT_TRUE(supervisor.store(42, descriptor()));
  supervisor.remove(42);
  EXPECT_EQ(supervisor.stored(), 0U);
  const auto told = manager_.told();
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[1].text, "FDSTOREREMOVE=1\nFDNAME=conn-42");
  EXPECT_EQ(told[1].descriptors, 0U);
}

TEST_F(SupervisorTest, AFullStoreIsNotToldOfMore) {
  Supervisor supervisor(2);
  ASSERT_TRUE(supervisor.store(1, descriptor()));
  ASSERT_TRUE(supervisor.store(2, descriptor()));
  const auto refused = supervisor.store(3, descriptor());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_THAT(refused.error().describe(), HasSubstr("--store-max"));
  EXPECT_EQ(manager_.told().size(), 2U);
  supervisor.remove(1);
  EXPECT_TRUE(supervisor.store(3, descriptor()));
  EXPECT_EQ(supervisor.stored(), 2U);
}

TEST_F(SupervisorTest, WhatCameBackTakesUpRoom) {
  Supervisor supervisor(3);
  supervisor.count_kept(1, 1);  // and one that is not ours to take out
  EXPECT_EQ(supervisor.stored(), 1U);
  EXPECT_EQ(supervisor.most(), 2U);
  EXPECT_TRUE(supervisor.store(1, descriptor()));
  EXPECT_FALSE(supervisor.store(2, descriptor()));
  supervisor.remove(77);  // of an earlier start
  EXPECT_TRUE(supervisor.store(2, descriptor()));
}

TEST_F(SupervisorTest, ARemovalThatFailsComesBeforeTheNextStore) {
  Supervisor supervisor(2);
  ASSERT_TRUE(supervisor.store(1, descriptor()));
  ASSERT_TRUE(supervisor.store(2, descriptor()));
  EXPECT_EQ(manager_.told().size(), 2U);
  manager_.close();
  supervisor.remove(1);
  supervisor.remove(2);
  EXPECT_EQ(supervisor.stored(), 2U);
  const auto refused = supervisor.store(3, descriptor());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kSystem);
  EXPECT_THAT(refused.error().describe(), HasSubstr("cannot be told"));
  EXPECT_EQ(supervisor.stored(), 2U);
  manager_.open();
  EXPECT_TRUE(supervisor.store(3, descriptor()));
  EXPECT_EQ(supervisor.stored(), 1U);
  EXPECT_THAT(manager_.texts(),
              ElementsAre("FDSTOREREMOVE=1\nFDNAME=conn-1", "FDSTOREREMOVE=1\nFDNAME=conn-2",
                          "FDSTORE=1\nFDPOLL=0\nFDNAME=conn-3"));
}

TEST_F(SupervisorTest, AFailedStoreTakesUpNoRoom) {
  Supervisor supervisor(1);
  manager_.close();
  EXPECT_FALSE(supervisor.store(1, descriptor()));
  EXPECT_EQ(supervisor.stored(), 0U);
  manager_.open();
  EXPECT_TRUE(supervisor.store(1, descriptor()));
}

TEST_F(SupervisorTest, WaitsForTheManagerEverySixteenMessages) {
  Supervisor supervisor(1000);
  for (std::uint64_t connection = 1; connection <= 20; ++connection) {
    ASSERT_TRUE(supervisor.store(connection, descriptor()));
    EXPECT_EQ(manager_.barriers(), connection < 16 ? 0 : 1) << connection;
  }
  for (std::uint64_t connection = 1; connection <= 20; ++connection)
    supervisor.remove(connection);
  EXPECT_EQ(manager_.barriers(), 2);
  EXPECT_EQ(manager_.told().size(), 40U);
  EXPECT_EQ(supervisor.stored(), 0U);
}

TEST_F(SupervisorTest, LeavesNoDescriptorBehind) {
  Supervisor supervisor(1000);
  ASSERT_TRUE(supervisor.store(1, descriptor()));
  EXPECT_EQ(manager_.told().size(), 1U);
  const std::size_t before = test::open_descriptors();
  for (std::uint64_t connection = 2; connection <= 50; ++connection)
    ASSERT_TRUE(supervisor.store(connection, descriptor()));
  EXPECT_EQ(manager_.told().size(), 49U);
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST_F(SupervisorTest, WithoutAManagerThereIsNoStore) {
  for (const char* socket : {"", static_cast<const char*>(nullptr)}) {
    socket == nullptr ? ::unsetenv("NOTIFY_SOCKET") : ::setenv("NOTIFY_SOCKET", socket, 1);
    const Supervisor supervisor(10);
    EXPECT_FALSE(supervisor.has_store());
    EXPECT_EQ(supervisor.most(), 0U);
  }
  ::setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  EXPECT_THAT(manager_.told(), IsEmpty());
}

TEST_F(SupervisorTest, AStoreOfNothingIsNone) {
  EXPECT_FALSE(Supervisor(0).has_store());
}

TEST_F(SupervisorTest, TheManagersOwnLimitHolds) {
  ::setenv("FDSTORE", "5", 1);
  EXPECT_EQ(Supervisor(10).most(), 5U);
  EXPECT_EQ(Supervisor(3).most(), 3U);
  EXPECT_EQ(Supervisor(0).most(), 0U);
  for (const char* says_nothing : {"", "many"}) {
    ::setenv("FDSTORE", says_nothing, 1);
    EXPECT_EQ(Supervisor(10).most(), 10U) << says_nothing;
  }
}

// --- what is handed over at the start ---

// Runs `body` in a child with these descriptors from 3 on, named `names` (null: not named).
int handed(const std::vector<int>& descriptors, const char* names,
           const std::function<int()>& body) {
  return test::run_in_child([&] {
    std::vector<int> moved;
    for (const int descriptor : descriptors)
      moved.push_back(::fcntl(descriptor, F_DUPFD, 100));
    for (std::size_t i = 0; i < moved.size(); ++i)
      ::dup2(moved[i], static_cast<int>(3 + i));
    ::setenv("LISTEN_PID", cat(::getpid()).c_str(), 1);
    ::setenv("LISTEN_FDS", cat(descriptors.size()).c_str(), 1);
    names == nullptr ? ::unsetenv("LISTEN_FDNAMES") : ::setenv("LISTEN_FDNAMES", names, 1);
    return body();
  });
}

ino_t inode_of(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

TEST(HandedOver, IsTakenByName) {
  const auto one = test::make_pipe();
  const auto two = test::make_pipe();
  const std::vector<int> all{one.read_end.get(), two.read_end.get(), one.write_end.get(),
                             two.write_end.get()};
  const ino_t first = inode_of(all[0]);
  const ino_t second = inode_of(all[1]);
  EXPECT_EQ(handed(all, "conn-7:lend:stored:lend",
                   [&] {
                     const auto taken = take_handed_over();
                     if (!taken) return 1;
                     if (taken->listeners.size() != 2 || taken->kept.size() != 2) return 2;
                     if (taken->kept[0].name != "conn-7" || taken->kept[1].name != "stored") {
                       return 3;
                     }
                     if (taken->kept[0].descriptor.get() != 3 || taken->listeners[0].get() != 4 ||
                         taken->kept[1].descriptor.get() != 5 || taken->listeners[1].get() != 6) {
                       return 4;
                     }
                     if (inode_of(3) != first || inode_of(4) != second) return 5;
                     for (int descriptor = 3; descriptor <= 6; ++descriptor) {
                       if (!test::is_close_on_exec(descriptor)) return 6;
                     }
                     return 0;
                   }),
            0);
}

TEST(HandedOver, IsTakenOnce) {
  const auto pipe = test::make_pipe();
  EXPECT_EQ(handed({pipe.read_end.get()}, "lend",
                   [] {
                     {
                       const auto taken = take_handed_over();
                       if (!taken || taken->listeners.size() != 1) return 1;
                     }
                     if (test::is_open(3)) return 2;
                     if (std::getenv("LISTEN_FDS") != nullptr) return 3;
                     const auto again = take_handed_over();
                     return again && again->listeners.empty() && again->kept.empty() ? 0 : 4;
                   }),
            0);
}

TEST(HandedOver, WithoutNamesNothingListens) {
  const auto pipe = test::make_pipe();
  EXPECT_EQ(handed({pipe.read_end.get(), pipe.write_end.get()}, nullptr,
                   [] {
                     const auto taken = take_handed_over();
                     return taken && taken->listeners.empty() && taken->kept.size() == 2 ? 0 : 1;
                   }),
            0);
}

TEST(HandedOver, IsNothingWithoutAManager) {
  EXPECT_EQ(test::run_in_child([] {
              ::unsetenv("LISTEN_FDS");
              ::unsetenv("LISTEN_PID");
              const auto taken = take_handed_over();
              return taken && taken->listeners.empty() && taken->kept.empty() ? 0 : 1;
            }),
            0);
}

TEST(HandedOver, IsNothingWhenItIsForAnotherProcess) {
  const auto pipe = test::make_pipe();
  EXPECT_EQ(handed({pipe.read_end.get()}, "lend",
                   [] {
                     ::setenv("LISTEN_PID", "1", 1);
                     const auto taken = take_handed_over();
                     return taken && taken->listeners.empty() && test::is_open(3) ? 0 : 1;
                   }),
            0);
}

TEST(HandedOver, IsRefusedWhenItMakesNoSense) {
  EXPECT_EQ(handed({}, nullptr,
                   [] {
                     ::setenv("LISTEN_FDS", "many", 1);
                     const auto taken = take_handed_over();
                     return !taken && taken.error().code == Code::kSystem ? 0 : 1;
                   }),
            0);
}

}  // namespace
}  // namespace carveout::daemon
