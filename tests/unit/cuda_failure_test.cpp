// Every call of every way of mapping failed in turn: nothing stays reserved, mapped, imported or
// open, and where the undoing fails, too, nothing but what could not be undone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "unit/cuda_failure_fixture.hpp"

namespace carveout::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAreArray;

struct Answer {
  cuda::CUresult result;
  Code code;
};
constexpr Answer kAnswers[] = {{cuda::kNotSupported, Code::kSystem},
                               {cuda::kOutOfMemory, Code::kExhausted},
                               {cuda::kInvalidDevice, Code::kNotFound}};

// Of the two ways of registering, the first one's error is given. That the fake takes no dma-buf by
// it is what this one says.
Answer said_of(const Way& way, const NthCall& call, const Answer& answer) {
  const bool second = call.entry == "cuMemHostRegister" && way.kind == DescriptorKind::kDmaBuf;
  return second ? Answer{cuda::kInvalidValue, Code::kSystem} : answer;
}

// What it works without: leaving the context (see below), the first of the two ways of registering
// where the second works, and the caller's context where it may be another device's.
bool can_do_without(const Way& way, const NthCall& call) {
  if (call.entry == "cuMemHostRegister")
    return way.kind == DescriptorKind::kDmaBuf && call.nth == 1;
  if (call.entry == "cuDeviceGet") return way.current != Current::kNothing && call.nth == 1;
  return call.entry == "cuCtxPopCurrent";
}

TEST_P(CudaFailure, OfAnyCallLeavesNothing) {
  const auto calls = calls_of_mapping();
  EXPECT_EQ(calls.empty(), GetParam().strategy == MapStrategy::kHost);
  const Footprint before = footprint(fake_);
  for (const NthCall& call : calls) {
    for (const Answer& answer : kAnswers) {
      fake_.fail(call.entry, call.nth, answer.result, call.entry == "cuCtxPopCurrent");
      const auto mapping = map();
      EXPECT_TRUE(fake_.has_failed(call.entry)) << call;
      ASSERT_EQ(static_cast<bool>(mapping), can_do_without(GetParam(), call)) << call;
      EXPECT_EQ(fake_.current(), current_) << call;
      if (mapping) continue;
      const Answer said = said_of(GetParam(), call, answer);
      EXPECT_THAT(mapping.error().describe(), HasSubstr(cat(call.entry, " failed: ")));
      EXPECT_THAT(mapping.error().describe(), HasSubstr(cat("(CUresult ", answer.result, ")")));
      EXPECT_EQ(mapping.error().code, said.code) << call;
      EXPECT_EQ(mapping.error().cuda_result, said.result) << call;
      EXPECT_EQ(mapping.error().number, 0);
      EXPECT_EQ(footprint(fake_), before) << call;
    }
    fake_.fail(call.entry, 0);
  }
  EXPECT_EQ(footprint(fake_), before);
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_P(CudaFailure, OfBothLeavesNothingButWhatCouldNotBeUndone) {
  std::size_t undone = 0;
  for (const NthCall& call : calls_of_mapping()) {
    for (const NthCall& undoing : calls_of_rollback(call)) {
      if (call.entry == undoing.entry) continue;  // the second way of registering
      ASSERT_TRUE(gives_back(undoing.entry)) << undoing;
      ++undone;
      for (const bool performed : {true, false}) {
        const Footprint before = footprint(fake_);
        fake_.fail(call.entry, call.nth);
        fake_.fail(undoing.entry, undoing.nth, cuda::kOperatingSystem, performed);
        const auto mapping = map();
        ASSERT_FALSE(mapping) << call;
        EXPECT_TRUE(fake_.has_failed(call.entry)) << call;
        EXPECT_TRUE(fake_.has_failed(undoing.entry)) << undoing;
        EXPECT_THAT(mapping.error().describe(), HasSubstr(cat(call.entry, " failed: ")));
        EXPECT_THAT(changes(before, footprint(fake_)),
                    UnorderedElementsAreArray(stays(undoing.entry, performed, false)))
            << call << ", then " << undoing << (performed ? " in word" : " in deed");
        fake_.fail(call.entry, 0);
        start_anew(undoing.entry, performed, before);
      }
    }
  }
  EXPECT_EQ(undone == 0, GetParam().strategy == MapStrategy::kHost);
  EXPECT_EQ(fake_.broken_rules(), "");
}

// The memory is there and can be used; the thread is left in the context that it was mapped in only
// where that is still so.
TEST_P(CudaFailure, OfLeavingTheContextLeavesTheMemoryAlone) {
  if (GetParam().strategy == MapStrategy::kHost) GTEST_SKIP() << "waived: needs no context";
  for (const bool performed : {true, false}) {
    const Footprint before = footprint(fake_);
    fake_.fail("cuCtxPopCurrent", 1, cuda::kOperatingSystem, performed);
    auto mapping = map();
    ASSERT_TRUE(mapping) << mapping.error().describe();
    EXPECT_TRUE(fake_.has_failed("cuCtxPopCurrent"));
    at_device(mapping->device_pointer())[0] = 7;
    EXPECT_EQ(View(files_[0].get(), mib(2))[0], 7);
    EXPECT_EQ(fake_.current() == current_, performed || GetParam().current == Current::kItsOwn);
    EXPECT_TRUE(mapping->unmap());
    const std::vector<std::string> left =
        performed ? std::vector<std::string>() : std::vector<std::string>{"+1 with the driver"};
    EXPECT_EQ(changes(before, footprint(fake_)), left);
    start_anew("cuCtxPopCurrent", performed, before);
  }
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_P(CudaFailure, IsALackOfOneCall) {
  auto calls = calls_of_mapping();
  const auto undoing = calls_of_unmapping();
  calls.insert(calls.end(), undoing.begin(), undoing.end());
  for (const auto& [entry, nth] : calls) {
    // What everybody needs is looked up when the driver is loaded: CudaDriver.
    if (nth > 1 || entry.starts_with("cuCtx") || entry.starts_with("cuDevice")) continue;
    FakeDriver fake;
    fake.set("dma-buf", GetParam().takes_dma_buf);
    ASSERT_TRUE(cuda::Driver::load(fake.library()));
    const Footprint before = footprint(fake);
    fake.hide(entry);
    const auto mapping = cuda::map_range(range_, fake.settings(GetParam().strategy));
    ASSERT_FALSE(mapping) << entry;
    EXPECT_EQ(mapping.error().code, Code::kNotFound);
    EXPECT_THAT(mapping.error().describe(), HasSubstr("this driver has no " + entry));
    EXPECT_EQ(footprint(fake), before);
    const auto called = fake.take_record();
    EXPECT_TRUE(std::all_of(called.begin(), called.end(), [](const std::string& call) {
      return call == "cuInit" || call.starts_with("cuDriver") || call.starts_with("cuCtx") ||
             call.starts_with("cuDevice");
    })) << "nothing is done before all that undoing needs is found";
  }
}

// --- what was mapped ---

constexpr cuda::CUresult kResults[] = {cuda::kOperatingSystem, cuda::kOutOfMemory,
                                       cuda::kInvalidDevice};

void expect_nothing_of(cuda::Mapping& mapping, FakeDriver& fake) {
  EXPECT_EQ(mapping.device_pointer(), 0U);
  EXPECT_EQ(mapping.host_pointer(), nullptr);
  (void)fake.take_record();
  EXPECT_TRUE(mapping.unmap());
  EXPECT_THAT(fake.take_record(), IsEmpty()) << "nothing is tried twice";
}

void expect_said(const Result<void>& unmapped, const NthCall& call, cuda::CUresult result) {
  ASSERT_FALSE(unmapped) << call;
  EXPECT_THAT(unmapped.error().describe(), HasSubstr(cat(call.entry, " failed: ")));
  EXPECT_EQ(unmapped.error().code, Code::kSystem) << call << ": " << result;
  EXPECT_EQ(unmapped.error().cuda_result, result) << call;
  EXPECT_EQ(unmapped.error().number, 0) << call;
}

TEST_P(CudaFailure, OfAnyUndoingIsSaidAndLeavesNothingElse) {
  const auto calls = calls_of_unmapping();
  EXPECT_EQ(calls.empty(), GetParam().strategy == MapStrategy::kHost);
  for (const NthCall& call : calls) {
    if (call.entry == "cuCtxPushCurrent") continue;  // see below
    ASSERT_TRUE(gives_back(call.entry)) << call;
    for (const bool performed : {true, false}) {
      for (const cuda::CUresult result : kResults) {
        const Footprint before = footprint(fake_);
        auto mapping = map();
        ASSERT_TRUE(mapping) << mapping.error().describe();
        (void)fake_.take_record();
        fake_.fail(call.entry, call.nth, result, performed);
        expect_said(mapping->unmap(), call, result);
        EXPECT_EQ(fake_.take_record().size(), calls.size()) << call << ": all the rest is done";
        EXPECT_TRUE(fake_.has_failed(call.entry)) << call;
        EXPECT_THAT(changes(before, footprint(fake_)),
                    UnorderedElementsAreArray(stays(call.entry, performed, true)))
            << call << (performed ? " in word" : " in deed");
        expect_nothing_of(*mapping, fake_);
        start_anew(call.entry, performed, before);
      }
    }
  }
  EXPECT_EQ(fake_.broken_rules(), "");
}

// By the destructor, and by the assignment of another mapping.
TEST_P(CudaFailure, OfAnyUndoingUnsaidLeavesNothingElse) {
  for (const NthCall& call : calls_of_unmapping()) {
    if (call.entry == "cuCtxPushCurrent") continue;
    for (const bool by_assignment : {false, true}) {
      const Footprint before = footprint(fake_);
      {
        auto mapping = map();
        ASSERT_TRUE(mapping);
        auto other = map();
        ASSERT_TRUE(other && other->unmap());
        fake_.fail(call.entry, call.nth);
        if (by_assignment) *mapping = *std::move(other);
      }
      EXPECT_TRUE(fake_.has_failed(call.entry)) << call;
      EXPECT_THAT(changes(before, footprint(fake_)),
                  UnorderedElementsAreArray(stays(call.entry, false, true)))
          << call;
      start_anew(call.entry, false, before);
    }
  }
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_P(CudaFailure, OfEnteringTheContextOnceIsNoneOfUnmapping) {
  if (GetParam().strategy == MapStrategy::kHost) GTEST_SKIP() << "waived: needs no context";
  const Footprint before = footprint(fake_);
  auto mapping = map();
  ASSERT_TRUE(mapping);
  fake_.fail("cuCtxPushCurrent");
  EXPECT_TRUE(mapping->unmap());
  EXPECT_TRUE(fake_.has_failed("cuCtxPushCurrent"));
  EXPECT_EQ(footprint(fake_), before);
  EXPECT_EQ(fake_.broken_rules(), "");
}

// What needs no context is undone all the same; what needs one is left to the driver.
TEST_P(CudaFailure, OfEnteringTheContextTwiceIsSaid) {
  const Way& way = GetParam();
  if (way.strategy == MapStrategy::kHost) GTEST_SKIP() << "waived: needs no context";
  const bool in_context = way.current == Current::kItsOwn || way.strategy == MapStrategy::kVmm;
  if (way.current == Current::kAnotherDevice && !in_context) {
    GTEST_SKIP() << "waived: what CUDA makes of the other device's context is not known";
  }
  for (const cuda::CUresult result : kResults) {
    const Footprint before = footprint(fake_);
    auto mapping = map();
    ASSERT_TRUE(mapping);
    fake_.fail("cuCtxPushCurrent", 1, result, false, 2);
    expect_said(mapping->unmap(), {"cuCtxPushCurrent"}, result);
    EXPECT_TRUE(fake_.has_failed("cuCtxPushCurrent"));
    std::vector<std::string> left;
    if (!in_context && way.strategy == MapStrategy::kRegister) {
      left = stays("cuMemHostUnregister", false, true);
    } else if (!in_context) {
      left = stays("cuDestroyExternalMemory", false, true);
      left[0] = "+2 with the driver";
      left.push_back(stays("cuMemFree", false, true)[1]);
    }
    EXPECT_THAT(changes(before, footprint(fake_)), UnorderedElementsAreArray(left));
    expect_nothing_of(*mapping, fake_);
    fake_.fail("cuCtxPushCurrent", 0);
    const bool kept = !in_context;
    start_anew(!kept                                    ? ""
               : way.strategy == MapStrategy::kRegister ? "cuMemHostUnregister"
                                                        : "cuDestroyExternalMemory",
               false, before);
  }
  EXPECT_EQ(fake_.broken_rules(), "");
}

INSTANTIATE_TEST_SUITE_P(All, CudaFailure, testing::ValuesIn(ways_of_mapping()),
                         [](const auto& way) {
                           const Current current = way.param.current;
                           return cat(way.param.name, current == Current::kNothing ? ""
                                                      : current == Current::kItsOwn
                                                          ? "InTheCallersContext"
                                                          : "BesideAnotherDevicesContext");
                         });

}  // namespace
}  // namespace carveout::test
