#include "outcome.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "client/l2_class.hpp"
#include "exit_codes.hpp"
#include "findings.hpp"

namespace carveout::probe {
namespace {

// Of the first arm of it; the first of all is what it would have been compared with.
std::string reason(const Report& report, const std::string& source) {
  const auto arm = std::find_if(report.arms.begin() + 1, report.arms.end(),
                                [&](const auto& one) { return one.source == source; });
  return arm == report.arms.end() ? "" : cat(": ", arm->name, ": ", arm->unavailable);
}

// What a run of nothing but ordinary memory is told (`info` measures nothing anyway).
constexpr const char* kNothingToCompare =
    "; nothing was measured, as there is nothing to compare ordinary memory with (--source "
    "ordinary measures it against itself)";

bool is_nothing_to_compare(const Report& report) {
  return report.command != "info" && report.series.empty();
}

std::string missing_source(const Report& report, const std::vector<std::string>& sources) {
  for (const std::string& source : sources) {
    const bool had = std::any_of(report.arms.begin() + 1, report.arms.end(), [&](const auto& arm) {
      return arm.source == source && arm.unavailable.empty();
    });
    if (!had) return source;
  }
  return "";
}

// All of them, what is lent first: the others are there for comparison.
std::string not_resident(const Report& report, std::vector<ArmResidency> arms) {
  std::stable_partition(arms.begin(), arms.end(), [&report](const ArmResidency& one) {
    return client::is_lent(report.arms[one.arm].source);
  });
  std::string all;
  for (const ArmResidency& one : arms) {
    all += cat(all.empty() ? "" : "; ", report.arms[one.arm].name,
               " is required to be resident, and is ", name_of(one.verdict.residency), ": ",
               one.verdict.why);
  }
  return all;
}

}  // namespace

Outcome outcome_of(const Report& report, const std::vector<std::string>& sources,
                   bool require_resident) {
  for (const ArmRecord& arm : report.arms) {
    if (!arm.ended.empty()) return {kFailed, cat(arm.name, " ended early: ", arm.ended)};
  }
  if (const ArmRecord& ordinary = report.arms.front(); !ordinary.unavailable.empty()) {
    return {kFailed, cat("no ordinary memory to compare with: ", ordinary.unavailable)};
  }
  if (const std::string source = missing_source(report, sources); !source.empty()) {
    return {kFailed,
            cat("no memory of ", source, " could be had", reason(report, source),
                is_nothing_to_compare(report) && source != "ordinary" ? kNothingToCompare : "")};
  }
  if (!require_resident) return {};
  auto found = residencies(report);
  if (found.empty()) return {kRefused, "nothing was measured that could be resident"};
  std::erase_if(
      found, [](const ArmResidency& one) { return one.verdict.residency == Residency::kResident; });
  if (found.empty()) return {};
  return {kRefused, not_resident(report, std::move(found))};
}

}  // namespace carveout::probe
