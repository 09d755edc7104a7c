// Room is asked for before memory is touched: by what the kernel would tell on other machines.

#include "engines/room.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "unit/helpers.hpp"

namespace carveout::probe {
namespace {

using carveout::test::TemporaryDirectory;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kOneGib = "1073741824\n";

class ProbeRoom : public testing::Test {
 protected:
  // What is said against so much memory; "" where there is room.
  [[nodiscard]] std::string refusal(Bytes size) const {
    const auto room = check_room(size, files_);
    if (room) return "";
    EXPECT_EQ(room.error().code, Code::kExhausted);
    EXPECT_THAT(room.error().describe(), HasSubstr("say a smaller --size"));
    return room.error().describe();
  }
  void group(const std::string& name, const std::string& limit, const std::string& used,
             const std::string& facts = "") {
    (void)directory_.file("groups/" + name + "/memory.max", limit);
    (void)directory_.file("groups/" + name + "/memory.current", used);
    if (!facts.empty()) (void)directory_.file("groups/" + name + "/memory.stat", facts);
  }

  TemporaryDirectory directory_;
  RoomFiles files_{directory_.path("meminfo"), directory_.path("cgroup"),
                   directory_.path("groups")};
};

TEST_F(ProbeRoom, IsWhatTheHostHasToSpare) {
  (void)directory_.file("meminfo", "MemTotal: 9999999 kB\nMemAvailable: 2097152 kB\n");
  EXPECT_EQ(refusal(mib(1792)), "") << "2 GiB less what is left to the rest";
  EXPECT_THAT(refusal(mib(1793)), AllOf(HasSubstr("1793 MiB of ordinary memory"),
                                        HasSubstr("the host has only 1792 MiB to spare")));
  EXPECT_NE(refusal(gib(1000)), "");
}

TEST_F(ProbeRoom, IsUnboundedWhereTheKernelTellsNothing) {
  EXPECT_EQ(refusal(gib(1000)), "") << "there is no such file";
  (void)directory_.file("meminfo", "nothing of it");
  (void)directory_.file("cgroup", "4:memory:/of/version/one\n");
  EXPECT_EQ(refusal(gib(1000)), "");
}

TEST_F(ProbeRoom, IsWhatTheGroupMayHave) {
  (void)directory_.file("cgroup", "1:name=systemd:/x\n0::/a/b\n");
  group("a/b", kOneGib, "268435456\n");
  EXPECT_EQ(refusal(mib(768)), "");
  EXPECT_THAT(refusal(mib(769)),
              AllOf(HasSubstr("the control group /a/b"), HasSubstr("only 768 MiB more")));
  group("a/b", "max\n", "268435456\n");
  EXPECT_EQ(refusal(gib(1000)), "") << "without a limit";
  group("a/b", "1024\n", "4096\n");
  EXPECT_THAT(refusal(mib(2)), HasSubstr("only 0 MiB more")) << "above its limit already";
}

TEST_F(ProbeRoom, CountsWhatTheKernelCanHaveBack) {
  (void)directory_.file("cgroup", "0::/a\n");
  group("a", kOneGib, kOneGib,
        "anon 1\ninactive_file 268435456\nactive_file 268435456\nworkingset_active_file 9\n");
  EXPECT_EQ(refusal(mib(512)), "");
  EXPECT_NE(refusal(mib(513)), "");
}

TEST_F(ProbeRoom, IsBoundedByTheGroupsAboveToo) {
  (void)directory_.file("cgroup", "0::/a/b\n");
  group("a/b", "max\n", "0\n");
  group("a", kOneGib, "0\n");
  EXPECT_EQ(refusal(gib(1)), "");
  EXPECT_THAT(refusal(gib(1) + mib(1)), HasSubstr("the control group /a may"));
  // As a container sees its own: at the top.
  (void)directory_.file("cgroup", "0::/\n");
  EXPECT_EQ(refusal(gib(2)), "");
  group(".", kOneGib, "0\n");
  EXPECT_THAT(refusal(gib(2)), HasSubstr("the control group / may"));
}

}  // namespace
}  // namespace carveout::probe
