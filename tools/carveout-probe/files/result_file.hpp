#pragma once

// A report as a file: JSON as result.schema.json has it, numbers as numbers, units in the names.

#include <string>
#include <vector>

#include "base/result.hpp"
#include "findings.hpp"
#include "results.hpp"

namespace carveout::probe {

// What follows from the report, by findings.hpp. It is written for whoever reads the file with
// something else; from_json() has the report alone, from which it follows again.
struct Findings {
  std::vector<AgainstOrdinary> against_ordinary;
  std::vector<ArmResidency> residencies;
  std::vector<std::string> remarks;
};

// As files have them: "less", "not_resident".
[[nodiscard]] const char* word_of(Verdict verdict);
[[nodiscard]] const char* word_of(Residency residency);

// Always in the same order. Text is made printable. The error (kInvalid) is a report that no file
// can hold: a figure that is not finite or less than nothing, an arm that there is not or that is
// named like another, a batch without the moment when it was taken.
Result<std::string> to_json(const Report& report, const Findings& findings);

// What to_json() was given. `name` is the file's, for errors, which name the place in it and what
// was expected there (kInvalid; kRefused for another schema); see result_check.hpp for what is too
// large.
Result<Report> from_json(const std::string& text, const std::string& name);

// The same from the file at `path`: a regular one, or what is there to be read at once.
Result<Report> read_report(const std::string& path);

}  // namespace carveout::probe
