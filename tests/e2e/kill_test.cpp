// The daemon killed at a random moment of a grant, a thousand times: the client has a zeroed grant
// of the size in its reply, or the end of its connection, and nothing else.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <iostream>
#include <random>
#include <thread>

#include "support/daemon_process.hpp"
#include "support/memory.hpp"

namespace carveout::test {
namespace {

using Clock = std::chrono::steady_clock;

#ifdef CARVEOUT_SANITIZED
constexpr int kKills = 100;  // each restart costs a sanitizer's start-up
#else
constexpr int kKills = 1000;
#endif

constexpr std::uint64_t kMostSlices = 8;

std::chrono::nanoseconds longest_grant(const DaemonProcess& daemon) {
  std::vector<std::chrono::nanoseconds> took;
  for (int i = 0; i < 21; ++i) {
    const auto before = Clock::now();
    const UniqueFd memory = daemon.connect().alloc(kMostSlices * kSlice);
    took.push_back(Clock::now() - before);
  }
  std::nth_element(took.begin(), took.begin() + 10, took.end());
  return took[10];
}

TEST(Kill, AtARandomMomentOfAThousandGrants) {
  DaemonProcess daemon(CARVEOUTD, {"--size", "64MiB"});
  // Moments up to this long after the request. It follows what they hit, so that the middle and the
  // end of grants are both met however busy the machine is.
  double longest = static_cast<double>(longest_grant(daemon).count()) * 1.25;
  std::mt19937_64 random(20261129);
  int granted = 0;
  int ended = 0;
  int reset = 0;
  for (int i = 0; i < kKills; ++i) {
    const std::uint64_t slices = 1 + random() % kMostSlices;
    const std::chrono::nanoseconds moment(
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(longest)));
    const Peer peer = daemon.connect();
    ASSERT_TRUE(peer.send(peer.alloc_request(slices * kSlice)));
    const auto until = Clock::now() + moment;
    while (Clock::now() < until) {  // sleeping is too coarse for a grant
    }
    daemon.kill();

    const Reply reply = peer.receive();
    if (reply.ended()) {
      ASSERT_TRUE(reply.descriptors.empty());
      // The kernel says ECONNRESET where the daemon died before it had read the request.
      ASSERT_TRUE(reply.error == 0 || reply.error == ECONNRESET) << reply.error;
      ++(reply.error == 0 ? ended : reset);
      longest *= 1.02;
    } else {
      longest *= 0.96;
      ASSERT_EQ(reply.bytes, R"({"ok": true, "base": 10739515392, "size": )" +
                                 std::to_string(slices * kSlice) + "}");
      ASSERT_EQ(reply.descriptors.size(), 1U);
      ASSERT_TRUE(is_zeroed_memory(reply.descriptors[0].get(), slices * kSlice));
      const Reply end = peer.receive();
      ASSERT_TRUE(end.ended() && end.descriptors.empty()) << "nothing behind it: " << end.bytes;
      ++granted;
    }
    daemon.start();
  }
  std::cout << kKills << " kills: " << granted << " granted, " << ended << " ended, " << reset
            << " reset before the request was read\n";
  EXPECT_GT(granted, kKills / 20) << "the moments missed the end of the grants";
  EXPECT_GT(ended, kKills / 20) << "the moments missed the middle of the grants";
  EXPECT_EQ(daemon.connect().info().free, 32 * kSlice);
}

}  // namespace
}  // namespace carveout::test
