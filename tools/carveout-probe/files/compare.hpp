#pragma once

// Two runs, by the same rules as two arms of one. Pure.

#include <string>
#include <vector>

#include "base/result.hpp"
#include "results.hpp"
#include "statistics.hpp"

namespace carveout::probe {

// What a run has a series of. Arms are known by their names: the same arm has another index in
// another run.
struct Measured {
  std::string arm;
  Row row = Row::kRead;
  Bytes size;
  friend bool operator==(const Measured&, const Measured&) = default;
};

struct Difference {
  Measured of;
  Arm first, second;
  Comparison comparison;  // of the second against the first, the i-th batch against the i-th
};

// One of the runs that are compared.
struct Compared {
  std::string name;  // the file's
  std::string version;
  double started_unix_s = 0;
};

struct Differences {
  Compared first, second;
  std::string command;
  EngineKind engine = EngineKind::kCpu;
  Bytes size;
  std::vector<Difference> found;  // in the first run's order
  std::vector<Measured> only_in_first, only_in_second;
  // In what the runs were not alike, and what else a reader must know: a sentence each.
  std::vector<std::string> remarks;
};

// The error (kRefused) names the files: runs of different commands, engines or sizes, or that have
// nothing in common. There is something in `found`.
Result<Differences> compare_reports(const Report& a, const std::string& name_a, const Report& b,
                                    const std::string& name_b);

// For people.
[[nodiscard]] std::string differences_table(const Differences& differences);
// As comparison.schema.json has it. The error (kInvalid) is a figure that is not finite.
Result<std::string> differences_json(const Differences& differences);

inline constexpr const char* kComparisonSchema = "carveout-probe-comparison/1";

}  // namespace carveout::probe
