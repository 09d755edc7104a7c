// The one opener: every source, mapped; what is refused leaves nothing.

#include "client/carveout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "fake_cuda/fake_driver.hpp"
#include "unit/client_lender_fixture.hpp"
#include "unit/drm_fake.hpp"
#include "unit/rows.hpp"

namespace carveout::client {
namespace {

using test::Answer;
using test::FakeDriver;
using test::refusal;
using test::required;
using test::Rows;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

struct Has {
  std::size_t descriptors, mappings;
  int live;
  bool operator==(const Has&) const = default;
};
void PrintTo(const Has& has, std::ostream* out) {
  *out << has.descriptors << " descriptors, " << has.mappings << " mappings, " << has.live
       << " with the driver";
}

class ClientCarveout : public testing::Test {
 protected:
  void SetUp() override {
    opening_.machine.memfd = {directory_.path("no-huge-pages"), host_has(gib(4))};
    opening_.machine.cuda_library = directory_.path("libcuda.so.1");  // none
    opening_.machine.default_key_file = directory_.file("key", "swordfish\n");
    opening_.log = [this](LogLevel, const std::string& line) { logged_.push_back(line); };
    ASSERT_TRUE(cuda::Driver::load(fake_.library()));
  }
  void with_gpu() { opening_.machine.cuda_library = fake_.library(); }

  [[nodiscard]] std::string host_has(Bytes available) const {
    return directory_.file("meminfo", cat("MemAvailable: ", available.count() >> 10U, " kB\n"));
  }
  [[nodiscard]] Has has() const {
    const test::Holdings now = test::holdings();
    return {now.descriptors.size(), now.mappings.size(), fake_.live()};
  }
  [[nodiscard]] Result<Carveout> open(SourceKind source,
                                      MapStrategy map = MapStrategy::kAuto) const {
    Settings settings;
    settings.source = source;
    settings.map = map;
    settings.size = mib(3);
    settings.socket = socket_;
    settings.card = card_;
    settings.heap = "system";
    return Carveout::open(settings, opening_);
  }
  [[nodiscard]] Result<std::optional<Carveout>> open_as(const Rows& rows) const {
    return Carveout::open_as_set(test::lookup_in(rows), opening_);
  }
  // Every byte is zero, and can be written.
  static void expect_usable(const volatile void* start, Bytes size) {
    auto* const bytes = static_cast<const volatile unsigned char*>(start);
    ASSERT_NE(bytes, nullptr);
    EXPECT_TRUE(std::all_of(bytes, bytes + size.count(), [](auto byte) { return byte == 0; }));
    const_cast<volatile unsigned char*>(bytes)[size.count() - 1] = 1;
  }

  test::TemporaryDirectory directory_;
  FakeDriver fake_;
  std::string socket_ = directory_.path("lend.sock");
  std::string card_ = "auto";
  UniqueFd memory_ = test::make_memory(mib(4).count());
  Opening opening_;
  std::vector<std::string> logged_;
};

TEST_F(ClientCarveout, IsOffUnlessItIsSwitchedOn) {
  const Has before = has();
  for (const Rows& rows : {Rows{}, Rows{{"CARVEOUT", "0"}, {"CARVEOUT_SOURCE", "bad"}}}) {
    const auto off = open_as(rows);
    ASSERT_TRUE(off) << refusal(off);
    EXPECT_FALSE(*off);
  }
  EXPECT_EQ(has(), before);
  EXPECT_THAT(logged_, IsEmpty()) << "silently";
}

TEST_F(ClientCarveout, OfMemfdsIsMappedForTheProcessor) {
  const Has before = has();
  {
    const Carveout carveout = required(open(SourceKind::kMemfd));
    EXPECT_EQ(carveout.size(), mib(4)) << "whole slices";
    EXPECT_EQ(carveout.mapping().strategy(), MapStrategy::kHost);
    EXPECT_EQ(carveout.mapping().device_pointer(), 0U);
    expect_usable(carveout.mapping().host_pointer(), mib(4));
    EXPECT_THAT(carveout.why_not(), AllOf(StartsWith("register: "), HasSubstr("libcuda.so.1")));
    EXPECT_EQ(carveout.source(), SourceKind::kMemfd);
    EXPECT_THAT(carveout.description(), HasSubstr("4 MiB of ordinary memory"));
    EXPECT_EQ(carveout.watch(), -1);
    EXPECT_FALSE(carveout.lender_gone());
    EXPECT_EQ(has(), (Has{before.descriptors, before.mappings + 1, 0})) << "no descriptor stays";
    EXPECT_THAT(logged_, ElementsAre(HasSubstr("no 2 MiB huge pages"), HasSubstr("4 MiB"),
                                     StartsWith("mapped by host, since others failed: register")));
  }
  EXPECT_EQ(has(), before);
}

TEST_F(ClientCarveout, OfMemfdsIsRegisteredWhereThereIsAGpu) {
  with_gpu();
  const Has before = has();
  {
    const Carveout carveout = required(open(SourceKind::kMemfd));
    EXPECT_EQ(carveout.mapping().strategy(), MapStrategy::kRegister);
    EXPECT_NE(carveout.mapping().device_pointer(), 0U);
    EXPECT_NE(carveout.mapping().host_pointer(), nullptr);
    EXPECT_EQ(carveout.why_not(), "");
  }
  EXPECT_EQ(has(), before);
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_F(ClientCarveout, IsOf1792MiBWhereNothingSaysOtherwiseOrIsRefused) {
  opening_.machine.memfd.meminfo = host_has(mib(1024));
  const Has before = has();
  const auto refused = open_as({{"CARVEOUT", "1"}, {"CARVEOUT_SOURCE", "memfd"}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_THAT(refusal(refused), HasSubstr("1792 MiB"));
  EXPECT_EQ(has(), before);
}

TEST_F(ClientCarveout, OfAGpuIsItsOwnMemory) {
  with_gpu();
  const Has before = has();
  {
    Carveout carveout = required(open(SourceKind::kCuda));
    EXPECT_EQ(carveout.mapping().strategy(), MapStrategy::kVmm);
    EXPECT_EQ(carveout.mapping().host_pointer(), nullptr);
    EXPECT_EQ(carveout.kind(), DescriptorKind::kNvidiaFile);
    expect_usable(test::at_device(carveout.mapping().device_pointer()), mib(4));
    EXPECT_TRUE(carveout.close());
    EXPECT_EQ(carveout.mapping().device_pointer(), 0U);
    EXPECT_EQ(has(), before);
    EXPECT_TRUE(carveout.close()) << "once more does nothing";
  }
  EXPECT_EQ(has(), before);
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_F(ClientCarveout, OfAGpuIsMappedWhereItLies) {
  with_gpu();
  fake_.set("devices", 2);
  const cuda::CUcontext other = fake_.make_context(1);
  ASSERT_EQ(fake_.call(cuda::kCtxPushCurrent)(other), cuda::kSuccess);
  const int pushes = fake_.calls("cuCtxPushCurrent");
  const int retained = fake_.calls("cuDevicePrimaryCtxRetain");
  {
    const Carveout carveout = required(open(SourceKind::kCuda));
    EXPECT_GT(fake_.calls("cuCtxPushCurrent"), pushes);
    EXPECT_EQ(fake_.calls("cuDevicePrimaryCtxRetain"), retained + 2)
        << "the source's and the mapping's are device 0's, not the current one";
    expect_usable(test::at_device(carveout.mapping().device_pointer()), mib(4));
    EXPECT_EQ(fake_.current(), other);
  }
  cuda::CUcontext popped = nullptr;
  ASSERT_EQ(fake_.call(cuda::kCtxPopCurrent)(&popped), cuda::kSuccess);
  EXPECT_EQ(popped, other);
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_F(ClientCarveout, OfACardIsADumbBuffer) {
  test::DrmFake cards;
  cards.add("card0");
  opening_.machine.drm.calls = cards.calls();
  opening_.machine.drm.meminfo = cards.meminfo();
  const Has before = has();
  {
    const Carveout carveout = required(open(SourceKind::kDrm));
    EXPECT_EQ(carveout.kind(), DescriptorKind::kDmaBuf);
    EXPECT_EQ(carveout.mapping().strategy(), MapStrategy::kHost);
    expect_usable(carveout.mapping().host_pointer(), mib(4));
    EXPECT_EQ(cards.buffers(), 1U);
    EXPECT_EQ(has(), (Has{before.descriptors, before.mappings + 1, 0}))
        << "neither the card nor the buffer stays open";
  }
  EXPECT_EQ(has(), before);
  EXPECT_EQ(cards.buffers(), 0U);
  EXPECT_THAT(cards.complaints(), IsEmpty());
}

TEST_F(ClientCarveout, OfACardIsAnNvidiaFileOnlyForVmm) {
  test::DrmFake cards;
  cards.add("card0", {.driver = "nvidia-drm", .nvkms = true});
  opening_.machine.drm.calls = cards.calls();
  opening_.machine.drm.meminfo = cards.meminfo();
  const Has before = has();
  // There is no driver here, so it is not mapped.
  EXPECT_THAT(refusal(open(SourceKind::kDrm, MapStrategy::kVmm)), HasSubstr("libcuda.so.1"));
  EXPECT_GT(cards.asked(test::kNvkmsExportRequest), 0U);
  const std::size_t asked = cards.asked(test::kNvkmsExportRequest);
  EXPECT_TRUE(open(SourceKind::kDrm));
  EXPECT_EQ(cards.asked(test::kNvkmsExportRequest), asked);
  EXPECT_EQ(has(), before);
  EXPECT_EQ(cards.buffers(), 0U);
}

TEST_F(ClientCarveout, NamesTheRowOfACardOrHeapThatIsNone) {
  test::DrmFake cards;
  opening_.machine.drm.calls = cards.calls();
  opening_.machine.heap.directory = directory_.path("heaps");
  const Has before = has();
  card_ = directory_.path("card7");
  EXPECT_THAT(refusal(open(SourceKind::kDrm)),
              AllOf(StartsWith("CARVEOUT_DRM_CARD: "), Not(HasSubstr(directory_.path()))));
  EXPECT_THAT(refusal(open(SourceKind::kDmaHeap)),
              AllOf(StartsWith("CARVEOUT_HEAP: "), Not(HasSubstr(directory_.path()))));
  EXPECT_EQ(has(), before);
}

TEST_F(ClientCarveout, OfAGpuIsRefusedWhereThereIsNone) {
  const Has before = has();
  const auto none = open(SourceKind::kCuda);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_EQ(has(), before);
}

TEST_F(ClientCarveout, NamesTheRowOfAStrategyThatTheMemoryDoesNotAllow) {
  const Has before = has();
  for (const MapStrategy map : {MapStrategy::kVmm, MapStrategy::kExternal}) {
    const auto refused = open(SourceKind::kMemfd, map);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalid);
    EXPECT_THAT(refusal(refused), StartsWith("CARVEOUT_MAP: "));
  }
  EXPECT_THAT(refusal(open(SourceKind::kMemfd, MapStrategy::kRegister)), HasSubstr("libcuda.so.1"));
  EXPECT_EQ(has(), before);
}

// --- lent ---

TEST_F(ClientCarveout, IsLent) {
  test::ScriptedLender lender(socket_, {Answer{{{kGrant, {memory_.get()}}}}});
  const Has before = has();
  {
    Carveout carveout = required(open(SourceKind::kDaemon));
    EXPECT_EQ(carveout.size(), mib(4));
    EXPECT_EQ(carveout.lender_base(), Bytes(10739515392));
    EXPECT_THAT(carveout.description(), HasSubstr("lent as a memfd"));
    expect_usable(carveout.mapping().host_pointer(), mib(4));
    EXPECT_EQ(has(), (Has{before.descriptors + 1, before.mappings + 1, 0})) << "the connection";
    EXPECT_TRUE(test::is_close_on_exec(carveout.watch()));
    EXPECT_FALSE(carveout.lender_gone());
    lender.kill();
    pollfd item{carveout.watch(), POLLRDHUP, 0};
    EXPECT_EQ(::poll(&item, 1, 20'000), 1);
    EXPECT_TRUE(carveout.lender_gone());
    expect_usable(carveout.mapping().host_pointer(), mib(4) - Bytes(1));
    EXPECT_TRUE(carveout.close());
    EXPECT_EQ(has(), before);
  }
  EXPECT_EQ(has(), before);
}

TEST_F(ClientCarveout, ReadsAKeyFileThatTheEnvironmentNames) {
  test::ScriptedLender lender(socket_, {Answer{{{kGrant, {memory_.get()}}}}});
  const auto carveout = open_as({{"CARVEOUT", "1"},
                                 {"CARVEOUT_MIB", "4"},
                                 {"CARVEOUT_SOCKET", socket_},
                                 {"CARVEOUT_KEY_FILE", directory_.file("other", "halibut\n")}});
  ASSERT_TRUE(carveout) << refusal(carveout);
  EXPECT_THAT(lender.events(), ElementsAre("connected", HasSubstr(R"("key":"halibut")")));
}

TEST_F(ClientCarveout, GivesBackWhatCannotBeMapped) {
  test::ScriptedLender lender(socket_, {Answer{{{kGrant, {memory_.get()}}}}});
  const Has before = has();
  EXPECT_THAT(refusal(open(SourceKind::kDaemon, MapStrategy::kVmm)), StartsWith("CARVEOUT_MAP: "));
  EXPECT_EQ(has(), before);
  std::vector<std::string> seen;
  while (seen.empty() || seen.back() != "ended") {
    for (auto& event : lender.events())
      seen.push_back(std::move(event));
  }
}

TEST_F(ClientCarveout, OnlyClosesTheConnectionInAChild) {
  const test::ScriptedLender lender(socket_, {Answer{{{kGrant, {memory_.get()}}}}});
  Carveout carveout = required(open(SourceKind::kDaemon));
  EXPECT_EQ(test::run_in_child([&] {
              const Has before = has();
              carveout.abandon_in_child();
              if (carveout.watch() != -1 || has().descriptors != before.descriptors - 1) return 1;
              static_cast<char*>(carveout.mapping().host_pointer())[0] = 'c';
              return carveout.close() && has().mappings == before.mappings - 1 ? 0 : 2;
            }),
            0);
  EXPECT_FALSE(carveout.lender_gone());
  EXPECT_EQ(static_cast<char*>(carveout.mapping().host_pointer())[0], 'c');
}

}  // namespace
}  // namespace carveout::client
