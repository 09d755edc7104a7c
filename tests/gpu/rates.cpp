// Whether what carveout-probe measured of this GPU's own memory can be: what tests/gpu/run runs.
// Usage: gpu_rates BANDWIDTH.json RESIDENCY.json

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/text.hpp"
#include "files/result_file.hpp"
#include "statistics.hpp"

namespace carveout::probe {
namespace {

// Of a large copy's one-way rate, which has to read as much and to write it, too.
constexpr double kLeastOfCopy = 0.9;
// Of reading from beyond the L2, where reading within it is not worth the name otherwise.
constexpr double kLeastGain = 1.2;

std::optional<double> rate(const Report& report, std::size_t arm, Row row, Bytes size) {
  const Series* const series = find(report, arm, row, size);
  if (series == nullptr || series->batches.empty()) return std::nullopt;
  return summarize_arm(series->batches).median;
}

int complain(const std::string& what) {
  std::printf("FAILED: %s\n", what.c_str());
  return 1;
}

// Of ordinary memory, which nothing of ours stands behind.
int check_streaming(const Report& report) {
  const auto read = rate(report, 0, Row::kRead, report.size);
  const auto into = rate(report, 0, Row::kDriverCopyInto, report.size);
  const auto out = rate(report, 0, Row::kDriverCopyOutOf, report.size);
  if (!read || !into || !out) return complain("ordinary memory was not measured");
  const double copied = std::max(*into, *out);
  std::printf("streaming read %.1f GB/s, cuMemcpyDtoD %.1f GB/s one-way: %.2f of it\n", *read,
              copied, *read / copied);
  return *read >= kLeastOfCopy * copied ? 0 : complain("the streaming read is too slow");
}

// Where the rate of rereading ordinary memory falls: the device says where its L2 ends.
int check_cliff(const Report& report) {
  if (report.machine.cache_bytes.empty()) return complain("the device does not tell its L2");
  const double l2 = static_cast<double>(report.machine.cache_bytes.front());
  std::vector<std::pair<double, double>> curve;
  for (const Series& series : report.series) {
    if (series.arm != 0 || series.row != Row::kReread || series.batches.empty()) continue;
    curve.emplace_back(static_cast<double>(series.size.count()),
                       summarize_arm(series.batches).median);
  }
  const auto within = rate(report, 0, Row::kReread, report.reread_size);
  if (!within || curve.empty() || curve.back().first < 4 * l2) {
    return complain("the curve does not go from within the L2 to four times of it");
  }
  const double beyond = curve.back().second;
  const double middle = std::sqrt(*within * beyond);
  const auto fallen = std::find_if(curve.begin(), curve.end(), [&](const auto& point) {
    return point.first > l2 / 3 && point.second < middle;
  });
  const double place = fallen == curve.end() ? 0 : fallen->first;
  std::printf(
      "rereading %.1f GB/s within the L2 of %.1f MiB, %.1f GB/s beyond; it falls at %.1f "
      "MiB\n",
      *within, l2 / 1048576, beyond, place / 1048576);
  if (*within < kLeastGain * beyond) return complain("rereading shows no L2");
  return place >= l2 / 2 && place <= l2 * 2 ? 0 : complain("it falls elsewhere than the L2 ends");
}

int check(const char* bandwidth, const char* residency) {
  const auto first = read_report(bandwidth);
  if (!first) return complain(first.error().describe());
  const auto second = read_report(residency);
  if (!second) return complain(second.error().describe());
  return std::max(check_streaming(*first), check_cliff(*second));
}

}  // namespace
}  // namespace carveout::probe

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: gpu_rates BANDWIDTH.json RESIDENCY.json\n", stderr);
    return 2;
  }
  return carveout::probe::check(argv[1], argv[2]);
}
