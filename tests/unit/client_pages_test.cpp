// The opener of pages: each slice is claimed and imported by itself, all of them or none.

#include "client/pages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "fake_cuda/fake_driver.hpp"
#include "unit/client_lender_fixture.hpp"
#include "unit/given_up.hpp"
#include "unit/rows.hpp"

namespace carveout::client {
namespace {

using test::Answer;
using test::changes;
using test::footprint;
using test::Footprint;
using test::NthCall;
using test::refusal;
using test::required;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAreArray;

constexpr const char* kInfo =
    R"({"base": 10739515392, "size": 2145386496, "free": 2145386496, "largest": 2097152})";
constexpr const char* kGrantOfASlice = R"({"ok": true, "base": 10739515392, "size": 2097152})";

class ClientPages : public testing::Test {
 protected:
  void SetUp() override {
    test::given_up_driver = &fake_;
    opening_.machine.cuda_library = fake_.library();
    opening_.machine.default_key_file = directory_.file("key", "swordfish\n");
    ASSERT_TRUE(cuda::Driver::load(fake_.library()));
    settings_.size = mib(5);  // three pages
    settings_.socket = socket_;
  }
  void TearDown() override { EXPECT_EQ(fake_.broken_rules(), ""); }

  [[nodiscard]] Result<Pages> open() const { return Pages::open(settings_, opening_); }

  // A lender's answers: so many slices of the driver's memory, and then what is given.
  [[nodiscard]] std::vector<Answer> slices(int count, const char* then = kFull) {
    std::vector<Answer> answers{{{{kInfo}}}};
    for (int i = 0; i < count; ++i) {
      memory_.push_back(test::make_file(DescriptorKind::kNvidiaFile, kSliceBytes));
      answers.push_back({{{kGrantOfASlice, {memory_.back().get()}}}});
    }
    answers.push_back({{{then, {}}}, test::Then::kClose});
    return answers;
  }
  void expect_refused(Code code, const char* words) {
    const Footprint before = footprint(fake_);
    const auto pages = open();
    ASSERT_FALSE(pages);
    EXPECT_EQ(pages.error().code, code);
    EXPECT_THAT(refusal(pages), HasSubstr(words));
    EXPECT_THAT(changes(before, footprint(fake_)), IsEmpty());
  }
  // Maps a page where the engine wants it, and writes to it.
  void use(const Pages& pages, std::size_t page, unsigned char byte) {
    cuda::CUdeviceptr at = 0;
    const std::size_t size = kSliceBytes.count();
    const cuda::MemAccessDesc access{{cuda::kLocationDevice, pages.imported().device()},
                                     cuda::kAccessReadWrite};
    ASSERT_EQ(fake_.call(cuda::kMemAddressReserve)(&at, size, 0, 0, 0), cuda::kSuccess);
    ASSERT_EQ(fake_.call(cuda::kMemMap)(at, size, 0, pages.imported().handles()[page], 0),
              cuda::kSuccess);
    ASSERT_EQ(fake_.call(cuda::kMemSetAccess)(at, size, &access, 1), cuda::kSuccess);
    test::at_device(at)[size - 1] = byte;
    ASSERT_EQ(fake_.call(cuda::kMemUnmap)(at, size), cuda::kSuccess);
    ASSERT_EQ(fake_.call(cuda::kMemAddressFree)(at, size), cuda::kSuccess);
  }

  test::TemporaryDirectory directory_;
  test::FakeDriver fake_;
  std::string socket_ = directory_.path("lend.sock");
  std::vector<UniqueFd> memory_;
  Settings settings_;
  Opening opening_;
};

TEST_F(ClientPages, AreEachAClaimOfASliceOnOneConnection) {
  test::ScriptedLender lender(socket_, slices(3));
  {
    Pages pages = required(open());
    const std::string request = R"({"key":"swordfish","op":"alloc","size":2097152})";
    const std::string info = R"({"key":"swordfish","op":"info"})";
    EXPECT_THAT(lender.events(), ElementsAre("connected", info, request, request, request));
    const auto& handles = pages.imported().handles();
    EXPECT_EQ(std::set<cuda::CUmemGenericAllocationHandle>(handles.begin(), handles.end()).size(),
              3U);
    EXPECT_EQ(pages.imported().page(), kSliceBytes);
    EXPECT_EQ(pages.imported().device(), 0);
    EXPECT_EQ(pages.lender_base(), Bytes(10739515392));
    EXPECT_EQ(pages.description(), "3 pages of 2 MiB lent as an NVIDIA file");
    for (std::size_t i = 0; i < 3; ++i) {
      use(pages, i, static_cast<unsigned char>(i + 1));
      EXPECT_EQ(test::View(memory_[i].get(), kSliceBytes)[kSliceBytes.count() - 1], i + 1);
    }
    EXPECT_FALSE(pages.lender_gone());
    EXPECT_TRUE(pages.close());
    EXPECT_THAT(pages.imported().handles(), IsEmpty());
    EXPECT_EQ(pages.watch(), -1);
  }
  EXPECT_EQ(fake_.live(), 0);
}

// A thousand pages do not need a thousand descriptors of ours: the fake keeps one each.
TEST_F(ClientPages, OpenOneDescriptorAtATime) {
  constexpr std::size_t kCount = 40;
  const test::ScriptedLender lender(socket_, slices(static_cast<int>(kCount)));
  settings_.size = Slices(kCount).bytes();
  const std::size_t before = test::holdings().descriptors.size();
  const Pages pages = required(open());
  // The driver's, and the connection.
  EXPECT_EQ(test::holdings().descriptors.size(), before + kCount + 1);
}

TEST_F(ClientPages, ComeFromADirectSource) {
  settings_.source = SourceKind::kCuda;
  const Pages pages = required(open());
  EXPECT_EQ(pages.imported().handles().size(), 3U);
  EXPECT_EQ(pages.watch(), -1);
  EXPECT_FALSE(pages.lender_gone());
  EXPECT_THAT(pages.description(), StartsWith("3 pages of 2 MiB of memory of CUDA device 0"));
  use(pages, 2, 9);
}

TEST_F(ClientPages, AreForTheDeviceAskedFor) {
  fake_.set("devices", 2);
  settings_.source = SourceKind::kCuda;
  opening_.device = 1;
  EXPECT_EQ(required(open()).imported().device(), 1);
  opening_.device = 2;
  expect_refused(Code::kNotFound, "CUDA device 2");
}

TEST_F(ClientPages, AreOffUnlessSwitchedOn) {
  const auto open_as = [&](const test::Rows& rows) {
    return Pages::open_as_set(test::lookup_in(rows), opening_);
  };
  EXPECT_FALSE(required(open_as({{"CARVEOUT_MIB", "x"}})));
  EXPECT_TRUE(
      required(open_as({{"CARVEOUT", "1"}, {"CARVEOUT_SOURCE", "cuda"}, {"CARVEOUT_MIB", "4"}})));
  EXPECT_THAT(refusal(open_as({{"CARVEOUT", "1"}, {"CARVEOUT_MIB", "x"}})),
              StartsWith("CARVEOUT_MIB: "));
}

// --- what is refused ---

TEST_F(ClientPages, AreNotMadeOfWhatCannotBeImported) {
  for (const auto source : {SourceKind::kMemfd, SourceKind::kDmaHeap}) {
    settings_.source = source;
    settings_.heap = "system";
    expect_refused(Code::kInvalid, "CARVEOUT_SOURCE: must be daemon, drm or cuda");
  }
  settings_.source = SourceKind::kDaemon;
  for (const auto map : {MapStrategy::kExternal, MapStrategy::kRegister, MapStrategy::kHost}) {
    settings_.map = map;
    expect_refused(Code::kInvalid, "CARVEOUT_MAP: must be auto or vmm");
  }
}

TEST_F(ClientPages, AreNotBorrowedWithoutADriver) {
  opening_.machine.cuda_library = directory_.path("libcuda.so.1");
  test::ScriptedLender lender(socket_, slices(3));
  EXPECT_EQ(open().error().code, Code::kNotFound);
  EXPECT_THAT(lender.events(), IsEmpty());
}

TEST_F(ClientPages, AreNoneWhereALenderGivesSomethingElse) {
  const UniqueFd memfd = test::make_memory(kSliceBytes.count());
  const test::ScriptedLender lender(socket_,
                                    {Answer{{{kInfo}}}, Answer{{{kGrantOfASlice, {memfd.get()}}}}});
  expect_refused(Code::kInvalid, "only NVIDIA files can be imported");
}

TEST_F(ClientPages, AreNoneWhereALenderGivesLargerOnes) {
  const UniqueFd memory = test::make_file(DescriptorKind::kNvidiaFile, mib(4));
  const test::ScriptedLender lender(socket_,
                                    {Answer{{{kInfo}}}, Answer{{{kGrant, {memory.get()}}}}});
  expect_refused(Code::kProtocol, "is 4 MiB in one, where 2 MiB were asked for (page 1 of 3)");
}

TEST_F(ClientPages, AreImportedOneByOne) {
  auto pages = required(cuda::Pages::open(kSliceBytes, fake_.settings()));
  const UniqueFd one = test::make_file(DescriptorKind::kNvidiaFile, kSliceBytes);
  const UniqueFd two = test::make_file(DescriptorKind::kNvidiaFile, mib(4));
  EXPECT_TRUE(pages.add({DescriptorKind::kNvidiaFile, one.get(), kSliceBytes}));
  EXPECT_THAT(refusal(pages.add({DescriptorKind::kNvidiaFile, two.get(), mib(4)})),
              HasSubstr("a page is 2 MiB"));
  EXPECT_THAT(refusal(pages.add({DescriptorKind::kMemfd, one.get(), kSliceBytes})),
              HasSubstr("only NVIDIA files can be imported"));
  EXPECT_EQ(pages.handles().size(), 1U);
}

// Nobody's memory is taken in vain, slice by slice.
TEST_F(ClientPages, AreNotClaimedWhereThereAreNotAsMany) {
  const auto refused = [&](const char* info, const char* words) {
    test::ScriptedLender lender(socket_, {Answer{{{info}}}, Answer{{{kFull}}}});
    expect_refused(Code::kRefused, words);
    const auto events = lender.events();
    EXPECT_EQ(std::count_if(events.begin(), events.end(),
                            [](const std::string& event) { return event.starts_with("{"); }),
              1)
        << "requests";
    ::unlink(socket_.c_str());
  };
  refused(R"({"base": 0, "size": 8388608, "free": 4194304, "largest": 4194304})",
          "the lender: 6 MiB are more than the lender has: 4 MiB free of 8 MiB");
  refused(R"({"base": 0, "size": 4194304, "free": 4194304, "largest": 4194304})",
          "CARVEOUT_MIB: 6 MiB are more than the lender has: 4 MiB free of 4 MiB");
  refused(kWrongKey, "CARVEOUT_KEY_FILE: missing or unknown key: the key is not this lender's");
  refused(R"({"ok": false, "error": "no swordfish here"})", "the lender: no ");
}

TEST_F(ClientPages, AreNotClaimedOfALenderThatCannotSayWhatItHas) {
  const test::ScriptedLender lender(socket_, {Answer{{{R"({"size": 8388608})"}}}});
  expect_refused(Code::kProtocol, "lacks one of base, size, free, largest");
}

TEST_F(ClientPages, AreNotOfADeviceWithLargerPagesOfItsOwn) {
  fake_.set("granularity", static_cast<long>(mib(4).count()));
  settings_.source = SourceKind::kCuda;
  expect_refused(Code::kInvalid, "not a whole number of this device's pages of 4 MiB");
}

TEST_F(ClientPages, AreAllOrNone) {
  for (int had = 0; had < 3; ++had) {
    const test::ScriptedLender lender(socket_, slices(had));
    expect_refused(Code::kRefused, cat("(page ", had + 1, " of 3)").c_str());
    ::unlink(socket_.c_str());
  }
}

TEST_F(ClientPages, HaveOneTimeLimitForAllClaims) {
  auto answers = slices(3);
  for (Answer& answer : answers)
    answer.delay = std::chrono::milliseconds(120);
  const test::ScriptedLender lender(socket_, answers);
  settings_.timeout = std::chrono::milliseconds(300);
  expect_refused(Code::kTimedOut, "of 300 ms (CARVEOUT_TIMEOUT_MS)");
}

// --- in which order, and whatever fails ---

TEST_F(ClientPages, AreReleasedBeforeTheyAreGivenBack) {
  enum class By { kClosing, kDestroying, kFailing };
  for (const By by : {By::kClosing, By::kDestroying, By::kFailing}) {
    const test::ScriptedLender lender(socket_, slices(by == By::kFailing ? 2 : 3));
    std::vector<std::string> seen;
    if (by != By::kFailing) {
      Pages pages = required(open());
      test::given_up = &seen;
      if (by == By::kClosing) {
        EXPECT_TRUE(pages.close());
      }
    } else {  // before the refusal is told
      test::given_up = &seen;
      EXPECT_FALSE(open());
    }
    test::given_up = nullptr;
    seen.erase(std::remove(seen.begin(), seen.end(), "memory closed"), seen.end());
    EXPECT_THAT(seen, ElementsAre("given back with 0 at the driver"));
    ::unlink(socket_.c_str());
  }
}

TEST_F(ClientPages, AreClosedOnce) {
  settings_.source = SourceKind::kCuda;
  Pages pages = required(open());
  EXPECT_TRUE(pages.close());
  const int before = fake_.calls();
  EXPECT_TRUE(pages.close());
  EXPECT_EQ(fake_.calls(), before) << "the context was given back";
  EXPECT_EQ(fake_.live(), 0);
}

class ClientPagesFailure : public ClientPages {
 protected:
  void SetUp() override {
    ClientPages::SetUp();
    const auto answers = slices(3);
    lender_.emplace(socket_, answers);
  }
  // What opening calls.
  [[nodiscard]] std::vector<NthCall> calls() {
    (void)fake_.take_record();
    const auto pages = open();
    EXPECT_TRUE(pages);
    return test::numbered(fake_.take_record());
  }
  void start_anew() {
    cuda::CUcontext popped = nullptr;
    while (fake_.current() != nullptr)
      ASSERT_EQ(fake_.call(cuda::kCtxPopCurrent)(&popped), cuda::kSuccess);
    fake_.take_everything_back();
  }
  // What stays with the driver when it does not do that.
  [[nodiscard]] static std::vector<std::string> stays(const std::string& entry) {
    std::vector<std::string> left{"+1 with the driver"};
    if (entry == "cuMemRelease") left.push_back("+1 descriptors of /memfd:fake-cuda (deleted)");
    return left;
  }

  std::optional<test::ScriptedLender> lender_;
};

TEST_F(ClientPagesFailure, OfAnyCallLeavesNothingButWhatCouldNotBeUndone) {
  std::size_t imports = 0, undone = 0;
  for (const NthCall& call : calls()) {
    if (test::gives_back(call.entry)) continue;
    SCOPED_TRACE(testing::Message() << call);
    if (call.entry == "cuMemImportFromShareableHandle") ++imports;
    const Footprint before = footprint(fake_);
    fake_.fail(call.entry, call.nth, cuda::kOutOfMemory);
    (void)fake_.take_record();
    const auto pages = open();
    ASSERT_FALSE(pages);
    EXPECT_TRUE(fake_.has_failed(call.entry));
    EXPECT_THAT(refusal(pages), HasSubstr(cat(call.entry, " failed: ")));
    EXPECT_THAT(changes(before, footprint(fake_)), IsEmpty());
    const auto undoing = test::after(call, test::numbered(fake_.take_record()));
    fake_.fail(call.entry, 0);
    for (const NthCall& undo : undoing) {
      SCOPED_TRACE(testing::Message() << undo);
      ASSERT_TRUE(test::gives_back(undo.entry) || undo.entry == "cuCtxPushCurrent");
      if (undo.entry == "cuCtxPushCurrent") continue;  // tried twice
      fake_.fail(call.entry, call.nth, cuda::kOutOfMemory);
      fake_.fail(undo.entry, undo.nth);
      EXPECT_FALSE(open());
      EXPECT_TRUE(fake_.has_failed(undo.entry));
      EXPECT_THAT(changes(before, footprint(fake_)), UnorderedElementsAreArray(stays(undo.entry)));
      fake_.fail(call.entry, 0);
      fake_.fail(undo.entry, 0);
      start_anew();
      ++undone;
    }
  }
  EXPECT_EQ(imports, 3U);
  EXPECT_GT(undone, 5U);
}

TEST_F(ClientPagesFailure, OfReleasingIsSaidAndTheRestIsDone) {
  for (int nth = 1; nth <= 3; ++nth) {
    const Footprint before = footprint(fake_);
    Pages pages = required(open());
    fake_.fail("cuMemRelease", nth);
    const auto closed = pages.close();
    ASSERT_FALSE(closed);
    EXPECT_THAT(closed.error().describe(),
                AllOf(HasSubstr("releasing 3 pages of 2 MiB"), HasSubstr("cuMemRelease failed")));
    EXPECT_EQ(pages.watch(), -1);
    EXPECT_THAT(pages.imported().handles(), IsEmpty());
    EXPECT_THAT(changes(before, footprint(fake_)),
                UnorderedElementsAreArray(stays("cuMemRelease")));
    fake_.fail("cuMemRelease", 0);
    start_anew();
  }
}

TEST_F(ClientPagesFailure, IsALackOfACall) {
  for (const char* entry :
       {"cuMemImportFromShareableHandle", "cuMemRelease", "cuMemGetAllocationGranularity"}) {
    test::FakeDriver other;
    other.hide(entry);
    opening_.machine.cuda_library = other.library();
    const auto pages = open();
    ASSERT_FALSE(pages);
    EXPECT_EQ(pages.error().code, Code::kNotFound);
    EXPECT_THAT(refusal(pages), HasSubstr(cat("has no ", entry)));
    EXPECT_EQ(other.live(), 0);
  }
}

}  // namespace
}  // namespace carveout::client
