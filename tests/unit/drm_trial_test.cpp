// The trial of a card at the start: what it refuses, and whose memory it finds.

#include <drm.h>
#include <drm_mode.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/dma-buf.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "source/available_memory.hpp"
#include "source/drm.hpp"
#include "unit/drm_fake.hpp"
#include "unit/helpers.hpp"
#include "unit/refusal.hpp"

namespace carveout {
namespace {

using test::refusal;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class DrmTrialTest : public testing::Test {
 protected:
  void TearDown() override {
    source_.reset();
    EXPECT_EQ(fake_.handles(), 0U);
    EXPECT_EQ(fake_.buffers(), 0U);
    EXPECT_THAT(fake_.complaints(), IsEmpty());
    EXPECT_EQ(test::open_descriptors(), descriptors_);
  }
  [[nodiscard]] DrmSettings settings(const std::string& card = "card0") const {
    return {.card = card == "auto" ? card : fake_.path(card),
            .calls = fake_.calls(),
            .meminfo = fake_.meminfo()};
  }
  void open(const DrmSettings& settings) { source_ = test::required(open_drm_source(settings)); }
  void open_card(test::FakeCard is) {
    fake_.add("card0", std::move(is));
    open(settings());
  }
  std::string warning() { return source_->take_warning().value_or(""); }

  test::DrmFake fake_;
  std::size_t descriptors_ = test::open_descriptors();
  std::unique_ptr<Source> source_;
};

TEST_F(DrmTrialTest, TakesEnoughToTellWhoseMemoryItIs) {
  open_card({});
  EXPECT_THAT(fake_.tried(), ElementsAre(mib(64)));
  EXPECT_EQ(fake_.buffers(), 0U);
}

TEST_F(DrmTrialTest, TakesLessOfACardThatHasLess) {
  open_card({.capacity = mib(40)});
  EXPECT_THAT(fake_.tried(), ElementsAre(mib(64), mib(32)));
}

TEST_F(DrmTrialTest, TakesASliceOfACardThatHasLittle) {
  open_card({.capacity = mib(15)});
  EXPECT_THAT(fake_.tried(), ElementsAre(mib(64), mib(32), mib(16), mib(2)));
}

TEST_F(DrmTrialTest, OfACardThatHasNothingLeftIsNoError) {
  open_card({.capacity = Bytes(0)});
  EXPECT_THAT(fake_.tried(), ElementsAre(mib(64), mib(32), mib(16), mib(2)));
  EXPECT_EQ(warning(), "");
  EXPECT_FALSE(source_->allocate(kSliceBytes));
}

TEST_F(DrmTrialTest, OfTheOnlyCardIsNoErrorEither) {
  fake_.add("card0", {.driver = "nvidia-drm", .capacity = Bytes(0)});
  open(settings("auto"));
  EXPECT_EQ(warning(), "");
}

TEST_F(DrmTrialTest, TakesASliceWhenTheHostHasLittle) {
  fake_.host_has(mib(62));
  open_card({});
  EXPECT_THAT(fake_.tried(), ElementsAre(mib(2)));
}

TEST_F(DrmTrialTest, TakesASliceWhenTheHostDoesNotSay) {
  fake_.add("card0");
  DrmSettings blind = settings();
  blind.meminfo = "/nowhere/meminfo";
  open(blind);
  EXPECT_THAT(fake_.tried(), ElementsAre(mib(2)));
  EXPECT_EQ(warning(), "");
}

struct Broken {
  unsigned long request;
  int number;
  const char* says;
};

TEST_F(DrmTrialTest, RefusesACardThatCannot) {
  fake_.add("card0", {.driver = "nvidia-drm", .capacity = mib(2), .nvkms = true});
  DrmSettings nvidia = settings();
  nvidia.lend_as = LendAs::kNvidia;
  for (const Broken& broken :
       {Broken{DRM_IOCTL_MODE_CREATE_DUMB, ENOSYS, "modeset=1 fbdev=0"},
        Broken{DRM_IOCTL_MODE_CREATE_DUMB, EACCES, "it is not allowed"},
        Broken{DRM_IOCTL_MODE_CREATE_DUMB, EIO, "gives no dumb buffer of 64 MiB"},
        Broken{DRM_IOCTL_PRIME_HANDLE_TO_FD, EOPNOTSUPP, "does not export a buffer as a dma-buf"},
        Broken{DMA_BUF_IOCTL_SYNC, ENOTTY, "cannot be prepared for the processor"},
        Broken{DRM_IOCTL_PRIME_FD_TO_HANDLE, EINVAL, "does not take its own dma-buf back"},
        Broken{test::kNvkmsExportRequest, EINVAL, "--lend-as dma-buf lends without"}}) {
    fake_.refuse(broken.request, broken.number, 1);
    const auto refused = open_drm_source(nvidia);
    ASSERT_FALSE(refused) << broken.says;
    EXPECT_EQ(refused.error().code, Code::kSystem);
    EXPECT_EQ(refused.error().number, broken.number);
    EXPECT_THAT(refusal(refused), HasSubstr(broken.says));
    EXPECT_EQ(fake_.buffers(), 0U);
  }
  EXPECT_TRUE(open_drm_source(nvidia));
}

TEST_F(DrmTrialTest, RefusesACardWhoseRowsDoNotFit) {
  fake_.add("card0", {.pitch_alignment = 48'000});
  const auto refused = open_drm_source(settings());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid);
}

// Which moves the host's available memory by less than that moves by itself.
TEST_F(DrmTrialTest, OfOneSliceTellsNothing) {
  open_card({.capacity = mib(15), .memory = test::Memory::kTakenAtOnce});
  EXPECT_FALSE(source_->describe().ordinary_memory);
  EXPECT_EQ(warning(), "");
}

TEST_F(DrmTrialTest, FindsAReservation) {
  open_card({.driver = "nvidia-drm"});
  EXPECT_FALSE(source_->describe().ordinary_memory);
  EXPECT_EQ(warning(), "");
}

class DrmOrdinaryTest : public DrmTrialTest, public testing::WithParamInterface<test::Memory> {};

TEST_P(DrmOrdinaryTest, MemoryIsFoundAndWarnedOf) {
  open_card({.driver = "vkms", .memory = GetParam()});
  const Description is = source_->describe();
  EXPECT_TRUE(is.ordinary_memory);
  EXPECT_THAT(is.detail, HasSubstr("which are ordinary memory, not a reservation"));
  EXPECT_THAT(warning(),
              AllOf(HasSubstr("192 MiB of dumb buffers moved the host's available memory by "),
                    HasSubstr(fake_.path("card0") + " (vkms)"),
                    HasSubstr("gives ordinary memory, not a display reservation"),
                    HasSubstr("Lending it gains nothing")));
  EXPECT_EQ(warning(), "");
}

TEST_P(DrmOrdinaryTest, MemoryOf16MiBIsEnough) {
  open_card({.capacity = mib(16), .memory = GetParam()});
  EXPECT_TRUE(source_->describe().ordinary_memory);
  EXPECT_THAT(warning(), HasSubstr("16 MiB of dumb buffers"));
}

TEST_P(DrmOrdinaryTest, MemoryIsNotAskedBeyondWhatTheHostCanSpare) {
  open_card({.memory = GetParam()});
  fake_.host_has(AvailableMemory::kMargin + mib(30));
  const std::size_t before = fake_.tried().size();
  const auto refused = source_->allocate(mib(32));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_THAT(refusal(refused), AllOf(HasSubstr("allocating 32 MiB"),
                                      HasSubstr("the host has only 30 MiB to spare")));
  EXPECT_EQ(fake_.tried().size(), before);
  EXPECT_TRUE(source_->allocate(mib(30)));
}

INSTANTIATE_TEST_SUITE_P(Of, DrmOrdinaryTest,
                         testing::Values(test::Memory::kTakenAtOnce,
                                         test::Memory::kTakenWhenTouched),
                         [](const auto& one) {
                           return one.param == test::Memory::kTakenAtOnce ? "AnEagerDriver"
                                                                          : "ALazyDriver";
                         });

TEST_F(DrmTrialTest, OfAReservationAsksItForMoreThanTheHostHas) {
  open_card({.driver = "nvidia-drm"});
  fake_.host_has(mib(10));
  EXPECT_TRUE(source_->allocate(mib(32)));
}

TEST_F(DrmTrialTest, WarnsOfCardsThatWerePassedOverAsWell) {
  fake_.add("card0", {.driver = ""});
  fake_.add("card1", {.driver = "vkms", .memory = test::Memory::kTakenAtOnce});
  fake_.add("card2", {.driver = "ast"});
  open(settings("auto"));
  EXPECT_THAT(warning(), AllOf(StartsWith("drm: passed over: card " + fake_.path("card0") +
                                          ": is not a DRM device; card " + fake_.path("card2") +
                                          " (ast): an earlier one does. drm: 192 MiB of")));
  EXPECT_EQ(warning(), "");
}

TEST_F(DrmTrialTest, RefusesWhatAutoCannotChoose) {
  EXPECT_THAT(refusal(open_drm_source(settings("auto"))), HasSubstr("there is no card"));
  EXPECT_THAT(refusal(open_drm_source(settings("card0"))), HasSubstr("no such card"));
}

// A meminfo that says something else each time it is read: lines of a terminal, each with an end of
// file behind it.
class Readings {
 public:
  Readings() : terminal_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    if (!terminal_ || ::grantpt(terminal_.get()) != 0 || ::unlockpt(terminal_.get()) != 0) return;
    std::array<char, 64> name{};
    if (::ptsname_r(terminal_.get(), name.data(), name.size()) != 0) return;
    kept_ = UniqueFd(::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (kept_) path_ = name.data();
  }
  // Empty where there are no terminals.
  [[nodiscard]] const std::string& path() const { return path_; }
  void then(Bytes available) {
    const std::string line = cat("MemAvailable: ", available.count() >> 10U, " kB\n\x04");
    ASSERT_EQ(::write(terminal_.get(), line.data(), line.size()),
              static_cast<ssize_t>(line.size()));
  }

 private:
  UniqueFd terminal_, kept_;
  std::string path_;
};

struct Moved {
  const char* by;
  std::array<int, 3> after;  // each buffer of 64 MiB: MiB, from what was available before
  bool ordinary;
};

std::ostream& operator<<(std::ostream& out, const Moved& moved) {
  return out << moved.by;
}

class DrmCompareTest : public DrmTrialTest, public testing::WithParamInterface<Moved> {
 protected:
  static Bytes beyond_8_gib(int mebibytes) {
    return Bytes(gib(8).count() + (static_cast<std::uint64_t>(std::int64_t{mebibytes}) << 20U));
  }
};

TEST_P(DrmCompareTest, TellsFromTheHostsAvailableMemory) {
  const auto& [by, after, ordinary] = GetParam();
  fake_.add("card0");
  {
    Readings readings;
    if (readings.path().empty()) GTEST_SKIP() << "there are no pseudo-terminals here";
    readings.then(beyond_8_gib(0));
    for (const int change : after)
      readings.then(beyond_8_gib(change));
    DrmSettings told = settings();
    told.meminfo = readings.path();
    open(told);
  }
  EXPECT_EQ(source_->describe().ordinary_memory, ordinary);
  EXPECT_EQ(warning().empty(), !ordinary);
}

INSTANTIATE_TEST_SUITE_P(
    By, DrmCompareTest,
    testing::Values(Moved{"Nothing", {0, 0, 0}, false},
                    Moved{"WhatAReservationDoes", {-1, -1, -2}, false},
                    Moved{"AllOfIt", {-64, -128, -192}, true},
                    // The kernel takes from lists that do not count.
                    Moved{"AllOfItButWhatWasFreedBefore", {-22, -86, -150}, true},
                    Moved{"Half", {-32, -64, -96}, true},
                    Moved{"LessThanHalf", {-32, -64, -95}, false},
                    Moved{"AlmostNothingAtFirst", {-7, -64, -128}, false},
                    // Beside a reservation:
                    Moved{"ANeighbourThatTakes", {-30, -30, -30}, false},
                    Moved{"ANeighbourThatTakesMore", {-30, -60, -90}, false},
                    Moved{"ANeighbourThatFrees", {500, 500, 500}, false},
                    // Beside ordinary memory:
                    Moved{"AllOfItAndANeighbourThatTakes", {-94, -158, -222}, true},
                    Moved{"AllOfItAndANeighbourThatFrees", {-34, -98, -162}, true}),
    [](const auto& one) { return std::string(one.param.by); });

}  // namespace
}  // namespace carveout
