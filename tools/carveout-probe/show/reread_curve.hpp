#pragma once

// The rates of rereading over sizes, as the terminal's curve and the page's are drawn from.

#include <cstddef>
#include <string>
#include <vector>

#include "results.hpp"
#include "statistics.hpp"

namespace carveout::probe {

struct CurvePoint {
  Bytes size;
  Arm rate;
};

struct ArmCurve {
  std::size_t arm = 0;
  std::vector<CurvePoint> points;  // smaller sizes first
};

struct CacheEnd {
  std::string name;  // "L2"
  Bytes size;
};

// The axes: sizes by their logarithm, rates from 0.
struct RereadCurve {
  std::vector<ArmCurve> arms;  // those that have a point, by the report's order
  std::vector<Bytes> sizes;    // of all of them, smaller first: two at least
  std::vector<CacheEnd> ends;  // of the caches that end within the sizes
  double most = 0;             // the largest rate: of a median, and of all batches
  double most_of_all = 0;

  // Where `size` is between the smallest and the largest: 0 to 1.
  [[nodiscard]] double place(Bytes size) const;
  [[nodiscard]] bool is_empty() const { return arms.empty(); }
};

// Empty where the report has no rates of rereading over two sizes or more.
[[nodiscard]] RereadCurve reread_curve(const Report& report);

// At how many of the sizes that both have the median of an arm or that of ordinary memory lies
// within the other's least and most: "memfd/host: at 31 of 34 sizes its median or ...", one an arm.
// It describes curves and is no verdict.
[[nodiscard]] std::vector<std::string> likenesses(const Report& report, const RereadCurve& curve);

// A round number (1, 2 or 5 times a power of ten) of which about `parts` make up `most`.
[[nodiscard]] double round_step(double most, int parts);

// A multiple of `step` with as many digits as the step needs.
[[nodiscard]] std::string tick_label(double value, double step);

// The sizes that labels are for: the powers of two, or all where those are fewer than two or leave
// out `judged`.
[[nodiscard]] std::vector<Bytes> sizes_to_label(const RereadCurve& curve, Bytes judged);

// Every how many of `places` (in units of a label's width, in order) may be labelled so that no two
// labels meet. 1 where all may.
[[nodiscard]] std::size_t label_stride(const std::vector<double>& places);

}  // namespace carveout::probe
