#include "show/reread_curve.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>

#include "base/text.hpp"
#include "writing.hpp"

namespace carveout::probe {
namespace {

// How far a step may be below what was asked for.
constexpr double kNearEnough = 1.25;

double logarithm(Bytes size) {
  return std::log2(static_cast<double>(size.count()));
}

bool is_drawable(const Series& series, const Arm& rate) {
  return series.size.count() > 0 && std::isfinite(rate.most) && rate.least >= 0 && rate.most > 0;
}

void add(RereadCurve& curve, const Series& series) {
  const Arm rate = summarize_arm(series.batches);
  if (series.row != Row::kReread || series.batches.empty() || !is_drawable(series, rate)) return;
  auto arm = std::find_if(curve.arms.begin(), curve.arms.end(),
                          [&series](const ArmCurve& one) { return one.arm == series.arm; });
  if (arm == curve.arms.end()) arm = curve.arms.insert(arm, {series.arm, {}});
  arm->points.push_back({series.size, rate});
  curve.sizes.push_back(series.size);
  curve.most = std::max(curve.most, rate.median);
  curve.most_of_all = std::max(curve.most_of_all, rate.most);
}

}  // namespace

double RereadCurve::place(Bytes size) const {
  return (logarithm(size) - logarithm(sizes.front())) /
         (logarithm(sizes.back()) - logarithm(sizes.front()));
}

RereadCurve reread_curve(const Report& report) {
  RereadCurve curve;
  for (const Series& series : report.series)
    add(curve, series);
  std::sort(curve.sizes.begin(), curve.sizes.end());
  curve.sizes.erase(std::unique(curve.sizes.begin(), curve.sizes.end()), curve.sizes.end());
  if (curve.sizes.size() < 2) return {};
  std::sort(curve.arms.begin(), curve.arms.end(),
            [](const ArmCurve& a, const ArmCurve& b) { return a.arm < b.arm; });
  for (ArmCurve& arm : curve.arms) {
    std::sort(arm.points.begin(), arm.points.end(),
              [](const CurvePoint& a, const CurvePoint& b) { return a.size < b.size; });
  }
  for (std::size_t i = 0; i < report.machine.cache_bytes.size(); ++i) {
    const Bytes size(report.machine.cache_bytes[i]);
    if (size < curve.sizes.front() || size > curve.sizes.back()) continue;
    curve.ends.push_back({cache_name(report.engine, i), size});
  }
  return curve;
}

std::vector<std::string> likenesses(const Report& report, const RereadCurve& curve) {
  if (curve.is_empty() || curve.arms.front().arm != 0 || !report.arms.front().is_ordinary())
    return {};
  const auto within = [](double median, const Arm& other) {
    return other.least <= median && median <= other.most;
  };
  std::map<Bytes, Arm> ordinary;
  for (const CurvePoint& point : curve.arms.front().points)
    ordinary.emplace(point.size, point.rate);
  std::vector<std::string> sentences;
  for (std::size_t i = 1; i < curve.arms.size(); ++i) {
    std::size_t alike = 0, sizes = 0;
    for (const auto& [size, rate] : curve.arms[i].points) {
      const auto other = ordinary.find(size);
      if (other == ordinary.end()) continue;
      ++sizes;
      if (within(rate.median, other->second) || within(other->second.median, rate)) ++alike;
    }
    if (sizes == 0) continue;
    sentences.push_back(cat(arm_name(report, curve.arms[i].arm), ": at ", alike, " of ", sizes,
                            sizes == 1 ? " size" : " sizes", " its median or that of ",
                            arm_name(report, 0), " lies within the other's least and most."));
  }
  return sentences;
}

double round_step(double most, int parts) {
  const double about = most / parts;
  const double power = std::pow(10, std::floor(std::log10(about)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (about <= step * power * kNearEnough) return step * power;
  }
  return 10 * power;
}

std::string tick_label(double value, double step) {
  return fixed(value, std::max(0, static_cast<int>(-std::floor(std::log10(step * 1.0000001)))));
}

std::vector<Bytes> sizes_to_label(const RereadCurve& curve, Bytes judged) {
  std::vector<Bytes> powers;
  std::copy_if(curve.sizes.begin(), curve.sizes.end(), std::back_inserter(powers),
               [](Bytes size) { return std::has_single_bit(size.count()); });
  const auto has_judged = [judged](const std::vector<Bytes>& sizes) {
    return std::find(sizes.begin(), sizes.end(), judged) != sizes.end();
  };
  const bool leaves_out = has_judged(curve.sizes) && !has_judged(powers);
  return powers.size() < 2 || leaves_out ? curve.sizes : powers;
}

std::size_t label_stride(const std::vector<double>& places) {
  const auto meet = [&places](std::size_t stride) {
    for (std::size_t i = stride; i < places.size(); i += stride)
      if (places[i] - places[i - stride] < 1) return true;
    return false;
  };
  std::size_t stride = 1;
  while (meet(stride))
    ++stride;
  return stride;
}

}  // namespace carveout::probe
