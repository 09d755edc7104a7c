// carveout-probe's GPU engine against the real daemon, both over the driver of tests/fake_cuda,
// whose GPU takes made times: what is said of figures is tested, and no figure is anybody's.
// (tests/gpu does it on a real one.)

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidjson/document.h>

#include <algorithm>

#include "support/daemon_process.hpp"
#include "support/probe_schema.hpp"

namespace carveout::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> over_the_fake(const std::string& knobs) {
  return {"env", std::string("LD_LIBRARY_PATH=") + CARVEOUT_FAKE_CUDA,
          std::string("LD_PRELOAD=") + CARVEOUT_FAKE_NVIDIA_FILE, "FAKE_CUDA_STRICT=1",
          "FAKE_CUDA_SET=" + knobs};
}

class ProbeGpu : public testing::Test {
 protected:
  [[nodiscard]] Outcome probe(const std::string& knobs,
                              const std::vector<std::string>& more) const {
    std::vector<std::string> all = over_the_fake(knobs);
    for (const std::string& word :
         {std::string(CARVEOUT_PROBE), std::string("--engine"), std::string("gpu"),
          std::string("--socket"), daemon_.socket(), std::string("--key-file"), daemon_.key_file(),
          std::string("--control"), daemon_.control(), std::string("--repetitions"),
          std::string("2")}) {
      all.push_back(word);
    }
    if (std::find(more.begin(), more.end(), "--size") == more.end()) {
      all.insert(all.end(), {"--size", "8MiB"});
    }
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  }
  [[nodiscard]] std::string file(const std::string& name) const {
    return daemon_.directory().file(name);
  }

  DaemonProcess daemon_{CARVEOUTD, {"--backend", "cuda", "--size", "64MiB"}, over_the_fake("")};
};

constexpr const char* kKept = "model=1,l2=2097152";
constexpr const char* kNotKept = "model=1,l2=2097152,vmm-l2=0";

TEST_F(ProbeGpu, MeasuresOrdinaryAndLentMemoryByEachMap) {
  const Outcome outcome = probe(kKept, {"bandwidth", "--json", file("b.json")});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("ordinary"), HasSubstr("cuda/vmm"), HasSubstr("daemon/vmm"),
                    HasSubstr("cuMemcpyDtoD into"), HasSubstr("Fake GPU 0")));
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("daemon/external"),
                                    HasSubstr("daemon/register: not to be had: --map: ")))
      << "and why";
  EXPECT_EQ(validate_against_schema(read_file(file("b.json"))), "");
}

// Two arms have most of the reservation; the third is refused for what it is, not for want of more.
TEST_F(ProbeGpu, SaysOfAMapThatCannotBeThatItCannot) {
  const Outcome outcome = probe(kKept, {"bandwidth", "--size", "24MiB", "--blocks", "1"});
  EXPECT_THAT(outcome.output, HasSubstr("daemon/register: not to be had: --map: "));
}

TEST_F(ProbeGpu, SaysThatTheL2KeepsWhatItKeeps) {
  const Outcome outcome = probe(kKept, {"residency", "--require", "resident", "--html",
                                        file("r.html"), "--json", file("r.json")});
  EXPECT_EQ(outcome.code, 0) << outcome.error << outcome.output;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("cuda/vmm: resident"), HasSubstr("daemon/vmm: resident")));
  EXPECT_EQ(validate_against_schema(read_file(file("r.json"))), "");
  EXPECT_THAT(read_file(file("r.html")), HasSubstr("Fake GPU 0"));
}

// The reported case: read again it is slower than streamed.
TEST_F(ProbeGpu, SaysThatTheL2DoesNotKeepWhatItDoesNot) {
  const Outcome outcome =
      probe(kNotKept, {"residency", "--require", "resident", "--json", file("r.json")});
  EXPECT_EQ(outcome.code, 3) << outcome.error << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("daemon/vmm: not resident"),
                                    HasSubstr("read again it is slower than streamed")));
  EXPECT_THAT(outcome.error, HasSubstr("is required to be resident, and is not resident"));
  EXPECT_EQ(probe(kNotKept, {"residency"}).code, 0) << "it was measured; nothing was required";
  // What the operator then sees.
  const Outcome status = run(
      {CARVEOUTCTL, "--control", daemon_.control(), "status", "--probe-result", file("r.json")});
  EXPECT_THAT(status.output, AllOf(HasSubstr("daemon/vmm not resident"), HasSubstr("Fake GPU 0")));
}

TEST_F(ProbeGpu, ReportsNoRateOfDataThatWasWrong) {
  for (const char* knob : {"kernel-reads=0", "kernel-writes=0", "device-copy=0"}) {
    const Outcome outcome = probe(std::string("model=1,") + knob, {"bandwidth"});
    EXPECT_EQ(outcome.code, 1) << knob;
    EXPECT_THAT(outcome.error, HasSubstr("ended early")) << knob;
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("daemon/vmm: ended before the last block: "),
                                      HasSubstr("ordinary: ended before the last block: ")))
        << knob;
  }
}

TEST_F(ProbeGpu, TellsTheMachine) {
  const Outcome outcome = probe(kKept, {"info"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("Fake GPU 0"), HasSubstr("L2 2 MiB"), HasSubstr("13.0"),
                    HasSubstr("backend cuda"), HasSubstr("daemon/vmm: 2 MiB lent as")));
}

}  // namespace
}  // namespace carveout::test
