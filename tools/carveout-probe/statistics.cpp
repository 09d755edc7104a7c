#include "statistics.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <locale>
#include <numeric>
#include <sstream>

#include "writing.hpp"

namespace carveout::probe {
namespace {

double mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values)
    sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// Of what a single-precision time (cuEventElapsedTime()) is rounded by, and more.
constexpr double kRounding = 1e-6;

double autocorrelation(std::span<const double> values) {
  if (values.size() < 3) return 0;
  const double middle = mean(values);
  double together = 0, alone = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double here = values[i] - middle;
    alone += here * here;
    if (i + 1 < values.size()) together += here * (values[i + 1] - middle);
  }
  const double rounding = kRounding * middle;
  return alone > static_cast<double>(values.size()) * rounding * rounding ? together / alone : 0;
}

// With as many digits as it takes to tell it from none.
std::string percent(double part) {
  const double size = std::abs(part);
  const int digits = size >= 0.0995                 ? 0
                     : size >= 0.00095 || size == 0 ? 1
                     : size >= 0.000095             ? 2
                                                    : 4;
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << std::fixed << std::setprecision(digits) << part * 100 << " %";
  return text.str();
}

// Beyond these, in whatever unit, it is no memory's: a file may say so, and what is computed of it
// is infinite sooner or later.
constexpr double kLeastRate = 1e-12;
constexpr double kMostRate = 1e12;

bool is_rate(double median) {
  return median >= kLeastRate && median <= kMostRate;
}

double as_part(double logarithm) {
  return std::expm1(logarithm);
}

// Without a name of their own in the header: the logarithms that compare() has looked at.
struct Logarithms {
  double median = 0, least = 0, most = 0;
  std::size_t count = 0;
  [[nodiscard]] double range() const { return most - least; }
};

std::optional<Logarithms> differences(std::span<const Batch> first, std::span<const Batch> second) {
  std::vector<double> all;
  for (std::size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
    if (!is_rate(first[i].median) || !is_rate(second[i].median)) return std::nullopt;
    all.push_back(std::log(second[i].median / first[i].median));
  }
  if (all.empty()) return std::nullopt;
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  return Logarithms{median(all), *least, *most, all.size()};
}

// Below that a gain is the translations' or the DRAM pages', not a cache's: nothing to judge by.
constexpr double kLeastOrdinaryGain = 0.1;
constexpr const char* kWhyNoGain = "the machine was busy, or no cache keeps that size";
// Of ordinary memory's gain: what has less of it is not kept, however quiet the machine.
constexpr double kLeastPart = 0.1;

Residency residency_of(double part) {
  if (part >= 0.5) return Residency::kResident;
  return part < kLeastPart ? Residency::kNotResident : Residency::kPartly;
}

bool is_conclusive(const Logarithms& what) {
  return what.count >= kLeastBlocks && std::abs(what.median) > what.range();
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return std::midpoint(*std::max_element(values.begin(), middle), *middle);
}

Batch summarize(std::span<const double> repetitions) {
  if (repetitions.empty()) return {};
  const std::span<const double> warm = repetitions.subspan(1);
  return {.cold = repetitions.front(),
          .median = median({warm.begin(), warm.end()}),
          .autocorrelation = autocorrelation(warm),
          .count = warm.size()};
}

Arm summarize_arm(std::span<const Batch> batches) {
  if (batches.empty()) return {};
  std::vector<double> medians;
  for (const Batch& batch : batches)
    medians.push_back(batch.median);
  const auto [least, most] = std::minmax_element(medians.begin(), medians.end());
  return {median(medians), *least, *most};
}

std::vector<std::size_t> order_in_block(std::size_t block, std::size_t arms) {
  std::vector<std::size_t> order(arms);
  for (std::size_t i = 0; i < arms; ++i)
    order[i] = block % 2 == 0 ? i : arms - 1 - i;
  return order;
}

Comparison compare(std::span<const Batch> first, std::span<const Batch> second) {
  const auto found = differences(first, second);
  if (!found) return {};
  Comparison comparison{Verdict::kInconclusive, as_part(found->median), as_part(found->least),
                        as_part(found->most), found->count};
  if (is_conclusive(*found)) {
    comparison.verdict = found->median > 0 ? Verdict::kMore : Verdict::kLess;
  }
  return comparison;
}

bool Comparison::is_scattered() const {
  return verdict == Verdict::kInconclusive && blocks >= kLeastBlocks && difference != 0;
}

std::string Comparison::wanting() const {
  if (verdict != Verdict::kInconclusive) return {};
  if (blocks == 0) return "batches with a rate in both arms";
  if (blocks < kLeastBlocks) {
    return std::to_string(kLeastBlocks) + " blocks, of which there " +
           (blocks == 1 ? "is " : "are ") + std::to_string(blocks);
  }
  if (!is_scattered()) return "blocks that differ; by their median these have no difference at all";
  const double range = std::log1p(most) - std::log1p(least);
  return "blocks whose differences lie within " + percent(std::abs(difference)) + ", not " +
         percent(as_part(range));
}

ResidencyVerdict judge(const Reads& lent, const Reads& ordinary) {
  ResidencyVerdict verdict;
  verdict.lent = compare(lent.streaming, lent.reread);
  verdict.ordinary = compare(ordinary.streaming, ordinary.reread);
  const double ordinary_gain = verdict.ordinary.difference;
  if (verdict.ordinary.verdict == Verdict::kInconclusive) {
    verdict.why =
        "whether ordinary memory gains by being read again cannot be told: it would need " +
        verdict.ordinary.wanting();
    verdict.is_for_noise = verdict.ordinary.is_scattered();
    return verdict;
  }
  if (verdict.ordinary.verdict == Verdict::kLess) {
    verdict.why = std::string("ordinary memory shows no gain in being read again at this size: ") +
                  kWhyNoGain;
    return verdict;
  }
  if (ordinary_gain < kLeastOrdinaryGain) {
    verdict.why = "ordinary memory has a gain of " + change(ordinary_gain) +
                  " only in being read again at this size, too little to judge by: " + kWhyNoGain;
    return verdict;
  }
  const std::string both =
      change(verdict.lent.difference) + " where ordinary memory has " + change(ordinary_gain);
  const auto found = differences(lent.streaming, lent.reread);
  switch (verdict.lent.verdict) {
    case Verdict::kMore:
      verdict.residency = residency_of(verdict.lent.difference / ordinary_gain);
      verdict.why = "a gain of " + both;
      break;
    case Verdict::kLess:
      verdict.residency = Residency::kNotResident;
      verdict.why = "read again it is slower than streamed: " + both;
      break;
    case Verdict::kInconclusive:
      if (found && found->count >= kLeastBlocks &&
          as_part(found->median + found->range()) < ordinary_gain / 2) {
        verdict.residency = Residency::kNotResident;
        verdict.why = "no gain that stands out, and none of half of ordinary memory's: " + both;
      } else {
        verdict.why =
            "rereading and streaming cannot be told apart: it would need " + verdict.lent.wanting();
        verdict.is_for_noise = verdict.lent.is_scattered();
      }
      break;
  }
  return verdict;
}

}  // namespace carveout::probe
