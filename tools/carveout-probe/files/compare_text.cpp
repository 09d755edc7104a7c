#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/json.hpp"
#include "base/text.hpp"
#include "files/compare.hpp"
#include "files/result_file.hpp"
#include "writing.hpp"

namespace carveout::probe {
namespace {

constexpr std::size_t kMaxText = 200;

// "+10.0 %"
std::string percent(double fraction) {
  return cat(fraction < 0 ? "" : "+", fixed(fraction * 100, 1), " %");
}

std::string with_unit(double value, Unit unit) {
  return cat(fixed(value, value < 100 ? 2 : 1), " ", name_of(unit));
}

// In words that are true of rates and of times.
std::string verdict_of(const Difference& difference) {
  const Comparison& comparison = difference.comparison;
  if (comparison.verdict == Verdict::kInconclusive) return "inconclusive";
  const bool more = comparison.verdict == Verdict::kMore;
  const bool faster = more == more_is_better(facts(difference.of.row).unit);
  return cat(more ? "more" : "less", faster ? ": faster" : ": slower");
}

using Line = std::vector<std::string>;

// Columns as wide as their widest cell.
std::string render(const std::vector<Line>& lines) {
  std::vector<std::size_t> widths;
  for (const Line& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (std::size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], line[i].size());
  }
  std::string table;
  for (const Line& line : lines) {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i)
      text += cat(i == 0 ? "" : "  ", line[i], std::string(widths[i] - line[i].size(), ' '));
    text.erase(text.find_last_not_of(' ') + 1);
    table += cat(text, "\n");
  }
  return table;
}

std::string words_of(const Measured& of) {
  return cat(facts(of.row).title, " (", printable(of.arm, kMaxText), ") at ",
             format_bytes(of.size));
}

class DifferencesWriter {
 public:
  explicit DifferencesWriter(const Differences& differences) : all_(differences) {}

  Result<std::string> write() {
    json_.object()
        .text("schema", kComparisonSchema)
        .text("command", all_.command)
        .text("engine", name_of(all_.engine))
        .number("size_bytes", all_.size.count());
    write_run("first", all_.first);
    write_run("second", all_.second);
    json_.array("differences");
    for (const Difference& one : all_.found)
      write_difference(one);
    json_.end_array();
    write_only("only_in_first", all_.only_in_first);
    write_only("only_in_second", all_.only_in_second);
    json_.array("remarks");
    for (const std::string& remark : all_.remarks)
      json_.string(remark);
    json_.end_array().end();
    if (!problem_.empty()) return Error{Code::kInvalid, 0, "the comparison", problem_};
    return cat(json_.take(), "\n");
  }

 private:
  void write_run(std::string_view key, const Compared& run) {
    json_.object(key).text("name", run.name).text("version", run.version);
    real("started_unix_s", run.started_unix_s, run.name);
    json_.end();
  }

  void write_measured(const Measured& of) {
    json_.text("row", facts(of.row).name).text("arm", of.arm).number("size_bytes", of.size.count());
  }

  void write_difference(const Difference& one) {
    const std::string of = words_of(one.of);
    const std::string suffix = cat("_median_", field_suffix_of(facts(one.of.row).unit));
    json_.object();
    write_measured(one.of);
    real(cat("first", suffix), one.first.median, of);
    real(cat("second", suffix), one.second.median, of);
    json_.text("verdict", word_of(one.comparison.verdict));
    real("difference_fraction", one.comparison.difference, of);
    real("least_fraction", one.comparison.least, of);
    real("most_fraction", one.comparison.most, of);
    json_.number("blocks", one.comparison.blocks);
    const std::string wanting = one.comparison.wanting();
    if (!wanting.empty()) json_.text("wanting", wanting);
    json_.end();
  }

  void write_only(std::string_view key, const std::vector<Measured>& all) {
    json_.array(key);
    for (const Measured& of : all) {
      json_.object();
      write_measured(of);
      json_.end();
    }
    json_.end_array();
  }

  void real(std::string_view key, double value, std::string_view of) {
    if (std::isfinite(value)) {
      json_.real(key, value);
    } else if (problem_.empty()) {
      problem_ = cat(of, ": ", key, " is not a finite number");
    }
  }

  const Differences& all_;
  IndentingJsonWriter json_;
  std::string problem_;
};

}  // namespace

std::string differences_table(const Differences& differences) {
  const std::string first = printable(differences.first.name, kMaxText);
  const std::string second = printable(differences.second.name, kMaxText);
  std::string text = cat("first:  ", first, "\nsecond: ", second,
                         "\nMore and less are the second's. Of a rate more is faster, of a time "
                         "less is.\n\n");
  std::vector<Line> lines{
      {"ROW", "SIZE", "ARM", "FIRST", "SECOND", "DIFFERENCE", "OF THE BLOCKS", "THE SECOND HAS"}};
  for (const Difference& one : differences.found) {
    const Unit unit = facts(one.of.row).unit;
    const Comparison& comparison = one.comparison;
    lines.push_back({facts(one.of.row).title, format_bytes(one.of.size),
                     printable(one.of.arm, kMaxText), with_unit(one.first.median, unit),
                     with_unit(one.second.median, unit), percent(comparison.difference),
                     cat(percent(comparison.least), " to ", percent(comparison.most)),
                     verdict_of(one)});
  }
  text += render(lines);
  text += "DIFFERENCE is the median of the blocks' own differences, not that of the two medians\n";
  const bool is_open = std::any_of(
      differences.found.begin(), differences.found.end(),
      [](const Difference& one) { return one.comparison.verdict == Verdict::kInconclusive; });
  if (is_open) {
    text +=
        cat("inconclusive: no difference that is larger than its range over the blocks, of "
            "which there must be ",
            kLeastBlocks, "; longer batches and a quieter machine make the range smaller\n");
  }
  for (const Measured& of : differences.only_in_first)
    text += cat("only in ", first, ": ", words_of(of), "\n");
  for (const Measured& of : differences.only_in_second)
    text += cat("only in ", second, ": ", words_of(of), "\n");
  for (const std::string& remark : differences.remarks)
    text += cat("note: ", remark, "\n");
  return text;
}

Result<std::string> differences_json(const Differences& differences) {
  return DifferencesWriter(differences).write();
}

}  // namespace carveout::probe
