// What carveoutd says at its start where the machine cannot give what it is to lend, each by a real
// kernel. (What no kernel here answers: tests/unit/drm_card_test.cpp.)

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "guest/devices.hpp"

namespace carveout::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The node of the card whose device's name (vkms_nodumb) begins so.
std::string node_of(const std::string& device, const std::string& kind = "card") {
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/drm")) {
    const std::string name = entry.path().filename();
    if (name.compare(0, kind.size(), kind) != 0 || name.find('-') != std::string::npos) continue;
    std::error_code none;
    const std::string found =
        std::filesystem::read_symlink(entry.path() / "device", none).filename();
    if (found == device) return "/dev/dri/" + name;
  }
  return {};
}

class Refusals : public testing::Test {
 protected:
  void SetUp() override {
    if (::access("/dev/dri", F_OK) != 0) GTEST_SKIP() << "waived: no /dev/dri";
  }
  static void expect(const std::vector<std::string>& options,
                     const testing::Matcher<const std::string&>& text, User user = User::kRoot) {
    for (const bool check : {false, true}) {
      std::vector<std::string> words = options;
      if (check) words.emplace_back("--check");
      const Outcome outcome = refuse(words, user);
      EXPECT_EQ(outcome.code, 1);
      EXPECT_THAT(outcome.error, text);
    }
  }
};

TEST_F(Refusals, NoSuchCard) {
  expect({"--backend", "drm", "--card", "/dev/dri/card77"},
         AllOf(HasSubstr("/dev/dri/card77"), HasSubstr("no such card"), HasSubstr("auto")));
}

TEST_F(Refusals, NoCard) {
  expect({"--backend", "drm", "--card", "/dev/null"},
         AllOf(HasSubstr("/dev/null"), HasSubstr("not a DRM device")));
  expect({"--backend", "drm", "--card", "/etc/passwd"},
         AllOf(HasSubstr("/etc/passwd"), HasSubstr("not a device")));
}

TEST_F(Refusals, ARenderNode) {
  const std::string node = node_of("vgem", "renderD");
  if (node.empty()) GTEST_SKIP() << "waived: no render node";
  expect({"--backend", "drm", "--card", node},
         AllOf(HasSubstr(node), HasSubstr("render node"), HasSubstr("primary node")));
}

TEST_F(Refusals, ACardWithoutDumbBuffers) {
  const std::string node = node_of("vkms_nodumb");
  if (node.empty()) GTEST_SKIP() << "waived: no card without dumb buffers";
  expect({"--backend", "drm", "--card", node},
         AllOf(HasSubstr(node), HasSubstr("no dumb buffer"), HasSubstr("Function not implemented"),
               HasSubstr("--card")));
}

TEST_F(Refusals, NvidiasDriverWithoutModeset) {
  const std::string node = node_of("vkms_nvidia_nodumb");
  if (node.empty())
    GTEST_SKIP() << "waived: no card of a driver called nvidia-drm without dumb buffers";
  expect({"--backend", "drm", "--card", node},
         AllOf(HasSubstr(node), HasSubstr("nvidia-drm"), HasSubstr("modeset=1 fbdev=0")));
}

TEST_F(Refusals, AFileOfNvidiasOnAnotherCard) {
  const std::string node = node_of("vkms");
  if (node.empty()) GTEST_SKIP() << "waived: no vkms";
  expect({"--backend", "drm", "--card", node, "--size", "16MiB", "--lend-as", "nvidia"},
         AllOf(HasSubstr("nvidiactl"), HasSubstr("--lend-as dma-buf")));
}

// The one that is called nvidia-drm is taken though it is not the first, and the others are named
// with what was wrong with them.
TEST_F(Refusals, AutoPassesOverWhatWillNotDo) {
  const std::string best = node_of("vkms_nvidia");
  const std::string without = node_of("vkms_nodumb");
  if (best.empty() || without.empty()) GTEST_SKIP() << "waived: too few cards";
  const DaemonProcess daemon(CARVEOUTD, {"--backend", "drm", "--size", "16MiB"});
  EXPECT_THAT(daemon.status(), HasSubstr("dumb buffers of " + best + " (nvidia-drm)"));
  EXPECT_THAT(daemon.log(), AllOf(HasSubstr("passed over"), HasSubstr(without),
                                  HasSubstr("Function not implemented"), HasSubstr(node_of("vkms")),
                                  HasSubstr("not NVIDIA's")));
  std::printf("%s", daemon.log().c_str());
}

TEST_F(Refusals, ACardThatMayNotBeOpened) {
  expect({"--backend", "drm", "--card", "/dev/dri/card0"},
         AllOf(HasSubstr("/dev/dri/card0"), HasSubstr("may not be opened"), HasSubstr("root")),
         User::kNobody);
}

TEST_F(Refusals, NoSuchHeap) {
  if (::access("/dev/dma_heap/system", F_OK) != 0) GTEST_SKIP() << "waived: no heap \"system\"";
  expect({"--backend", "dma-heap", "--heap", "display"},
         AllOf(HasSubstr("/dev/dma_heap/display"), HasSubstr("there are: "), HasSubstr("system")));
}

TEST_F(Refusals, AHeapThatMayNotBeOpened) {
  if (::access("/dev/dma_heap/system", F_OK) != 0) GTEST_SKIP() << "waived: no heap \"system\"";
  expect({"--backend", "dma-heap", "--heap", "system"},
         AllOf(HasSubstr("/dev/dma_heap/system"), HasSubstr("may not be opened")), User::kNobody);
}

}  // namespace
}  // namespace carveout::test
