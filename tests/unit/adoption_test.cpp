// What goes on after a restart: the design's table row by row, and the whole of it at random.

#include "adoption.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "unit/ledger_history_fixture.hpp"

namespace carveout::daemon {
namespace {

using testing::HasSubstr;

TEST(StoreName, IsThereAndBack) {
  for (const auto id : {std::uint64_t{1}, std::uint64_t{42}, std::uint64_t{1} << 62U})
    EXPECT_EQ(connection_of(store_name(id)), id);
  EXPECT_EQ(store_name(42), "conn-42");
}

TEST(StoreName, IsNothingElse) {
  for (const char* name : {"",
                           "conn",
                           "conn-",
                           "conn-0",
                           "conn-18446744073709551615",
                           "conn-01",
                           "conn-+1",
                           "conn--1",
                           "conn- 1",
                           "conn-1 ",
                           "conn-1a",
                           "conn-0x1",
                           "Conn-1",
                           "xconn-1",
                           "1",
                           "stored",
                           "lend",
                           "conn-18446744073709551616",
                           "conn-99999999999999999999999",
                           "conn-1\n"}) {
    EXPECT_FALSE(connection_of(name)) << name;
  }
  EXPECT_FALSE(connection_of(std::string("conn-1\0", 7)));
}

class AdoptionTest : public LedgerHistoryTest {
 protected:
  AdoptionTest() { good(start()); }

  // Its connection is 100 + its id, unless another is given.
  void leave(std::uint64_t lease, State state, std::uint64_t connection = 0) {
    const auto put = [&](LedgerEvent event) {
      LedgerRecord record = of(event, lease);
      if (connection != 0) record.connection = connection;
      good(record);
    };
    put(LedgerEvent::kRequested);
    if (state != State::kRequested) put(LedgerEvent::kGranted);
    if (state == State::kLent) put(LedgerEvent::kAnswered);
  }
  // After one more start.
  [[nodiscard]] Adoption plan(const std::vector<std::string>& names, bool same_boot = true) {
    good(start());
    return plan_adoption(history_, names, same_boot);
  }
  static void expect_lost(const Adoption& adoption, const std::set<std::uint64_t>& leases) {
    std::set<std::uint64_t> lost;
    for (const LedgerRecord& record : adoption.lost)
      EXPECT_TRUE(lost.insert(record.lease).second) << "twice: " << record.lease;
    EXPECT_EQ(lost, leases);
  }
  static void expect_dropped(const Adoption::Dropped& dropped, std::size_t place,
                             std::optional<std::uint64_t> connection, const char* why) {
    EXPECT_EQ(dropped.place, place);
    EXPECT_EQ(dropped.connection, connection);
    EXPECT_THAT(dropped.reason, HasSubstr(why));
  }
};

TEST_F(AdoptionTest, OfNothing) {
  const Adoption adoption = plan({});
  EXPECT_TRUE(adoption.connections.empty() && adoption.dropped.empty() && adoption.lost.empty());
  EXPECT_EQ(adoption.last_connection, 0U);
}

TEST_F(AdoptionTest, WhatWasAnsweredGoesOn) {
  leave(1, State::kLent);
  const Adoption adoption = plan({"conn-101"});
  ASSERT_EQ(adoption.connections.size(), 1U);
  const auto& connection = adoption.connections[0];
  EXPECT_EQ(connection.place, 0U);
  EXPECT_EQ(connection.id, 101U);
  ASSERT_EQ(connection.leases.size(), 1U);
  EXPECT_EQ(connection.leases[0].lease, 1U);
  EXPECT_EQ(connection.leases[0].size, Slices(1).bytes());
  EXPECT_EQ(connection.leases[0].pid, 4242U);
  EXPECT_FALSE(connection.request);
  EXPECT_TRUE(adoption.dropped.empty() && adoption.lost.empty());
}

TEST_F(AdoptionTest, WhatWasGrantedGoesOnAsIfItWereAnswered) {
  leave(1, State::kGranted);
  const Adoption adoption = plan({"conn-101"});
  ASSERT_EQ(adoption.connections.size(), 1U);
  ASSERT_EQ(adoption.connections[0].leases.size(), 1U);
  EXPECT_FALSE(adoption.connections[0].request);
}

TEST_F(AdoptionTest, WhatWasRequestedIsServedNow) {
  leave(1, State::kRequested);
  const Adoption adoption = plan({"conn-101"});
  ASSERT_EQ(adoption.connections.size(), 1U);
  EXPECT_TRUE(adoption.connections[0].leases.empty());
  ASSERT_TRUE(adoption.connections[0].request);
  EXPECT_EQ(adoption.connections[0].request->lease, 1U);
}

TEST_F(AdoptionTest, ALeaseWhoseConnectionIsGoneIsLost) {
  leave(1, State::kLent);
  leave(2, State::kGranted);
  leave(3, State::kRequested);
  const Adoption adoption = plan({});
  EXPECT_TRUE(adoption.connections.empty() && adoption.dropped.empty());
  expect_lost(adoption, {1, 2, 3});
}

TEST_F(AdoptionTest, AConnectionWithoutLeaseOrRequestIsDropped) {
  leave(1, State::kLent);
  good(of(LedgerEvent::kReleased, 1));
  const Adoption adoption = plan({"conn-101", "conn-7"});
  EXPECT_TRUE(adoption.connections.empty() && adoption.lost.empty());
  ASSERT_EQ(adoption.dropped.size(), 2U);
  expect_dropped(adoption.dropped[0], 0, 101, "no lease and no request");
  expect_dropped(adoption.dropped[1], 1, 7, "no lease and no request");
}

TEST_F(AdoptionTest, SeveralLeasesAndARequestOnOneConnection) {
  leave(1, State::kLent, 50);
  leave(2, State::kLent, 51);
  leave(3, State::kGranted, 50);
  leave(4, State::kRequested, 50);
  const Adoption adoption = plan({"conn-51", "conn-50"});
  ASSERT_EQ(adoption.connections.size(), 2U);
  EXPECT_EQ(adoption.connections[0].id, 51U);
  EXPECT_EQ(adoption.connections[1].id, 50U);
  EXPECT_EQ(adoption.connections[1].place, 1U);
  ASSERT_EQ(adoption.connections[1].leases.size(), 2U);
  EXPECT_EQ(adoption.connections[1].leases[0].lease, 1U);
  EXPECT_EQ(adoption.connections[1].leases[1].lease, 3U);
  EXPECT_EQ(adoption.connections[1].request->lease, 4U);
}

TEST_F(AdoptionTest, OfSeveralRequestsOnAConnectionTheLastIsServed) {
  leave(1, State::kRequested, 50);
  leave(2, State::kRequested, 50);
  const Adoption adoption = plan({"conn-50"});
  ASSERT_EQ(adoption.connections.size(), 1U);
  EXPECT_EQ(adoption.connections[0].request->lease, 2U);
  expect_lost(adoption, {1});
}

TEST_F(AdoptionTest, NamesThatAreNotOursAreClosedAndLeftToTheManager) {
  leave(1, State::kLent);
  const Adoption adoption = plan({"stored", "conn-101", "", "conn-0101"});
  ASSERT_EQ(adoption.connections.size(), 1U);
  EXPECT_EQ(adoption.connections[0].place, 1U);
  ASSERT_EQ(adoption.dropped.size(), 3U);
  expect_dropped(adoption.dropped[0], 0, std::nullopt, "not the name of a connection");
  expect_dropped(adoption.dropped[1], 2, std::nullopt, "not the name of a connection");
  expect_dropped(adoption.dropped[2], 3, std::nullopt, "not the name of a connection");
}

TEST_F(AdoptionTest, OfTwoOfTheSameNameTheFirstGoesOnAndStaysStored) {
  leave(1, State::kLent);
  const Adoption adoption = plan({"conn-101", "conn-101"});
  ASSERT_EQ(adoption.connections.size(), 1U);
  EXPECT_EQ(adoption.connections[0].place, 0U);
  ASSERT_EQ(adoption.dropped.size(), 1U);
  expect_dropped(adoption.dropped[0], 1, std::nullopt, "two of it");
}

TEST_F(AdoptionTest, AfterARebootNothingGoesOn) {
  leave(1, State::kLent);
  leave(2, State::kRequested);
  const Adoption adoption = plan({"conn-101", "conn-102"}, false);
  EXPECT_TRUE(adoption.connections.empty());
  expect_lost(adoption, {1, 2});
  ASSERT_EQ(adoption.dropped.size(), 2U);
  EXPECT_EQ(adoption.dropped[0].connection, 101U);
  EXPECT_EQ(adoption.dropped[1].connection, 102U);
}

TEST_F(AdoptionTest, RecordsThatWeCannotHaveWrittenAreLost) {
  const auto take = [this](std::uint64_t lease, std::uint64_t connection, Bytes size) {
    LedgerRecord record = of(LedgerEvent::kGranted, lease);
    record.connection = connection;
    record.size = size;
    history_.take(record);
  };
  take(1, 0, mib(2));
  take(2, 50, Bytes(0));
  take(3, 50, mib(3));
  take(4, 50, Bytes(1));
  take(5, 50, mib(4));
  const Adoption adoption = plan({"conn-50"});
  ASSERT_EQ(adoption.connections.size(), 1U);
  ASSERT_EQ(adoption.connections[0].leases.size(), 1U);
  EXPECT_EQ(adoption.connections[0].leases[0].lease, 5U);
  expect_lost(adoption, {1, 2, 3, 4});
}

TEST_F(AdoptionTest, KnowsTheHighestConnection) {
  leave(1, State::kLent);
  EXPECT_EQ(plan({}).last_connection, 101U);
  EXPECT_EQ(plan({"conn-50"}).last_connection, 101U);
  EXPECT_EQ(plan({"conn-5000"}).last_connection, 5000U) << "stored, but never recorded";
}

// Whatever is left and whatever comes back: nothing is forgotten and nothing is taken twice.
TEST(Adoption, AccountsForEverything) {
  std::mt19937_64 random(20240607);
  const auto below = [&random](std::uint64_t count) { return random() % count; };
  for (int round = 0; round < 2000; ++round) {
    LedgerHistory history;
    LedgerRecord record;
    const std::uint64_t leases = below(12);
    for (std::uint64_t lease = 1; lease <= leases; ++lease) {
      record.seq = lease;
      record.lease = lease;
      record.connection = below(6);
      record.size = below(8) == 0 ? Bytes(below(4'000'000)) : Slices(1 + below(3)).bytes();
      record.event = below(3) == 0 ? LedgerEvent::kRequested : LedgerEvent::kGranted;
      history.take(record);
    }
    std::vector<std::string> names;
    for (std::uint64_t i = below(8); i > 0; --i)
      names.push_back(below(6) == 0 ? cat("odd ", below(3)) : store_name(below(8)));
    const bool same_boot = below(8) != 0;

    const Adoption adoption = plan_adoption(history, names, same_boot);
    std::multiset<std::size_t> places;
    std::multiset<std::uint64_t> found;
    for (const auto& connection : adoption.connections) {
      places.insert(connection.place);
      EXPECT_EQ(names.at(connection.place), store_name(connection.id));
      EXPECT_FALSE(connection.leases.empty() && !connection.request);
      for (const LedgerRecord& lease : connection.leases) {
        found.insert(lease.lease);
        EXPECT_EQ(lease.connection, connection.id);
        EXPECT_EQ(lease.event, LedgerEvent::kGranted);
        EXPECT_TRUE(same_boot);
      }
      if (!connection.request) continue;
      found.insert(connection.request->lease);
      EXPECT_EQ(connection.request->connection, connection.id);
      EXPECT_EQ(connection.request->event, LedgerEvent::kRequested);
    }
    for (const auto& dropped : adoption.dropped) {
      places.insert(dropped.place);
      if (!dropped.connection) continue;
      // Taking it out of the store by its name takes nothing that goes on.
      EXPECT_TRUE(std::none_of(adoption.connections.begin(), adoption.connections.end(),
                               [&](const auto& other) { return other.id == dropped.connection; }));
    }
    for (const LedgerRecord& lost : adoption.lost)
      found.insert(lost.lease);

    ASSERT_EQ(places.size(), names.size()) << "round " << round;
    ASSERT_EQ(std::set(places.begin(), places.end()).size(), names.size());
    ASSERT_EQ(found.size(), leases) << "round " << round;
    ASSERT_EQ(std::set(found.begin(), found.end()).size(), leases);
  }
}

}  // namespace
}  // namespace carveout::daemon
