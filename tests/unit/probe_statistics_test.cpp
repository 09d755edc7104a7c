// The probe's statistics on made data: what is there is found, what is not is not called so.

#include "statistics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

namespace carveout::probe {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

// The same everywhere, unlike the standard library's distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
  double uniform() {
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 7U;
    state_ ^= state_ << 17U;
    return static_cast<double>(state_ >> 11U) / 9007199254740992.0;
  }
  // Mean 0, deviation 1.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i)
      sum += uniform();
    return sum;
  }

 private:
  std::uint64_t state_;
};

Batch of_rate(double rate) {
  return {.cold = rate, .median = rate, .autocorrelation = 0, .count = 20};
}

struct Made {
  std::vector<Batch> first, second;
};

// Two arms of 8 blocks in mirrored order: the second has `effect` more, each batch's median is off
// by `noise`, and everything grows by `drift` from the first batch to the last.
Made make(std::uint64_t seed, double effect, double noise, double drift, std::size_t blocks = 8) {
  Random random(seed);
  Made made{std::vector<Batch>(blocks), std::vector<Batch>(blocks)};
  std::size_t step = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    for (const std::size_t arm : order_in_block(block, 2)) {
      const double age = static_cast<double>(step++) / static_cast<double>(2 * blocks - 1);
      const double rate =
          (arm == 0 ? 200 : 200 * (1 + effect)) * (1 + drift * age) * (1 + noise * random.normal());
      (arm == 0 ? made.first : made.second)[block] = of_rate(rate);
    }
  }
  return made;
}

int count_called(double effect, double noise, double drift, int runs) {
  int called = 0;
  for (int seed = 1; seed <= runs; ++seed) {
    const Made made = make(static_cast<std::uint64_t>(seed) * 7919, effect, noise, drift);
    if (compare(made.first, made.second).verdict != Verdict::kInconclusive) ++called;
  }
  std::printf("%d runs, difference %.2f, noise %.2f, drift %.2f: called different in %d\n", runs,
              effect, noise, drift, called);
  return called;
}

// --- one batch, one arm ---

TEST(ProbeStatistics, TakeTheMedian) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
}

TEST(ProbeStatistics, KeepTheColdRepetitionApart) {
  const Batch batch = summarize(std::vector<double>{1, 10, 12, 11});
  EXPECT_EQ(batch.cold, 1);
  EXPECT_EQ(batch.median, 11);
  EXPECT_EQ(batch.count, 3U);
  const Batch only = summarize(std::vector<double>{7});
  EXPECT_EQ(only.cold, 7);
  EXPECT_EQ(only.count, 0U);
  EXPECT_EQ(summarize({}).count, 0U);
}

TEST(ProbeStatistics, TellThatNeighboursAreAlike) {
  Random random(5);
  std::vector<double> wandering{0, 0}, tossed{0}, alternating{0};
  for (int i = 0; i < 4000; ++i) {
    wandering.push_back(0.8 * wandering.back() + random.normal());
    tossed.push_back(random.normal());
    alternating.push_back(i % 2 == 0 ? 1 : -1);
  }
  EXPECT_THAT(summarize(wandering).autocorrelation, DoubleNear(0.8, 0.05));
  EXPECT_THAT(summarize(tossed).autocorrelation, DoubleNear(0, 0.05));
  EXPECT_THAT(summarize(alternating).autocorrelation, DoubleNear(-1, 0.01));
  EXPECT_EQ(summarize(std::vector<double>{0, 5, 5, 5, 5}).autocorrelation, 0);
  EXPECT_EQ(summarize(std::vector<double>{0, 5, 6}).autocorrelation, 0);
  std::vector<double> rounded;  // by a clock's own step, upwards
  for (int i = 0; i < 20; ++i)
    rounded.push_back(250 + 1e-6 * i);
  EXPECT_EQ(summarize(rounded).autocorrelation, 0);
}

TEST(ProbeStatistics, SpreadAnArmOverItsBatches) {
  const Arm arm = summarize_arm(std::vector<Batch>{of_rate(10), of_rate(14), of_rate(11)});
  EXPECT_EQ(arm.median, 11);
  EXPECT_EQ(arm.least, 10);
  EXPECT_EQ(arm.most, 14);
  EXPECT_EQ(arm.spread(), 4);
  EXPECT_EQ(summarize_arm({}).spread(), 0);
}

TEST(ProbeStatistics, MirrorEveryOtherBlock) {
  EXPECT_THAT(order_in_block(0, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(order_in_block(1, 3), ElementsAre(2, 1, 0));
  EXPECT_THAT(order_in_block(2, 3), ElementsAre(0, 1, 2));
}

// --- two arms ---

TEST(ProbeStatistics, CallEqualArmsDifferentAtMostOnceIn200) {
  EXPECT_LE(count_called(0, 0.01, 0, 200), 1);
  EXPECT_LE(count_called(0, 0.01, 0.10, 200), 1);
  EXPECT_LE(count_called(0, 0.05, 0.10, 200), 1);
}

TEST(ProbeStatistics, FindTenPercentBehindOnePercentOfNoise) {
  EXPECT_GE(count_called(0.10, 0.01, 0, 100), 97);
  EXPECT_GE(count_called(0.10, 0.01, 0.10, 100), 97);
  EXPECT_GE(count_called(-0.10, 0.01, 0.10, 100), 97);
}

TEST(ProbeStatistics, SayInWhichDirectionAndHowMuch) {
  const Made more = make(1, 0.10, 0.01, 0.10);
  const Comparison found = compare(more.first, more.second);
  EXPECT_EQ(found.verdict, Verdict::kMore);
  EXPECT_THAT(found.difference, DoubleNear(0.10, 0.02));
  EXPECT_LE(found.least, found.difference);
  EXPECT_GE(found.most, found.difference);
  EXPECT_EQ(found.wanting(), "");
  EXPECT_EQ(compare(more.second, more.first).verdict, Verdict::kLess) << "either way round";
}

// A drift of 10 % that one arm has more of: an analysis that pools all batches sees a difference of
// the arms where there is one of the hours.
TEST(ProbeStatistics, AreNotFooledByADriftThatFoolsPooledOnes) {
  std::vector<Batch> first, second;
  for (int block = 0; block < 8; ++block) {
    first.push_back(of_rate(200 - 4.0 * block));
    // Equal at first, and pulled down later: nothing that holds in each block.
    second.push_back(of_rate(200 - 6.5 * block));
  }
  const double pooled = summarize_arm(second).median / summarize_arm(first).median - 1;
  EXPECT_LT(pooled, -0.04) << "what a pooled analysis would report";
  const Comparison found = compare(first, second);
  EXPECT_EQ(found.verdict, Verdict::kInconclusive);
  EXPECT_THAT(found.wanting(), HasSubstr("blocks whose differences lie within 4.7 %, not 11 %"));
}

// Repetitions that hang together make a batch's own scatter look small; only batches count.
TEST(ProbeStatistics, TakeNoTrustFromRepetitionsThatHangTogether) {
  int called = 0;
  for (std::uint64_t run = 1; run <= 200; ++run) {
    Random random(run * 104729);
    Made made;
    for (int block = 0; block < 8; ++block) {
      for (auto* arm : {&made.first, &made.second}) {
        std::vector<double> repetitions{150};
        double wander = 8 * random.normal();
        for (int i = 0; i < 200; ++i) {
          wander = 0.99 * wander + 0.3 * random.normal();
          repetitions.push_back(200 + wander);
        }
        arm->push_back(summarize(repetitions));
        EXPECT_GT(arm->back().autocorrelation, 0.5);
      }
    }
    if (compare(made.first, made.second).verdict != Verdict::kInconclusive) ++called;
  }
  EXPECT_LE(called, 1);
}

TEST(ProbeStatistics, WantEnoughBlocks) {
  const Made few = make(1, 0.5, 0.01, 0, 7);
  const Comparison found = compare(few.first, few.second);
  EXPECT_EQ(found.verdict, Verdict::kInconclusive);
  EXPECT_EQ(found.wanting(), "8 blocks, of which there are 7");
  EXPECT_EQ(compare({}, {}).wanting(), "batches with a rate in both arms");
  const std::vector<Batch> same(8, of_rate(7));
  EXPECT_EQ(compare(same, same).wanting(),
            "blocks that differ; by their median these have no difference at all");
  std::vector<Batch> dead(8, of_rate(0));
  EXPECT_EQ(compare(dead, dead).verdict, Verdict::kInconclusive);
  dead[3] = of_rate(std::nan(""));
  EXPECT_EQ(compare(dead, dead).blocks, 0U);
}

// A file may say anything. What is computed of it stays finite, and proves nothing.
TEST(ProbeStatistics, TakeNoFigureThatNoMemoryHas) {
  const double most = std::numeric_limits<double>::max();
  const double least = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(median({most, most}), most);
  EXPECT_EQ(summarize_arm(std::vector<Batch>(8, of_rate(most))).median, most);
  const std::vector<Batch> sound(8, of_rate(200));
  for (const double rate : {most, least, 1e13, 1e-13, -200.0, -0.0, HUGE_VAL, std::nan("")}) {
    const std::vector<Batch> odd(8, of_rate(rate));
    for (const Comparison& found : {compare(sound, odd), compare(odd, sound), compare(odd, odd)}) {
      EXPECT_EQ(found.verdict, Verdict::kInconclusive) << rate;
      EXPECT_EQ(found.difference, 0) << rate;
      EXPECT_EQ(found.wanting(), "batches with a rate in both arms") << rate;
    }
    EXPECT_EQ(judge({odd, sound}, {odd, sound}).residency, Residency::kInconclusive) << rate;
  }
  const Comparison far =
      compare(std::vector<Batch>(8, of_rate(1e-12)), std::vector<Batch>(8, of_rate(1e12)));
  EXPECT_EQ(far.verdict, Verdict::kMore);
  EXPECT_NEAR(far.difference, 1e24, 1e15);
}

TEST(ProbeStatistics, WantWhatIsWantingAndNotTheSameAgain) {
  const std::vector<Batch> same(8, of_rate(200));
  EXPECT_EQ(compare(same, same).wanting(),
            "blocks that differ; by their median these have no difference at all");
  // A difference of 0.03 %, and a range of as much and a little more.
  std::vector<Batch> close = same;
  for (std::size_t i = 0; i < close.size(); ++i)
    close[i] = of_rate(200.06 + (i % 2 == 0 ? 0.04 : -0.04));
  EXPECT_EQ(compare(same, close).wanting(),
            "blocks whose differences lie within 0.03 %, not 0.04 %");
}

// --- residency ---

std::vector<Batch> batches(double rate, double noise, std::uint64_t seed) {
  Random random(seed);
  std::vector<Batch> made;
  for (int i = 0; i < 8; ++i)
    made.push_back(of_rate(rate * (1 + noise * random.normal())));
  return made;
}

ResidencyVerdict judge_rates(double lent_reread, double lent_streaming, double ordinary_reread,
                             double ordinary_streaming, double noise) {
  const auto lr = batches(lent_reread, noise, 1), ls = batches(lent_streaming, noise, 2),
             r = batches(ordinary_reread, noise, 3), s = batches(ordinary_streaming, noise, 4);
  return judge({lr, ls}, {r, s});
}

TEST(ProbeResidency, IsJudgedByTheGainOfReadingAgain) {
  EXPECT_EQ(judge_rates(800, 240, 820, 245, 0.01).residency, Residency::kResident);
  EXPECT_EQ(judge_rates(530, 240, 820, 245, 0.01).residency, Residency::kResident);
  EXPECT_EQ(judge_rates(400, 240, 820, 245, 0.01).residency, Residency::kPartly);
  // As was reported of a slice that L2 does not hold: below streaming.
  EXPECT_EQ(judge_rates(209, 244, 820, 245, 0.01).residency, Residency::kNotResident);
  // As fast as streaming, and nothing near what ordinary memory gains.
  EXPECT_EQ(judge_rates(244, 244, 820, 245, 0.01).residency, Residency::kNotResident);
}

// A few percent stand out on a quiet machine, and are no cache's.
TEST(ProbeResidency, IsNotFoundInAFewPercent) {
  const ResidencyVerdict reported = judge_rates(266, 248, 1679, 257, 0.002);
  EXPECT_EQ(reported.lent.verdict, Verdict::kMore) << "it does stand out";
  EXPECT_EQ(reported.residency, Residency::kNotResident);
  EXPECT_THAT(reported.why, HasSubstr("a gain of +7.0 % where ordinary memory has x6.53"));
  const ResidencyVerdict little = judge_rates(251, 244, 251, 245, 0.001);
  EXPECT_EQ(little.ordinary.verdict, Verdict::kMore);
  EXPECT_EQ(little.residency, Residency::kInconclusive);
  EXPECT_THAT(little.why, HasSubstr("too little to judge by: the machine was busy, or no cache "
                                    "keeps that size"));
  EXPECT_FALSE(little.is_for_noise);
  EXPECT_THAT(judge_rates(209, 244, 820, 245, 0.01).why,
              HasSubstr("slower than streamed: -16 % where ordinary memory has x3.35"));
}

TEST(ProbeResidency, IsInconclusiveWhereNothingCanBeTold) {
  // Noise that leaves room for half of the gain.
  const ResidencyVerdict noisy = judge_rates(244, 244, 300, 245, 0.08);
  EXPECT_EQ(noisy.residency, Residency::kInconclusive);
  EXPECT_NE(noisy.why, "");
  EXPECT_TRUE(noisy.is_for_noise);
  // A size at which nothing is kept of ordinary memory either.
  const ResidencyVerdict large = judge_rates(244, 244, 246, 245, 0.01);
  EXPECT_EQ(large.residency, Residency::kInconclusive);
  EXPECT_THAT(
      large.why,
      HasSubstr("whether ordinary memory gains by being read again cannot be told: it would "
                "need blocks whose differences lie within"));
  EXPECT_TRUE(large.is_for_noise);
  const ResidencyVerdict slower = judge_rates(244, 244, 200, 245, 0.001);
  EXPECT_THAT(slower.why, HasSubstr("shows no gain in being read again at this size: the machine "
                                    "was busy, or no cache keeps that size"));
  EXPECT_FALSE(slower.is_for_noise);
  EXPECT_EQ(judge({}, {}).residency, Residency::kInconclusive);
  EXPECT_FALSE(judge({}, {}).is_for_noise);
  // Neither quiet nor noise makes up for blocks that are not there, or that are all the same.
  const std::vector<Batch> few(3, of_rate(200)), same(8, of_rate(200));
  EXPECT_FALSE(judge({few, few}, {few, few}).is_for_noise);
  EXPECT_FALSE(judge({same, same}, {same, same}).is_for_noise);
}

}  // namespace
}  // namespace carveout::probe
