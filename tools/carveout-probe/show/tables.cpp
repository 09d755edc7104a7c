#include "show/tables.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "findings.hpp"
#include "writing.hpp"

namespace carveout::probe {
namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kGap = 2;
constexpr std::size_t kLongestReason = 1000;

// What stands in one arm's column for one row: two lines.
struct Cell {
  std::string figure = "-";
  std::string mark;     // against ordinary memory
  std::string beneath;  // spread and cold
};

struct Column {
  std::string name;
  std::vector<Cell> cells;  // one a row
  std::size_t figures = 0;  // the width of the widest figure
  std::size_t width = 0;
};

std::string padded(std::string text, std::size_t columns) {
  text.append(columns - std::min(columns, width(text)), ' ');
  return text;
}

std::string spaces(std::size_t many) {
  return std::string(many, ' ');
}

// "+12 %", "=?", or nothing for ordinary memory itself.
std::string mark(const std::vector<AgainstOrdinary>& all, std::size_t arm, const RowAt& row) {
  const auto one = std::find_if(all.begin(), all.end(), [&](const AgainstOrdinary& other) {
    return other.arm == arm && other.row == row.row && other.size == row.size;
  });
  if (one == all.end()) return {};
  return one->comparison.verdict == Verdict::kInconclusive ? "=?"
                                                           : change(one->comparison.difference);
}

Column column_of(const Report& report, std::size_t arm, const std::vector<RowAt>& rows,
                 const std::vector<AgainstOrdinary>& all) {
  Column column{arm_name(report, arm), {}};
  for (const RowAt& row : rows) {
    Cell cell;
    if (const Series* series = find(report, arm, row.row, row.size);
        series != nullptr && !series->batches.empty()) {
      const Arm found = summarize_arm(series->batches);
      cell = {figure(found.median), mark(all, arm, row),
              cat("(", figure(found.least), "-", figure(found.most), ") / ",
                  figure(cold_median(*series)))};
    }
    column.figures = std::max(column.figures, cell.figure.size());
    column.cells.push_back(std::move(cell));
  }
  column.width = width(column.name);
  for (const Cell& cell : column.cells) {
    column.width = std::max({column.width, cell.beneath.size(),
                             column.figures + (cell.mark.empty() ? 0 : 1 + cell.mark.size())});
  }
  return column;
}

std::string without_trailing_spaces(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// The rows with these columns beside each other.
std::string side_by_side(const Report& report, const std::vector<RowAt>& rows,
                         const std::vector<const Column*>& columns, std::size_t label_width) {
  std::string head = spaces(label_width);
  for (const Column* column : columns)
    head += spaces(kGap) + padded(column->name, column->width);
  std::string text = without_trailing_spaces(head) + '\n';
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string above = padded(label(report, rows[i]), label_width);
    std::string below = padded(cat("  ", name_of(facts(rows[i].row).unit)), label_width);
    for (const Column* column : columns) {
      const Cell& cell = column->cells[i];
      const std::string figure = spaces(column->figures - cell.figure.size()) + cell.figure +
                                 (cell.mark.empty() ? std::string() : cat(" ", cell.mark));
      above += spaces(kGap) + padded(figure, column->width);
      below += spaces(kGap) + padded(cell.beneath, column->width);
    }
    text += without_trailing_spaces(above) + '\n' + without_trailing_spaces(below) + '\n';
  }
  return text;
}

std::string legend(const Report& report, const std::vector<AgainstOrdinary>& all) {
  std::string text = wrapped(
      "Above the median of the batches, one a block; beneath it (least-most) of them / the median "
      "of their first repetitions, which are cold.",
      kColumns);
  if (!all.empty()) {
    text += wrapped(cat("+12 %, -30 %, x25, x0.05: so much more or less than ", arm_name(report, 0),
                        ", or so many times as much (from twice on, and below a tenth), within "
                        "blocks. =?: cannot be told apart from it."),
                    kColumns);
  }
  return text;
}

std::string figures(const Report& report) {
  const std::vector<RowAt> rows = table_rows(report);
  if (rows.empty()) return "Nothing was measured.\n";
  const std::vector<AgainstOrdinary> all = against_ordinary(report);
  std::size_t label_width = 0;
  for (const RowAt& row : rows)
    label_width = std::max(label_width, width(label(report, row)));
  std::vector<Column> columns;
  for (std::size_t arm = 0; arm < report.arms.size(); ++arm) {
    Column column = column_of(report, arm, rows, all);
    const bool is_measured = std::any_of(column.cells.begin(), column.cells.end(),
                                         [](const Cell& cell) { return !cell.beneath.empty(); });
    if (is_measured) columns.push_back(std::move(column));
  }
  const auto room = [&](const std::vector<const Column*>& group, const Column& one) {
    std::size_t used = label_width + kGap + one.width;
    for (const Column* other : group)
      used += kGap + other->width;
    return used <= kColumns;
  };
  std::string text;
  std::vector<const Column*> group;
  for (const Column& column : columns) {
    if (group.size() > 1 && !room(group, column)) {
      text += side_by_side(report, rows, group, label_width) + '\n';
      group = {&columns.front()};
    }
    group.push_back(&column);
  }
  return text + side_by_side(report, rows, group, label_width) + '\n' + legend(report, all);
}

std::string heading(const Report& report) {
  const auto lasted = std::max(0.0, report.ended_unix_s - report.started_unix_s);
  std::string text = wrapped(
      cat("carveout-probe ", printable(report.version, 64), " ", printable(report.command, 64),
          ": ", name_of(report.engine), " engine (", printable(report.engine_detail, 256), ")"),
      kColumns);
  text +=
      wrapped(cat(format_bytes(report.size), " of each memory, ", how_many(report.blocks, "block"),
                  ", ", utc(report.started_unix_s), ", ", fixed(lasted, 0), " s"),
              kColumns);
  return text;
}

std::string verdicts(const Report& report) {
  if (report.command != "residency") return {};
  std::string text = wrapped(cat("Residency in ", with_size(judged_cache(report)), ", judged at ",
                                 format_bytes(report.reread_size), ":"),
                             kColumns);
  const auto all = residencies(report);
  if (all.empty()) {
    const bool is_ordinary_alone =
        std::all_of(report.arms.begin(), report.arms.end(),
                    [](const ArmRecord& arm) { return arm.is_ordinary(); });
    text += is_ordinary_alone
                ? "  nothing but ordinary memory was asked for: there is nothing to judge\n"
                : "  no arm could be judged\n";
  }
  for (const ArmResidency& one : all) {
    text += wrapped(cat(arm_name(report, one.arm), ": ", name_of(one.verdict.residency)), kColumns,
                    "  ");
    text += wrapped(printable(one.verdict.why, kLongestReason), kColumns, "    ");
  }
  return text + '\n' + wrapped(decision(report), kColumns) + '\n';
}

// Those that are not in the tables, or not to the end.
std::string missing(const Report& report) {
  std::string text;
  for (std::size_t arm = 0; arm < report.arms.size(); ++arm) {
    const ArmRecord& record = report.arms[arm];
    if (!record.unavailable.empty()) {
      text += wrapped(cat(arm_name(report, arm),
                          ": not to be had: ", printable(record.unavailable, kLongestReason)),
                      kColumns);
    }
    if (!record.ended.empty()) {
      text +=
          wrapped(cat(arm_name(report, arm),
                      ": ended before the last block: ", printable(record.ended, kLongestReason)),
                  kColumns);
    }
  }
  return text.empty() ? text : '\n' + text;
}

std::string listed(std::string_view title, const std::vector<std::string>& lines) {
  if (lines.empty()) return {};
  std::string text = cat("\n", title, "\n");
  for (const std::string& line : lines)
    text += wrapped(line, kColumns, "- ");
  return text;
}

}  // namespace

std::string table(const Report& report) {
  return cat(
      heading(report), "\n", verdicts(report), figures(report), missing(report),
      listed("To tell \"=?\" apart (longer batches and a quieter machine help):", wanting(report)),
      listed("To be known:", remarks(report)));
}

}  // namespace carveout::probe
