// The GPU engine over the fake driver: what it measures, what it notices, what it leaves behind.

#include "engines/gpu_engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "cuda/mapping.hpp"
#include "fake_cuda/fake_driver.hpp"

namespace carveout::probe {
namespace {

using test::FakeDriver;
using test::NthCall;
using testing::AllOf;
using testing::HasSubstr;

constexpr Bytes kSize = mib(1);
constexpr const char* kNoNvml = "/nonexistent/libnvidia-ml.so.1";
constexpr const char* kAdvice = "the memory or the driver does not keep what it is given";

// Ordinary memory and its bench, and the engine that they are of.
struct Bed {
  std::unique_ptr<Engine> engine;
  Engine::Ordinary memory;
  std::unique_ptr<Bench> bench;
};

Result<Bed> make_bed(const FakeDriver& fake, Bytes size = kSize) {
  auto engine = open_gpu_engine(0, fake.library(), kNoNvml);
  if (!engine) return std::move(engine).error();
  auto memory = (*engine)->ordinary(size, 0);
  if (!memory) return std::move(memory).error();
  auto bench = (*engine)->bench(memory->place);
  if (!bench) return std::move(bench).error();
  return Bed{*std::move(engine), *std::move(memory), *std::move(bench)};
}

class ProbeGpuEngine : public testing::Test {
 protected:
  void TearDown() override {
    bed_ = {};
    EXPECT_EQ(fake_.live(), 0);
    EXPECT_EQ(fake_.broken_rules(), "");
  }
  void make(Bytes size = kSize) {
    auto bed = make_bed(fake_, size);
    ASSERT_TRUE(bed) << bed.error().describe();
    bed_ = *std::move(bed);
  }
  Result<double> repeat(Row row, Bytes size = kSize) { return bed_.bench->repeat(row, size); }
  void expect_rate(Row row, Bytes size = kSize) {
    const auto rate = repeat(row, size);
    ASSERT_TRUE(rate) << facts(row).name << ": " << rate.error().describe();
    EXPECT_GT(*rate, 0) << facts(row).name;
    EXPECT_TRUE(std::isfinite(*rate)) << facts(row).name;
  }
  void expect_wrong(Row row, const std::string& what) {
    const auto rate = repeat(row);
    ASSERT_FALSE(rate) << facts(row).name;
    EXPECT_EQ(rate.error().code, Code::kInvalid);
    EXPECT_THAT(rate.error().describe(),
                AllOf(HasSubstr("GPU memory at 0x"), HasSubstr(what), HasSubstr(kAdvice)));
  }

  FakeDriver fake_;
  Bed bed_;
};

// Where the GPU's memory is the host's, the kernel would kill for it.
TEST_F(ProbeGpuEngine, AsksTheHostForWhatItHasOfIt) {
  fake_.set("integrated", 1);
  make();
  const int calls = fake_.calls("cuMemAlloc");
  constexpr Bytes kTooMuch = gib(1 << 20);
  const auto room = bed_.engine->check_room(kTooMuch);
  const auto memory = bed_.engine->ordinary(kTooMuch, 0);
  ASSERT_FALSE(room);
  ASSERT_FALSE(memory);
  for (const Error& error : {room.error(), memory.error()}) {
    EXPECT_EQ(error.code, Code::kExhausted);
    EXPECT_THAT(error.describe(), HasSubstr("say a smaller --size"));
  }
  EXPECT_EQ(fake_.calls("cuMemAlloc"), calls) << "nothing was asked of the driver";
  EXPECT_TRUE(bed_.engine->check_room(kSize));
  bed_ = {};
  fake_.set("integrated", 0);
  make();
  EXPECT_TRUE(bed_.engine->check_room(kTooMuch)) << "it is the driver's to refuse";
}

TEST_F(ProbeGpuEngine, MeasuresEveryRowInAnyOrder) {
  make();
  const std::vector<Row> rows = bed_.engine->rows();
  EXPECT_EQ(rows.front(), Row::kReread);
  EXPECT_EQ(rows.size(), 9U);
  for (const Bytes size : {kSize, kib(64), kSize}) {
    for (const Row row : rows) {
      expect_rate(row, size);
      expect_rate(row, size);
    }
    for (auto row = rows.rbegin(); row != rows.rend(); ++row)
      expect_rate(*row, size);
  }
  expect_rate(Row::kReread, kib(4));
  expect_rate(Row::kLoad, kib(4));
}

TEST_F(ProbeGpuEngine, RefusesWhatItCannotMeasure) {
  make();
  for (const Row row : {Row::kWritePastCaches, Row::kClaim, Row::kGiveBack}) {
    const auto refused = repeat(row);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalid);
    EXPECT_THAT(refused.error().describe(), HasSubstr("nothing that the GPU engine measures"));
  }
  for (const Bytes size : {Bytes(0), Bytes(4097), kSize + kib(4)}) {
    const auto refused = repeat(Row::kRead, size);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalid);
    EXPECT_THAT(refused.error().describe(), HasSubstr("a multiple of 4 KiB"));
  }
  const auto gathered = repeat(Row::kGather, kib(60));
  ASSERT_FALSE(gathered);
  EXPECT_THAT(gathered.error().describe(), HasSubstr("60 KiB hold no span of 64 KiB"));
  for (const std::uint64_t device : {std::uint64_t{0}, bed_.memory.place.device + 64}) {
    const auto bench = bed_.engine->bench({nullptr, device, kib(4)});
    ASSERT_FALSE(bench);
    EXPECT_EQ(bench.error().code, Code::kInvalid);
  }
}

// In each repetition anew, also where the right data is there from an earlier one.
TEST_F(ProbeGpuEngine, NoticesWhatIsReadWrongly) {
  make();
  for (const Row row : {Row::kReread, Row::kRead, Row::kGather}) {
    for (int i = 0; i < 2; ++i) {
      fake_.set("kernel-reads", 1);
      expect_rate(row);
      fake_.set("kernel-reads", 0);
      expect_wrong(row, ", not 0x");
    }
  }
  fake_.set("kernel-reads", 1);
  expect_rate(Row::kLoad);
  fake_.set("kernel-reads", 0);
  expect_wrong(Row::kLoad, "16384 loads, each from the address that the one before has found");
  fake_.set("kernel-reads", 1);
  expect_rate(Row::kLoad);
}

TEST_F(ProbeGpuEngine, NoticesWhatIsNotWritten) {
  make();
  const std::pair<Row, const char*> cases[] = {{Row::kWrite, "kernel-writes"},
                                               {Row::kCopyInto, "kernel-writes"},
                                               {Row::kCopyOutOf, "kernel-writes"},
                                               {Row::kDriverCopyInto, "device-copy"},
                                               {Row::kDriverCopyOutOf, "device-copy"}};
  for (const auto& [row, knob] : cases) {
    for (int done = 0; done < 4; ++done) {
      for (int i = 0; i < done; ++i)
        expect_rate(row);
      fake_.set(knob, 0);
      expect_wrong(row, "the word at byte 0 is 0x");
      fake_.set(knob, 1);
    }
  }
}

TEST_F(ProbeGpuEngine, SaysWhatIsWhere) {
  make();
  expect_rate(Row::kRead);
  volatile unsigned char& byte = test::at_device(bed_.memory.place.device)[777 * 8 + 3];
  byte = byte ^ 0x10U;
  expect_wrong(Row::kRead, "the sum of 1 MiB read 1 time is 0x");
  expect_wrong(Row::kReread, "the sum of 1 MiB read 1600 times is 0x");
  expect_wrong(Row::kGather, "the word at byte 6216 is 0x");
  expect_rate(Row::kWrite);
  expect_rate(Row::kRead);
}

// What the processor has under other addresses than the GPU.
TEST_F(ProbeGpuEngine, MeasuresRegisteredMemory) {
  make();
  const UniqueFd file = test::make_file(DescriptorKind::kMemfd, mib(2));
  auto mapping = cuda::map({DescriptorKind::kMemfd, file.get(), mib(2)},
                           fake_.settings(MapStrategy::kRegister));
  ASSERT_TRUE(mapping) << mapping.error().describe();
  auto bench = bed_.engine->bench({mapping->host_pointer(), mapping->device_pointer(), mib(2)});
  ASSERT_TRUE(bench);
  for (const Row row : bed_.engine->rows()) {
    const auto rate = (*bench)->repeat(row, mib(2));
    ASSERT_TRUE(rate) << rate.error().describe();
    EXPECT_GT(*rate, 0);
  }
  // Whatever was queued is done by then.
  fake_.fail("cuEventSynchronize");
  EXPECT_FALSE((*bench)->repeat(Row::kCopyInto, mib(2)));
  EXPECT_TRUE(mapping->unmap());
}

TEST_F(ProbeGpuEngine, LeavesTheContextAlone) {
  fake_.set("devices", 2);
  ASSERT_TRUE(cuda::Driver::load(fake_.library()));
  const cuda::CUcontext own = fake_.make_context(1);
  ASSERT_EQ(fake_.call(cuda::kCtxPushCurrent)(own), cuda::kSuccess);
  make();
  EXPECT_EQ(fake_.current(), own);
  for (const Row row : bed_.engine->rows()) {
    expect_rate(row);
    EXPECT_EQ(fake_.current(), own);
  }
  fake_.fail("cuLaunchKernel");
  EXPECT_FALSE(repeat(Row::kRead));
  EXPECT_EQ(fake_.current(), own);
  bed_ = {};
  EXPECT_EQ(fake_.current(), own);
  cuda::CUcontext popped = nullptr;
  EXPECT_EQ(fake_.call(cuda::kCtxPopCurrent)(&popped), cuda::kSuccess);
}

TEST_F(ProbeGpuEngine, OutlivesItsEngineInWhatItGave) {
  make();
  bed_.engine.reset();
  expect_rate(Row::kCopyInto);
  bed_.bench.reset();
  EXPECT_GT(fake_.live(), 0);
}

TEST_F(ProbeGpuEngine, SaysThatThereIsNotEnoughMemory) {
  make();
  fake_.set("limit", static_cast<long>(kSize.count()));
  EXPECT_EQ(bed_.engine->ordinary(kSize + kib(4), 0).error().code, Code::kExhausted);
  // A copy wants as much again, and a page.
  const auto copied = repeat(Row::kCopyInto);
  ASSERT_FALSE(copied);
  EXPECT_EQ(copied.error().code, Code::kExhausted);
  EXPECT_THAT(copied.error().describe(), HasSubstr("memory to copy from and to (1028 KiB)"));
  expect_rate(Row::kCopyInto, kib(512));
}

TEST(ProbeGpuEngineStart, IsOfADeviceThatThereIs) {
  FakeDriver fake;
  const auto code = [](int device, const std::string& library) {
    const auto engine = open_gpu_engine(device, library, kNoNvml);
    return engine ? std::nullopt : std::optional(engine.error().code);
  };
  EXPECT_EQ(code(0, "/nonexistent/libcuda.so.1"), Code::kNotFound);
  EXPECT_EQ(code(1, fake.library()), Code::kNotFound);
  EXPECT_EQ(code(0, fake.library()), std::nullopt);
  FakeDriver none;
  none.set("devices", 0);
  EXPECT_EQ(code(0, none.library()), Code::kNotFound);
  EXPECT_EQ(fake.live() + none.live(), 0);
}

TEST(ProbeGpuEngineStart, WantsEveryCall) {
  for (const char* entry :
       {"cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction", "cuLaunchKernel",
        "cuEventCreate", "cuEventDestroy", "cuEventRecord", "cuEventSynchronize", "cuEventQuery",
        "cuEventElapsedTime", "cuMemcpyDtoDAsync"}) {
    FakeDriver fake;
    fake.hide(entry);
    const auto engine = open_gpu_engine(0, fake.library(), kNoNvml);
    ASSERT_FALSE(engine) << entry;
    EXPECT_EQ(engine.error().code, Code::kNotFound);
    EXPECT_THAT(engine.error().describe(), HasSubstr(cat("this driver has no ", entry)));
    EXPECT_EQ(fake.live(), 0);
  }
}

// A host that is always late is waited for longer, up to a limit; any other is not.
TEST(ProbeGpuEngineStart, WaitsUntilAllIsQueued) {
  FakeDriver fake;
  auto bed = make_bed(fake, kib(64));
  ASSERT_TRUE(bed);
  const auto read = [&bed] { return bed->bench->repeat(Row::kRead, kib(64)); };
  const auto expect_reads = [&read](int times) {
    for (int i = 0; i < times; ++i) {
      const auto rate = read();
      EXPECT_TRUE(rate) << rate.error().describe();
    }
  };
  fake.set("longest-wait", 100'000);
  expect_reads(3);
  fake.set("slow-host", 1);
  fake.set("longest-wait", 400'000);
  expect_reads(3);
  fake.set("longest-wait", 10'000'000);
  expect_reads(20);
  EXPECT_EQ(fake.broken_rules(), "");
  fake.set("longest-wait", 9'999'999);
  const auto too_long = read();
  ASSERT_FALSE(too_long);
  EXPECT_THAT(too_long.error().describe(), HasSubstr("the kernel carveout_wait"));
}

TEST(ProbeGpuEngineStart, KnowsItsGpu) {
  FakeDriver fake;
  fake.set("l2", 3145728);
  const auto engine = open_gpu_engine(0, fake.library(), kNoNvml);
  ASSERT_TRUE(engine);
  EXPECT_EQ((*engine)->kind(), EngineKind::kGpu);
  EXPECT_EQ((*engine)->describe(), "Fake GPU 0, 3 multiprocessors");
  EXPECT_EQ((*engine)->cache(), mib(3));
  Machine machine;
  (*engine)->describe(machine);
  EXPECT_EQ(machine.gpu, "Fake GPU 0");
  EXPECT_EQ(machine.cuda, "13.0");
  EXPECT_THAT(machine.cache_bytes, testing::ElementsAre(3145728U));
  fake.set("l2", 0);
  machine = {};
  (*engine)->describe(machine);
  EXPECT_TRUE(machine.cache_bytes.empty());
}

// Everything that is done, in a small way; `calls` are those that were made before anything was
// given back.
std::optional<Error> do_everything(FakeDriver& fake, std::vector<NthCall>* calls,
                                   std::vector<NthCall>* ending) {
  (void)fake.take_record();
  std::optional<Error> error;
  std::vector<std::string> record;
  {
    auto bed = make_bed(fake, kib(128));
    if (!bed) return std::move(bed).error();
    for (const Bytes size : {kib(64), kib(128)}) {
      for (const Row row : bed->engine->rows()) {
        auto rate = bed->bench->repeat(row, size);
        if (!rate && !error) error = std::move(rate).error();
      }
    }
    record = fake.take_record();
  }
  if (calls != nullptr) *calls = test::numbered(record);
  const auto end = fake.take_record();
  record.insert(record.end(), end.begin(), end.end());
  if (ending != nullptr) *ending = test::numbered(record);
  return error;
}

// It works as well without: a name.
bool can_do_without(const NthCall& call) {
  return call.entry == "cuDeviceGetName" || call.entry == "cuDeviceGetPCIBusId";
}

TEST(ProbeGpuEngineFailure, OfAnyCallLeavesNothing) {
  FakeDriver fake;
  std::vector<NthCall> calls;
  std::vector<NthCall> all;
  ASSERT_EQ(do_everything(fake, nullptr, nullptr), std::nullopt);
  ASSERT_EQ(do_everything(fake, &calls, &all), std::nullopt);
  EXPECT_GT(calls.size(), 200U);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const NthCall& call = all[i];
    const bool undoes = test::gives_back(call.entry);
    fake.fail(call.entry, call.nth, cuda::kIllegalAddress, undoes);
    const auto error = do_everything(fake, nullptr, nullptr);
    EXPECT_TRUE(fake.has_failed(call.entry)) << call;
    fake.fail(call.entry, 0);
    if (error) {
      EXPECT_THAT(error->describe(), HasSubstr(cat(call.entry, " failed: ")));
      EXPECT_EQ(error->cuda_result, cuda::kIllegalAddress) << call;
    } else {
      EXPECT_TRUE(undoes || i >= calls.size() || can_do_without(call)) << call;
    }
    EXPECT_EQ(fake.live(), 0) << call;
    EXPECT_EQ(fake.current(), nullptr) << call;
    ASSERT_EQ(fake.broken_rules(), "") << call;
  }
}

}  // namespace
}  // namespace carveout::probe
