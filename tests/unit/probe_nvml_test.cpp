// What NVML tells, by a library of our own.

#include "engines/nvml.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/text.hpp"
#include "engines/gpu_engine.hpp"
#include "fake_cuda/fake_driver.hpp"
#include "fake_cuda/fake_nvml.hpp"
#include "unit/helpers.hpp"

namespace carveout::probe {
namespace {

constexpr const char* kBus = "0000:01:00.0";

// A copy, with a state of its own.
class ProbeNvml : public testing::Test {
 protected:
  explicit ProbeNvml(const std::string& which = "fake_nvml")
      : library_(directory_.path("libnvidia-ml.so.1")) {
    std::filesystem::copy_file(cat(CARVEOUT_FAKE_CUDA "/", which, "/libnvidia-ml.so.1"), library_);
    handle_ = ::dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle_ == nullptr) throw std::runtime_error(::dlerror());
  }
  void TearDown() override { EXPECT_EQ(live(), 0); }

  void set(const char* knob, long value) {
    reinterpret_cast<decltype(&fake_nvml_set)>(::dlsym(handle_, "fake_nvml_set"))(knob, value);
  }
  int live() {
    return reinterpret_cast<decltype(&fake_nvml_live)>(::dlsym(handle_, "fake_nvml_live"))();
  }
  static Moment moment_of(const Nvml& nvml) {
    Moment moment;
    nvml.note(moment);
    return moment;
  }
  static void expect_nothing(const Nvml& nvml) {
    const Moment moment = moment_of(nvml);
    EXPECT_FALSE(moment.sm_mhz || moment.memory_mhz || moment.celsius || moment.other_processes);
    EXPECT_EQ(nvml.driver_version(), "");
  }

  test::TemporaryDirectory directory_;
  std::string library_;
  void* handle_ = nullptr;
};

TEST_F(ProbeNvml, TellsWhatHolds) {
  set("others", 3);
  const Nvml nvml(kBus, library_);
  EXPECT_EQ(nvml.driver_version(), "580.00.fake");
  const Moment moment = moment_of(nvml);
  EXPECT_EQ(moment.sm_mhz, 1500U);
  EXPECT_EQ(moment.memory_mhz, 8000U);
  EXPECT_EQ(moment.celsius, 41U);
  EXPECT_EQ(moment.other_processes, 3U);
}

TEST_F(ProbeNvml, CountsAnyNumberOfProcesses) {
  const Nvml nvml(kBus, library_);
  for (const unsigned others : {0U, 63U, 64U, 1000U}) {
    set("others", others);
    EXPECT_EQ(moment_of(nvml).other_processes, others);
  }
}

// A desktop's draw, and some do both.
TEST_F(ProbeNvml, CountsWhatDrawsAndWhatDoesBothOnce) {
  const Nvml nvml(kBus, library_);
  set("drawing", 2);
  EXPECT_EQ(moment_of(nvml).other_processes, 2U);
  set("others", 3);
  EXPECT_EQ(moment_of(nvml).other_processes, 5U);
  set("both", 1);
  EXPECT_EQ(moment_of(nvml).other_processes, 4U);
  set("drawing", 1000);
  EXPECT_EQ(moment_of(nvml).other_processes, 1002U);
}

TEST_F(ProbeNvml, CountsWhatComputesWhereItDoesNotTellWhatDraws) {
  set("others", 3);
  set("drawing", -1);
  EXPECT_EQ(moment_of(Nvml(kBus, library_)).other_processes, 3U);
}

class ProbeOldNvml : public ProbeNvml {
 protected:
  ProbeOldNvml() : ProbeNvml("fake_nvml_old") {}
};

TEST_F(ProbeOldNvml, CountsWhatComputes) {
  set("others", 3);
  set("drawing", 2);
  EXPECT_EQ(moment_of(Nvml(kBus, library_)).other_processes, 3U);
}

// As on GB10, whose memory is the processor's, too.
TEST_F(ProbeNvml, LeavesOutWhatItDoesNotKnow) {
  set("memory-clock", 0);
  const Nvml nvml(kBus, library_);
  const Moment moment = moment_of(nvml);
  EXPECT_EQ(moment.sm_mhz, 1500U);
  EXPECT_EQ(moment.memory_mhz, std::nullopt);
}

TEST_F(ProbeNvml, TellsNothingWhereThereIsNone) {
  expect_nothing(Nvml(kBus, "/nonexistent/libnvidia-ml.so.1"));
  expect_nothing(Nvml("0000:02:00.0", library_));
  set("start", 0);
  expect_nothing(Nvml(kBus, library_));
}

TEST_F(ProbeNvml, IsAskedByTheEngine) {
  const test::FakeDriver fake;
  set("celsius", 63);
  const auto engine = open_gpu_engine(0, fake.library(), library_);
  ASSERT_TRUE(engine);
  Moment moment;
  (*engine)->note(moment);
  EXPECT_EQ(moment.celsius, 63U);
  Machine machine;
  (*engine)->describe(machine);
  EXPECT_EQ(machine.driver, "580.00.fake");
}

}  // namespace
}  // namespace carveout::probe
