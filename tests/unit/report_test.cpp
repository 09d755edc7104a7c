#include "report.hpp"

#include <gtest/gtest.h>
#include <rapidjson/document.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "version.hpp"

namespace carveout::daemon {
namespace {

using std::chrono::milliseconds;
using Time = std::chrono::system_clock::time_point;

rapidjson::Document parse(const std::string& text) {
  rapidjson::Document document;
  document.Parse(text.data(), text.size());
  EXPECT_FALSE(document.HasParseError()) << text;
  EXPECT_TRUE(document.IsObject()) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << "one line: " << text;
  return document;
}

Status some_status() {
  return {.started = Time(milliseconds(1764450000250)),
          .source = {.name = "memfd",
                     .kind = DescriptorKind::kMemfd,
                     .kernel_zeroes = true,
                     .limit = std::nullopt,
                     .detail = "ordinary \"pages\""},
          .figures = {Bytes(0x280200000), mib(2046), mib(2000), mib(1000)},
          .draining = true,
          .capped = true,
          .leases = 3,
          .borrowers = 2,
          .connections = 5,
          .sockets = {"/run/a.sock", "/run/b.sock"},
          .refuses_descriptors = true,
          .counters = {.accepted = 11,
                       .shed = 12,
                       .over_user_limit = 23,
                       .idle_closed = 24,
                       .timed_out = 25,
                       .infos = 13,
                       .refused_key = 14,
                       .refused_op = 15,
                       .refused_size = 16,
                       .refused_not_enough = 17,
                       .stalled = 18},
          .granted = 19,
          .released = 20,
          .adopted = 26,
          .lost = 27,
          .ledger = "/run/x/ledger.jsonl",
          .ledger_records = 28,
          .ledger_failing = true,
          .ledger_owed = 29,
          .store_used = 30,
          .store_most = 31,
          .log_lines_dropped = 21,
          .log_lines_left_out = 22};
}

TEST(StatusJson, SaysEverything) {
  const auto json = parse(status_json(some_status()));
  EXPECT_TRUE(json["ok"].GetBool());
  EXPECT_STREQ(json["version"].GetString(), kVersion);
  EXPECT_EQ(json["pid"].GetInt(), ::getpid());
  EXPECT_STREQ(json["ledger"].GetString(), "/run/x/ledger.jsonl");
  EXPECT_EQ(json["ledger_records"].GetUint(), 28U);
  EXPECT_TRUE(json["ledger_failing"].GetBool());
  EXPECT_EQ(json["ledger_owed"].GetUint(), 29U);
  EXPECT_EQ(json["store_used"].GetUint(), 30U);
  EXPECT_EQ(json["store_most"].GetUint(), 31U);
  EXPECT_DOUBLE_EQ(json["started_unix_s"].GetDouble(), 1764450000.25);
  EXPECT_STREQ(json["backend"].GetString(), "memfd");
  EXPECT_STREQ(json["backend_detail"].GetString(), "ordinary \"pages\"");
  EXPECT_STREQ(json["descriptor"].GetString(), "memfd");
  EXPECT_EQ(json["base"].GetUint64(), 0x280200000U);
  EXPECT_EQ(json["size_bytes"].GetUint64(), mib(2046).count());
  EXPECT_EQ(json["free_bytes"].GetUint64(), mib(2000).count());
  EXPECT_EQ(json["largest_bytes"].GetUint64(), mib(1000).count());
  EXPECT_TRUE(json["draining"].GetBool());
  EXPECT_TRUE(json["kernel_refused_lately"].GetBool());
  EXPECT_EQ(json["leases"].GetUint(), 3U);
  EXPECT_EQ(json["borrowers"].GetUint(), 2U);
  EXPECT_EQ(json["connections"].GetUint(), 5U);
  EXPECT_TRUE(json["refuses_descriptors"].GetBool());
  ASSERT_EQ(json["sockets"].Size(), 2U);
  EXPECT_STREQ(json["sockets"][0].GetString(), "/run/a.sock");
  EXPECT_STREQ(json["sockets"][1].GetString(), "/run/b.sock");
}

TEST(StatusJson, SaysEveryCounter) {
  const auto json = parse(status_json(some_status()));
  const auto& counters = json["counters"];
  const std::map<std::string, unsigned> expected{{"accepted", 11},
                                                 {"shed", 12},
                                                 {"infos", 13},
                                                 {"refused_key", 14},
                                                 {"refused_op", 15},
                                                 {"refused_size", 16},
                                                 {"refused_not_enough", 17},
                                                 {"over_user_limit", 23},
                                                 {"idle_closed", 24},
                                                 {"timed_out", 25},
                                                 {"stalled", 18},
                                                 {"granted", 19},
                                                 {"released", 20},
                                                 {"adopted", 26},
                                                 {"lost", 27},
                                                 {"log_lines_dropped", 21},
                                                 {"log_lines_left_out", 22}};
  EXPECT_EQ(counters.MemberCount(), expected.size());
  for (const auto& [name, count] : expected) {
    ASSERT_TRUE(counters.HasMember(name.c_str())) << name;
    EXPECT_EQ(counters[name.c_str()].GetUint(), count) << name;
  }
}

TEST(StatusJson, NamesEachKindOfDescriptor) {
  Status status = some_status();
  for (const auto& [kind, name] : {std::pair{DescriptorKind::kMemfd, "memfd"},
                                   {DescriptorKind::kDmaBuf, "dma-buf"},
                                   {DescriptorKind::kNvidiaFile, "nvidia"}}) {
    status.source.kind = kind;
    EXPECT_STREQ(parse(status_json(status))["descriptor"].GetString(), name);
  }
}

TEST(StatusJson, HoldsTheLargestNumbers) {
  Status status = some_status();
  const Bytes most(~std::uint64_t{0});
  status.figures = {most, most, most, most};
  status.counters.accepted = most.count();
  const auto json = parse(status_json(status));
  EXPECT_EQ(json["size_bytes"].GetUint64(), most.count());
  EXPECT_EQ(json["counters"]["accepted"].GetUint64(), most.count());
}

TEST(StatusJson, IsJsonWhateverASocketIsCalled) {
  Status status = some_status();
  status.sockets = {"/run/\"\\\n\x1b\xff"};
  EXPECT_STREQ(parse(status_json(status))["sockets"][0].GetString(), "/run/\"\\\\x0a\\x1b\\xff");
  status.sockets.clear();
  EXPECT_EQ(parse(status_json(status))["sockets"].Size(), 0U);
}

Lease lease_of(std::uint64_t id, std::string command) {
  Lease lease;
  lease.id = id;
  lease.connection = id + 100;
  lease.peer = {.uid = 4294967294U, .gid = 7, .pid = 4321};
  lease.identity = {
      .command = std::move(command), .cgroup = "/system.slice/x", .unit = "x.service"};
  lease.size = mib(4);
  lease.inode = 987654321;
  lease.since = Time(milliseconds(1764450001500));
  return lease;
}

TEST(LeasesJson, IsAnEmptyListWithoutLeases) {
  const auto json = parse(leases_json({}));
  EXPECT_TRUE(json["ok"].GetBool());
  ASSERT_TRUE(json["leases"].IsArray());
  EXPECT_EQ(json["leases"].Size(), 0U);
}

TEST(LeasesJson, SaysEverythingOfEachLeaseInOrder) {
  std::map<std::uint64_t, Lease> leases;
  leases.emplace(9, lease_of(9, "second"));
  leases.emplace(2, lease_of(2, "first"));
  const auto json = parse(leases_json(leases));
  ASSERT_EQ(json["leases"].Size(), 2U);
  EXPECT_STREQ(json["leases"][1]["command"].GetString(), "second");
  const auto& first = json["leases"][0];
  EXPECT_EQ(first["lease"].GetUint64(), 2U);
  EXPECT_EQ(first["connection"].GetUint64(), 102U);
  EXPECT_EQ(first["bytes"].GetUint64(), 4194304U);
  EXPECT_EQ(first["uid"].GetUint64(), 4294967294U);
  EXPECT_EQ(first["gid"].GetUint64(), 7U);
  EXPECT_EQ(first["pid"].GetUint64(), 4321U);
  EXPECT_STREQ(first["command"].GetString(), "first");
  EXPECT_STREQ(first["unit"].GetString(), "x.service");
  EXPECT_STREQ(first["cgroup"].GetString(), "/system.slice/x");
  EXPECT_EQ(first["inode"].GetUint64(), 987654321U);
  EXPECT_DOUBLE_EQ(first["since_unix_s"].GetDouble(), 1764450001.5);
}

TEST(LeasesJson, IsJsonWhateverACommandIsCalled) {
  std::map<std::uint64_t, Lease> leases;
  leases.emplace(1, lease_of(1, "\"},{\xff\x1b\n"));
  const auto json = parse(leases_json(leases));
  EXPECT_STREQ(json["leases"][0]["command"].GetString(), "\"},{\\xff\\x1b\\x0a");
}

TEST(DrainingJson, SaysHowManyLeasesRemain) {
  const auto on = parse(draining_json(true, 4));
  EXPECT_TRUE(on["ok"].GetBool());
  EXPECT_TRUE(on["draining"].GetBool());
  EXPECT_EQ(on["leases"].GetUint(), 4U);
  EXPECT_FALSE(parse(draining_json(false, 0))["draining"].GetBool());
}

}  // namespace
}  // namespace carveout::daemon
