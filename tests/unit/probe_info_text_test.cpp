// What `info` shows: everything that is known, and each reason.

#include "show/info_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace carveout::probe {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(ProbeInfoText, ShowsTheMachineAndEachMemory) {
  Report report;
  report.command = "info";
  report.engine = EngineKind::kGpu;
  report.engine_detail = "NVIDIA GB10, 48 SMs";
  report.machine = {.host = "spark-1",
                    .kernel = "Linux 6.11 aarch64",
                    .processor = "CPU part 0xd87, 20 CPUs",
                    .gpu = "NVIDIA GB10",
                    .driver = "580.82.07",
                    .cuda = "13.0",
                    .lender = "carveoutd 0.1.0, backend drm (card /dev/dri/card0)",
                    .page_bytes = 4096,
                    .cache_bytes = {std::uint64_t{24} << 20}};
  report.arms = {{"ordinary", "ordinary", "", "device memory", 0, "", ""},
                 {"daemon/vmm", "daemon", "vmm", "", 0, "cuMemMap failed\n\x1b[31m", ""}};
  const std::string text = info_text(report);
  EXPECT_THAT(text, AllOf(HasSubstr("engine      gpu: NVIDIA GB10, 48 SMs\n"),
                          HasSubstr("caches      L2 24 MiB\n"),
                          HasSubstr("driver      580.82.07\n"), HasSubstr("host        spark-1\n"),
                          HasSubstr("lender      carveoutd 0.1.0, backend drm"),
                          HasSubstr("pages       4 KiB\n")));
  EXPECT_THAT(text, AllOf(HasSubstr("  ordinary: device memory\n"),
                          HasSubstr("  daemon/vmm: not to be had: cuMemMap failed\\x0a")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  report.machine = {};
  EXPECT_THAT(info_text(report), AllOf(Not(HasSubstr("driver")), Not(HasSubstr("pages"))))
      << "nothing is said of what is not known";
}

}  // namespace
}  // namespace carveout::probe
