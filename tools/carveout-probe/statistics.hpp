#pragma once

// What batches say, and what they do not. Pure: no clock, no machine.
//
// The unit of evidence is a batch, one arm's share of a block: many repetitions, of which the first
// is cold and stands by itself, reported as the median of the others. Repetitions are never pooled
// across batches. Arms are compared within blocks only, so what drifts is shared.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace carveout::probe {

// 0 for no values; the mean of the two in the middle of an even number.
[[nodiscard]] double median(std::vector<double> values);

struct Batch {
  double cold = 0;    // the first repetition
  double median = 0;  // of the others
  // Of the others, by their order: -1 to 1; 0 where they are fewer than three or all the same but
  // for rounding.
  double autocorrelation = 0;
  std::size_t count = 0;  // of the others
};

// `repetitions` in their order, the cold one first.
[[nodiscard]] Batch summarize(std::span<const double> repetitions);

struct Arm {
  double median = 0;  // of the batches' medians
  double least = 0, most = 0;
  [[nodiscard]] double spread() const { return most - least; }
};

[[nodiscard]] Arm summarize_arm(std::span<const Batch> batches);

// In which order a block holds the arms: as they are counted, and backwards in every other block.
[[nodiscard]] std::vector<std::size_t> order_in_block(std::size_t block, std::size_t arms);

enum class Verdict { kInconclusive, kLess, kMore };

// One arm against another, block by block.
struct Comparison {
  Verdict verdict = Verdict::kInconclusive;  // of the second
  // How much more the second has, as a part of the first: the median of the blocks' ratios, and the
  // least and the most of them.
  double difference = 0, least = 0, most = 0;
  std::size_t blocks = 0;

  // What a conclusive run would need, for people; empty where this one is. Longer batches and a
  // quieter machine bring the differences closer together.
  [[nodiscard]] std::string wanting() const;
  // Whether it is the blocks' range that keeps this one from being conclusive: noise.
  [[nodiscard]] bool is_scattered() const;
};

// The i-th batch of each is of block i. They differ only if the median of the blocks' differences
// exceeds their range (largest minus smallest) in size; fewer than kLeastBlocks tell nothing. The
// differences are of logarithms, so that neither arm is the measure of the other. Batches beyond
// the shorter list are not looked at; a median that no memory can have tells nothing: one that is
// not positive, or beyond what any unit is for (1e-12 to 1e12).
inline constexpr std::size_t kLeastBlocks = 8;
[[nodiscard]] Comparison compare(std::span<const Batch> first, std::span<const Batch> second);

enum class Residency { kInconclusive, kNotResident, kPartly, kResident };

// What one arm shows at one size: the rate of reading it again and again, and of streaming.
struct Reads {
  std::span<const Batch> reread, streaming;
};

struct ResidencyVerdict {
  Residency residency = Residency::kInconclusive;
  Comparison lent, ordinary;  // rereading against streaming, each
  std::string why;            // for people
  // Whether it is inconclusive for noise alone, which a quiet machine may be without.
  bool is_for_noise = false;
};

// Whether the GPU's L2 (or the processor's caches) keep what is lent, by the gain of rereading over
// streaming. Resident: it stands above streaming, and has at least half of ordinary memory's gain.
// Partly: at least a tenth. Not resident: less, or it is below streaming, or what it may have of a
// gain (its median and its range) is less than half of ordinary memory's. Inconclusive: they cannot
// be told apart, or ordinary memory itself gains less than 10 %. (docs/decisions/0009)
[[nodiscard]] ResidencyVerdict judge(const Reads& lent, const Reads& ordinary);

}  // namespace carveout::probe
