// The CPU engine: every row measures what it says, and memory that does not keep what it is given
// is found out.

#include "engines/cpu_engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "engines/cpu_bench.hpp"
#include "engines/load_chain.hpp"
#include "host.hpp"
#include "unit/helpers.hpp"

namespace carveout::probe {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Gt;
using testing::HasSubstr;

constexpr Bytes kSize = mib(2);

TEST(ProbeCrew, EveryThreadHasItsPartAndItsProcessor) {
  const std::size_t threads = allowed_processors().size();
  std::vector<std::atomic<int>> parts(threads);
  std::vector<int> processors(threads, -1);
  auto crew = Crew::gather(threads);
  ASSERT_TRUE(crew) << crew.error().describe();
  for (int round = 0; round < 100; ++round) {
    EXPECT_THAT(crew->run([&](std::size_t number) {
      ++parts[number];
      processors[number] = ::sched_getcpu();
    }),
                Gt(0));
  }
  for (const auto& part : parts)
    EXPECT_EQ(part.load(), 100);
  EXPECT_EQ(std::set<int>(processors.begin(), processors.end()).size(), threads);
}

// Whoever begins first and whoever ends last: no thread has worked outside of the time.
TEST(ProbeCrew, TimesAllOfItsThreads) {
  using Clock = std::chrono::steady_clock;
  const std::size_t threads = std::min<std::size_t>(allowed_processors().size(), 4);
  auto crew = Crew::gather(threads);
  ASSERT_TRUE(crew);
  std::vector<Clock::time_point> begun(threads), ended(threads);
  for (int round = 0; round < 200; ++round) {
    const double seconds = crew->run([&](std::size_t number) {
      begun[number] = Clock::now();
      ended[number] = Clock::now();
    });
    const std::chrono::duration<double> worked = *std::max_element(ended.begin(), ended.end()) -
                                                 *std::min_element(begun.begin(), begun.end());
    ASSERT_GE(seconds, worked.count());
  }
}

TEST(ProbeCrew, TakesTheFastestProcessorsFirst) {
  const test::TemporaryDirectory root;
  EXPECT_THAT(fastest_first({0, 1, 2}, root.path()), ElementsAre(0, 1, 2)) << "nothing is known";
  // As a GB10 counts them, in small.
  for (const int slow : {0, 1, 4, 5})
    (void)root.file(cat("cpu", slow, "/cpu_capacity"), "718\n");
  for (const int fast : {2, 3, 6, 7})
    (void)root.file(cat("cpu", fast, "/cpu_capacity"), "1024\n");
  EXPECT_THAT(fastest_first({0, 1, 2, 3, 4, 5, 6, 7}, root.path()),
              ElementsAre(2, 3, 6, 7, 0, 1, 4, 5));
  EXPECT_THAT(fastest_first({1, 4}, root.path()), ElementsAre(1, 4)) << "of the same speed";
  (void)root.file("cpu8/cpufreq/cpuinfo_max_freq", "3900000\n");
  (void)root.file("cpu9/cpufreq/cpuinfo_max_freq", "4700000\n");
  EXPECT_THAT(fastest_first({8, 9}, root.path()), ElementsAre(9, 8));
}

TEST(ProbeCrew, LeavesItsMakerWhereItMayRun) {
  const auto before = allowed_processors();
  {
    auto crew = Crew::gather(1);
    ASSERT_TRUE(crew);
    EXPECT_THAT(allowed_processors(), ElementsAre(fastest_first(before, kProcessors).front()));
    EXPECT_THAT(allowed_processors(), ElementsAre(crew->processor()));
    const Crew moved = std::move(*crew);
  }
  EXPECT_EQ(allowed_processors(), before);
}

TEST(ProbeCrew, IsNotLargerThanTheMachine) {
  const auto crew = Crew::gather(allowed_processors().size() + 1);
  ASSERT_FALSE(crew);
  EXPECT_EQ(crew.error().code, Code::kInvalid);
  EXPECT_THAT(crew.error().describe(), HasSubstr("processors: say 1 to "));
  EXPECT_FALSE(Crew::gather(0));
}

TEST(ProbeLoadChain, IsOneCycleThroughAllLines) {
  for (const std::size_t lines : {1U, 2U, 3U, 64U, 1000U}) {
    const auto next = load_chain(lines, 7);
    std::set<std::uint32_t> seen;
    std::uint32_t line = 0;
    do {
      seen.insert(line);
      line = next[line];
    } while (line != 0);
    EXPECT_EQ(seen.size(), lines);
  }
}

TEST(ProbeExpectedSums, AreThoseOfTheWords) {
  ExpectedSums sums;
  const auto plain = [](std::uint64_t seed, std::uint64_t words) {
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < words; ++i)
      sum += random_word(seed, i);
    return sum;
  };
  EXPECT_EQ(sums.of(1, kib(4)), plain(1, 512));
  EXPECT_EQ(sums.of(1, kib(16)), plain(1, 2048)) << "going on from what is known";
  EXPECT_EQ(sums.of(1, kib(8)), plain(1, 1024));
  EXPECT_EQ(sums.of(1, kib(8)), plain(1, 1024));
  EXPECT_EQ(sums.of(2, kib(8)), plain(2, 1024));
}

class ProbeCpuEngine : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    if (GetParam() > allowed_processors().size()) GTEST_SKIP() << "waived: needs 2 processors";
    auto engine = open_cpu_engine(GetParam());
    ASSERT_TRUE(engine) << engine.error().describe();
    engine_ = std::move(*engine);
    auto memory = engine_->ordinary(kSize, 0);
    ASSERT_TRUE(memory) << memory.error().describe();
    memory_.emplace(std::move(*memory));
    auto bench = engine_->bench(memory_->place);
    ASSERT_TRUE(bench);
    bench_ = std::move(*bench);
  }
  [[nodiscard]] std::uint64_t& word(std::uint64_t at) {
    return *reinterpret_cast<std::uint64_t*>(static_cast<char*>(memory_->place.host) + at);
  }

  std::unique_ptr<Engine> engine_;
  std::optional<Engine::Ordinary> memory_;
  std::unique_ptr<Bench> bench_;
};
INSTANTIATE_TEST_SUITE_P(Threads, ProbeCpuEngine, testing::Values(1, 2),
                         [](const auto& tested) { return std::to_string(tested.param); });

TEST_P(ProbeCpuEngine, MeasuresEveryRowInAnyOrder) {
  for (int round = 0; round < 2; ++round) {
    for (const Row row : engine_->rows()) {
      for (const Bytes size : {kSize, kib(192), kib(4)}) {
        const auto rate = bench_->repeat(row, size);
        ASSERT_TRUE(rate) << facts(row).name << ": " << rate.error().describe();
        EXPECT_GT(*rate, 0) << facts(row).name;
      }
    }
  }
}

TEST_P(ProbeCpuEngine, ReadsRandomDataOfItsOwn) {
  ASSERT_TRUE(bench_->repeat(Row::kRead, kSize));
  std::set<std::uint64_t> words;
  for (std::uint64_t at = 0; at < kSize.count(); at += 8)
    words.insert(word(at));
  EXPECT_EQ(words.size(), kSize.count() / 8) << "no two are the same";
  EXPECT_EQ(words.count(0), 0U);
}

TEST_P(ProbeCpuEngine, FindsOutWhatReadsWrong) {
  for (const Row row : {Row::kReread, Row::kRead, Row::kGather, Row::kCopyOutOf}) {
    ASSERT_TRUE(bench_->repeat(row, kSize));
    for (const std::uint64_t at : {std::uint64_t{0}, kSize.count() / 2, kSize.count() - 8}) {
      const std::uint64_t was = word(at);
      word(at) ^= std::uint64_t{1} << 40;
      const auto rate = bench_->repeat(row, kSize);
      ASSERT_FALSE(rate) << facts(row).name << " at " << at;
      EXPECT_EQ(rate.error().code, Code::kInvalid);
      word(at) = was;
      EXPECT_TRUE(bench_->repeat(row, kSize));
    }
  }
}

TEST_P(ProbeCpuEngine, FollowsNoAddressThatIsNotItsOwn) {
  ASSERT_TRUE(bench_->repeat(Row::kLoad, kib(64)));
  word(64 * 5) = 16;
  const auto rate = bench_->repeat(Row::kLoad, kib(64));
  ASSERT_FALSE(rate);
  EXPECT_THAT(rate.error().describe(),
              AllOf(HasSubstr("line 5"), HasSubstr("does not keep what it is given")));
}

TEST_P(ProbeCpuEngine, LeavesTheRestOfTheMemoryAlone) {
  ASSERT_TRUE(bench_->repeat(Row::kRead, kSize));
  const std::uint64_t was = word(kib(64).count());
  for (const Row row : {Row::kWrite, Row::kWritePastCaches, Row::kCopyInto, Row::kLoad})
    ASSERT_TRUE(bench_->repeat(row, kib(64)));
  EXPECT_EQ(word(kib(64).count()), was);
}

TEST_P(ProbeCpuEngine, DoesNothingThatIsAGpus) {
  for (const Row row : {Row::kDriverCopyInto, Row::kClaim})
    EXPECT_FALSE(bench_->repeat(row, kSize));
  const auto unseen = engine_->bench(Place{nullptr, 0x1000, kSize});
  ASSERT_FALSE(unseen);
  EXPECT_THAT(unseen.error().describe(), HasSubstr("say --map host"));
}

// Loops that do not do what they say.
class ProbeCpuBench : public testing::Test {
 protected:
  [[nodiscard]] Error with(const CpuKernels& kernels, Row row) {
    auto crew = Crew::gather(1);
    auto memory = Anonymous::map(kSize);
    CpuParts parts{std::move(*crew), &kernels, {}, {}, {}};
    CpuBench bench(parts, Place{memory->address(), 0, kSize});
    auto rate = bench.repeat(row, kSize);
    return rate ? Error{Code::kRefused, 0, "", "nothing was noticed"} : rate.error();
  }
  CpuKernels kernels_ = widest_cpu_kernels();
};

TEST_F(ProbeCpuBench, NoticesAWriteThatWasNotMade) {
  kernels_.write = [](void*, std::size_t, std::uint64_t) {};
  EXPECT_THAT(with(kernels_, Row::kWrite).describe(), HasSubstr("writing: the 2 MiB are not"));
  kernels_.write_past_caches = [](void* to, std::size_t size, std::uint64_t word) {
    widest_cpu_kernels().write(to, size - kLine, word);
  };
  EXPECT_THAT(with(kernels_, Row::kWritePastCaches).describe(), HasSubstr("writing: "));
}

TEST_F(ProbeCpuBench, NoticesACopyThatWasNotMade) {
  kernels_.copy = [](void*, const void*, std::size_t) {};
  EXPECT_THAT(with(kernels_, Row::kCopyInto).describe(), HasSubstr("copying into: "));
  EXPECT_THAT(with(kernels_, Row::kCopyOutOf).describe(), HasSubstr("copying out of: "));
}

TEST_F(ProbeCpuBench, NoticesWhatWasNotRead) {
  kernels_.read = [](const void* from, std::size_t size) {
    return widest_cpu_kernels().read(from, size - kLine);
  };
  EXPECT_THAT(with(kernels_, Row::kRead).describe(), HasSubstr("reading: "));
  EXPECT_THAT(with(kernels_, Row::kReread).describe(), HasSubstr("reading: "));
  kernels_.gather = [](const void* from, const std::uint64_t* offsets, std::size_t count,
                       std::size_t span) {
    return widest_cpu_kernels().gather(from, offsets, count - 1, span);
  };
  EXPECT_THAT(with(kernels_, Row::kGather).describe(), HasSubstr("gathering: "));
}

}  // namespace
}  // namespace carveout::probe
