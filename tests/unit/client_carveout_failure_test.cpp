// The opener where something fails: nothing stays, and whatever happens, it is unmapped before it
// is given back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "client/carveout.hpp"
#include "fake_cuda/fake_driver.hpp"
#include "unit/client_lender_fixture.hpp"
#include "unit/given_up.hpp"

namespace carveout::client {
namespace {

constexpr Bytes kSize = mib(4);

using test::changes;
using test::footprint;
using test::Footprint;
using test::NthCall;
using test::refusal;
using test::required;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAreArray;

class ClientCarveoutFailure : public testing::Test {
 protected:
  void SetUp() override {
    test::given_up_driver = &fake_;
    test::given_up_size = kSize.count();
    opening_.machine.cuda_library = fake_.library();
    opening_.machine.default_key_file = directory_.file("key", "swordfish\n");
    ASSERT_TRUE(cuda::Driver::load(fake_.library()));
  }
  void TearDown() override { EXPECT_EQ(fake_.broken_rules(), ""); }

  [[nodiscard]] Result<Carveout> open(SourceKind source, MapStrategy map) const {
    Settings settings;
    settings.source = source;
    settings.map = map;
    settings.size = source == SourceKind::kDaemon ? kSize : kSliceBytes;
    settings.socket = socket_;
    return Carveout::open(settings, opening_);
  }
  [[nodiscard]] std::vector<NthCall> calls_of_opening();
  void fail(const NthCall& call, bool performed);
  // Whether it opens, and what changes() says of it once it is closed.
  void expect_of_opening(bool opens, const std::vector<std::string>& stays, const char* how);

  test::TemporaryDirectory directory_;
  test::FakeDriver fake_;
  std::string socket_ = directory_.path("lend.sock");
  Opening opening_;
};

// --- the GPU's own memory ---

// What stays with the driver when it does not do that.
std::vector<std::string> stays(const std::string& entry) {
  const std::string name = " /memfd:fake-cuda (deleted)";
  const std::string bytes = cat("+", kSliceBytes.count(), " bytes of");
  if (entry == "cuMemUnmap") return {"+2 with the driver", bytes + name};
  if (entry == "cuMemRelease") return {"+1 with the driver", "+1 descriptors of" + name};
#ifndef CARVEOUT_SANITIZED  // see footprint()
  if (entry == "cuMemAddressFree") return {"+1 with the driver", bytes + " ---p"};
#endif
  return {"+1 with the driver"};
}

// What does not matter: a name for people.
bool can_do_without(const std::string& entry) {
  return entry == "cuDeviceGetName" || test::gives_back(entry);
}

std::vector<NthCall> ClientCarveoutFailure::calls_of_opening() {
  (void)fake_.take_record();
  const auto carveout = open(SourceKind::kCuda, MapStrategy::kVmm);
  EXPECT_TRUE(carveout) << refusal(carveout);
  return test::numbered(fake_.take_record());
}

void ClientCarveoutFailure::fail(const NthCall& call, bool performed) {
  // To wait for the device and be told of a failure is to have waited.
  fake_.fail(call.entry, call.nth, cuda::kOperatingSystem,
             performed || call.entry == "cuCtxSynchronize");
}

void ClientCarveoutFailure::expect_of_opening(bool opens, const std::vector<std::string>& stays,
                                              const char* how) {
  const Footprint before = footprint(fake_);
  {
    const auto carveout = open(SourceKind::kCuda, MapStrategy::kVmm);
    ASSERT_EQ(static_cast<bool>(carveout), opens) << refusal(carveout);
  }
  EXPECT_THAT(changes(before, footprint(fake_)), UnorderedElementsAreArray(stays)) << how;
}

// Whatever fails, and then whatever of the undoing: in deed, or in word, as a call does that
// reports an earlier failure.
TEST_F(ClientCarveoutFailure, OfAGpuLeavesNothingButWhatCouldNotBeUndone) {
  ASSERT_TRUE(open(SourceKind::kCuda, MapStrategy::kVmm));
  for (const NthCall& call : calls_of_opening()) {
    SCOPED_TRACE(testing::Message() << call);
    const bool opens = can_do_without(call.entry);
    fail(call, test::gives_back(call.entry));
    (void)fake_.take_record();
    expect_of_opening(opens, {}, "alone");
    EXPECT_TRUE(fake_.has_failed(call.entry));
    const auto calls = test::numbered(fake_.take_record());
    fake_.fail(call.entry, 0);
    for (const NthCall& undoing : opens ? std::vector<NthCall>() : test::after(call, calls)) {
      SCOPED_TRACE(testing::Message() << undoing);
      ASSERT_TRUE(test::gives_back(undoing.entry));
      for (const bool performed : {true, false}) {
        fail(call, false);
        fail(undoing, performed);
        expect_of_opening(false, performed ? std::vector<std::string>() : stays(undoing.entry),
                          performed ? "in word" : "in deed");
        EXPECT_TRUE(fake_.has_failed(call.entry) && fake_.has_failed(undoing.entry));
        fake_.fail(call.entry, 0);
        fake_.fail(undoing.entry, 0);
        cuda::CUcontext popped = nullptr;
        while (fake_.current() != nullptr)
          ASSERT_EQ(fake_.call(cuda::kCtxPopCurrent)(&popped), cuda::kSuccess);
        fake_.take_everything_back();
      }
    }
  }
}

TEST_F(ClientCarveoutFailure, IsSaidOfWhatCouldNotBeUndone) {
  Carveout carveout = required(open(SourceKind::kCuda, MapStrategy::kVmm));
  fake_.fail("cuMemUnmap");
  EXPECT_THAT(refusal(carveout.close()), HasSubstr("cuMemUnmap failed"));
  EXPECT_EQ(carveout.mapping().device_pointer(), 0U);
}

// --- lent memory ---

struct Lent {
  DescriptorKind kind;
  MapStrategy map;
};
constexpr Lent kAllLent[] = {{DescriptorKind::kNvidiaFile, MapStrategy::kVmm},
                             {DescriptorKind::kNvidiaFile, MapStrategy::kExternal},
                             {DescriptorKind::kMemfd, MapStrategy::kRegister},
                             {DescriptorKind::kMemfd, MapStrategy::kHost}};

// What is the processor's is unmapped by us, the rest by the driver.
std::vector<std::string> in_order(MapStrategy map) {
  const std::string given_back = "given back with 0 at the driver";
  if (map == MapStrategy::kVmm || map == MapStrategy::kExternal) return {given_back};
  return {"unmapped", given_back};
}

TEST_F(ClientCarveoutFailure, IsUnmappedBeforeItIsGivenBack) {
  for (const auto& [kind, map] : kAllLent) {
    const UniqueFd memory = test::make_file(kind, kSize);
    const test::ScriptedLender lender(socket_, {test::Answer{{{kGrant, {memory.get()}}}}});
    for (const bool by_close : {true, false}) {
      std::vector<std::string> seen;
      {
        Carveout carveout = required(open(SourceKind::kDaemon, map));
        EXPECT_EQ(carveout.kind(), kind);
        EXPECT_EQ(fake_.live() == 0, map == MapStrategy::kHost);
        test::given_up = &seen;
        if (by_close) {
          EXPECT_TRUE(carveout.close());
        }
      }
      test::given_up = nullptr;
      EXPECT_THAT(seen, ElementsAreArray(in_order(map))) << name_of(map);
    }
    ::unlink(socket_.c_str());
  }
}

// Where unmapping fails, it is given back all the same, and after that.
TEST_F(ClientCarveoutFailure, IsGivenBackAlthoughItCouldNotBeUnmapped) {
  const UniqueFd memory = test::make_file(DescriptorKind::kNvidiaFile, kSize);
  const test::ScriptedLender lender(socket_, {test::Answer{{{kGrant, {memory.get()}}}}});
  std::vector<std::string> seen;
  {
    Carveout carveout = required(open(SourceKind::kDaemon, MapStrategy::kVmm));
    fake_.fail("cuMemUnmap");
    test::given_up = &seen;
    EXPECT_THAT(refusal(carveout.close()), HasSubstr("cuMemUnmap failed"));
    test::given_up = nullptr;
    EXPECT_EQ(carveout.watch(), -1);
  }
  EXPECT_THAT(seen, ElementsAre("given back with 2 at the driver"));
}

// By the log, which is the caller's: the nth line throws.
TEST_F(ClientCarveoutFailure, ByAnExceptionIsUndoneInOrder) {
  struct Case {
    DescriptorKind kind;
    MapStrategy mapped;
    const char* fails;
  };
  for (const auto& [kind, mapped, fails] :
       {Case{DescriptorKind::kNvidiaFile, MapStrategy::kExternal, "cuMemMap"},
        Case{DescriptorKind::kMemfd, MapStrategy::kHost, "cuMemHostGetDevicePointer"}}) {
    const UniqueFd memory = test::make_file(kind, kSize);
    const test::ScriptedLender lender(socket_, {test::Answer{{{kGrant, {memory.get()}}}}});
    for (const int nth : {1, 2}) {
      std::vector<std::string> seen, lines;
      opening_.log = [&](LogLevel, const std::string& line) {
        lines.push_back(line);
        if (static_cast<int>(lines.size()) < nth) return;
        test::given_up = &seen;
        throw std::runtime_error("the log");
      };
      fake_.fail(fails);
      const Footprint before = footprint(fake_);
      EXPECT_THROW((void)open(SourceKind::kDaemon, MapStrategy::kAuto), std::runtime_error);
      test::given_up = nullptr;
      std::vector<std::string> expected = in_order(mapped);
      if (nth == 1) expected = {"memory closed", "given back with 0 at the driver"};
      EXPECT_EQ(seen, expected) << lines.back();
      EXPECT_THAT(lines.back(),
                  HasSubstr(nth == 1 ? "lent as" : cat("mapped by ", name_of(mapped))));
      EXPECT_THAT(changes(before, footprint(fake_)), IsEmpty());
    }
    ::unlink(socket_.c_str());
  }
}

}  // namespace
}  // namespace carveout::client
