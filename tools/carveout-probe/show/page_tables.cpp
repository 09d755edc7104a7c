#include "show/page_tables.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "findings.hpp"
#include "show/markup.hpp"
#include "show/reread_curve.hpp"
#include "show/svg_curve.hpp"
#include "writing.hpp"

namespace carveout::probe {
namespace {

// A table that scrolls by itself where it is wider than the page, by keyboard as well.
std::string scrolling(std::string_view name, std::string_view kind, std::string_view caption,
                      std::string_view rows) {
  return cat("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"", name,
             "\">\n<table class=\"", kind, "\">\n",
             caption.empty() ? "" : cat("<caption><span>", caption, "</span></caption>\n"), rows,
             "</table>\n</div>\n");
}

std::string heads(const Report& report, std::string_view first,
                  const std::vector<std::size_t>& arms) {
  std::string text = "<thead><tr>";
  text += first.empty() ? "<td></td>" : cat("<th scope=\"col\">", first, "</th>");
  for (const std::size_t arm : arms) {
    text +=
        cat("<th scope=\"col\">", svg_swatch(arm), " ", escaped(arm_name(report, arm)), "</th>");
  }
  return text + "</tr></thead>\n";
}

bool has(const Report& report, std::size_t arm, const RowAt& row) {
  const Series* series = find(report, arm, row.row, row.size);
  return series != nullptr && !series->batches.empty();
}

// Those that have a figure in one of the rows.
std::vector<std::size_t> arms_of(const Report& report, const std::vector<RowAt>& rows) {
  std::vector<std::size_t> arms;
  for (std::size_t arm = 0; arm < report.arms.size(); ++arm) {
    if (std::any_of(rows.begin(), rows.end(),
                    [&](const RowAt& row) { return has(report, arm, row); })) {
      arms.push_back(arm);
    }
  }
  return arms;
}

// How it compares with ordinary memory: "−17 %", coloured by whether that is good.
std::string mark(const std::vector<AgainstOrdinary>& all, std::size_t arm, const RowAt& row) {
  const auto one = std::find_if(all.begin(), all.end(), [&](const AgainstOrdinary& other) {
    return other.arm == arm && other.row == row.row && other.size == row.size;
  });
  if (one == all.end()) return {};
  const Comparison& found = one->comparison;
  if (found.verdict == Verdict::kInconclusive) return " <span class=\"change\">=?</span>";
  const bool is_better = (found.verdict == Verdict::kMore) == more_is_better(facts(row.row).unit);
  return cat(" <span class=\"change ", is_better ? "good" : "bad", "\">",
             typographic(change(found.difference)), "</span>");
}

// A bar to the median, and over it the span of the batches, as parts of `most`.
std::string bar(std::size_t arm, const Arm& rate, double most) {
  if (!(most > 0)) return {};
  const auto part = [most](double value) { return std::clamp(value / most * 100, 0.0, 100.0); };
  const double least = part(rate.least);
  const std::string arm_class = cat("a", arm % 8);
  return cat(
      "<svg class=\"bar\" viewBox=\"0 0 100 6\" preserveAspectRatio=\"none\" "
      "aria-hidden=\"true\"><rect class=\"ground\" width=\"100\" height=\"6\" "
      "fill=\"currentColor\" fill-opacity=\"0.1\"/><rect class=\"fill ",
      arm_class, "\" width=\"", fixed(part(rate.median), 2),
      "\" height=\"6\" fill=\"currentColor\" fill-opacity=\"0.55\"/><rect class=\"fill ", arm_class,
      "\" x=\"", fixed(least, 2), "\" width=\"", fixed(std::max(part(rate.most) - least, 0.4), 2),
      "\" height=\"6\" fill=\"currentColor\"/></svg>");
}

std::string cell(const Report& report, const std::vector<AgainstOrdinary>& all, std::size_t arm,
                 const RowAt& row, double most) {
  if (!has(report, arm, row)) return "<td>–</td>";
  const Series& series = *find(report, arm, row.row, row.size);
  const Arm rate = summarize_arm(series.batches);
  return cat("<td><span class=\"figure\">", figure(rate.median), "</span>", mark(all, arm, row),
             bar(arm, rate, most), "<small>", figure(rate.least), "–", figure(rate.most), ", cold ",
             figure(cold_median(series)), "</small></td>");
}

std::string row_html(const Report& report, const std::vector<AgainstOrdinary>& all,
                     const std::vector<std::size_t>& arms, const RowAt& row) {
  double most = 0;
  for (const std::size_t arm : arms) {
    if (has(report, arm, row)) {
      most = std::max(most, summarize_arm(find(report, arm, row.row, row.size)->batches).most);
    }
  }
  const RowFacts& about = facts(row.row);
  const std::string counted = *about.counted == '\0' ? "less is better" : about.counted;
  std::string text = cat("<tr><th scope=\"row\">", label(report, row), " <small>",
                         name_of(about.unit), "; ", counted, "</small></th>");
  for (const std::size_t arm : arms)
    text += cell(report, all, arm, row, most);
  return text + "</tr>\n";
}

std::string needs(const Report& report) {
  const std::vector<std::string> sentences = wanting(report);
  if (sentences.empty()) return {};
  std::string text =
      "<h3>To tell “=?” apart, a run would need (longer batches and a quieter machine "
      "help)</h3>\n<ul class=\"needs note\">\n";
  for (const std::string& sentence : sentences)
    text += cat("<li>", prose(sentence), "</li>\n");
  return text + "</ul>\n";
}

std::string pages_of(const ArmRecord& arm) {
  return arm.page_bytes == 0 ? "not known" : format_bytes(Bytes(arm.page_bytes));
}

std::string outcome(const Report& report, std::size_t arm) {
  const ArmRecord& record = report.arms[arm];
  if (!record.unavailable.empty()) return cat("could not be had: ", record.unavailable);
  std::size_t batches = 0;
  for (const Series& series : report.series)
    if (series.arm == arm) batches = std::max(batches, series.batches.size());
  const std::string blocks = cat(batches, " of ", how_many(report.blocks, "block"));
  return record.ended.empty() ? blocks : cat(blocks, ", then ended: ", record.ended);
}

// --- conditions ---

struct Condition {
  const char* name;
  const char* unit;
  int digits;
  std::function<std::optional<double>(const Moment&)> read;
};

std::function<std::optional<double>(const Moment&)> reading(
    std::optional<unsigned> Moment::*member) {
  return [member](const Moment& moment) -> std::optional<double> {
    if (!(moment.*member)) return std::nullopt;
    return static_cast<double>(*(moment.*member));
  };
}

std::vector<double> readings(const Report& report, std::size_t arm, const Condition& condition) {
  std::vector<double> values;
  for (const Series& series : report.series) {
    if (series.arm != arm) continue;
    for (const Moment& moment : series.moments)
      if (const auto value = condition.read(moment)) values.push_back(*value);
  }
  return values;
}

std::string condition_cell(const std::vector<double>& values, int digits) {
  if (values.empty()) return "<td>–</td>";
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const std::string span = *least == *most ? ""
                                           : cat(" <small>", fixed(*least, digits), "–",
                                                 fixed(*most, digits), "</small>");
  return cat("<td>", fixed(median(values), digits), span, "</td>");
}

std::string governors(const Report& report, std::size_t arm) {
  std::set<std::string> names;
  for (const Series& series : report.series) {
    if (series.arm != arm) continue;
    for (const Moment& moment : series.moments)
      if (!moment.governor.empty()) names.insert(moment.governor);
  }
  std::string all;
  for (const std::string& name : names)
    all += cat(all.empty() ? "" : ", ", name);
  return all;
}

}  // namespace

std::string page_rows(const Report& report) {
  const std::vector<RowAt> rows = table_rows(report);
  if (rows_at(report).empty()) {
    return "<section>\n<h2>Figures</h2>\n<p>Nothing was measured.</p>\n</section>\n";
  }
  if (rows.empty()) return {};
  const auto all = against_ordinary(report);
  const std::vector<std::size_t> arms = arms_of(report, rows);
  std::string body = heads(report, "", arms) + "<tbody>\n";
  for (const RowAt& row : rows)
    body += row_html(report, all, arms, row);
  body += "</tbody>\n";
  return cat(
      "<section>\n<h2>Figures</h2>\n",
      scrolling("Figures", "rows",
                "The median of the batches, one a block, and how it differs from ordinary memory "
                "within blocks (=?: cannot be told apart). Beneath it the least and the most of "
                "the batches, and the median of their first, cold repetitions.",
                body),
      needs(report), "</section>\n");
}

std::string page_curve_figures(const Report& report) {
  const RereadCurve curve = reread_curve(report);
  if (curve.is_empty()) return {};
  std::vector<std::size_t> arms;
  for (const ArmCurve& arm : curve.arms)
    arms.push_back(arm.arm);
  const auto all = against_ordinary(report);
  std::string body = heads(report, "working set", arms) + "<tbody>\n";
  for (const Bytes size : curve.sizes) {
    body += cat("<tr><th scope=\"row\">", format_bytes(size), "</th>");
    for (const ArmCurve& arm : curve.arms) {
      const auto point = std::find_if(arm.points.begin(), arm.points.end(),
                                      [size](const CurvePoint& one) { return one.size == size; });
      body += point == arm.points.end()
                  ? "<td>–</td>"
                  : cat("<td><span class=\"figure\">", figure(point->rate.median),
                        "</span> <small>", figure(point->rate.least), "–", figure(point->rate.most),
                        "</small>", mark(all, arm.arm, {Row::kReread, size}), "</td>");
    }
    body += "</tr>\n";
  }
  return cat("<section>\n<h2>The curve’s figures</h2>\n",
             scrolling("The curve’s figures", "compact",
                       "Rereading in GB/s: the median of the batches, their least and most, and "
                       "the difference from ordinary memory within blocks.",
                       body + "</tbody>\n"),
             "</section>\n");
}

std::string page_arms(const Report& report) {
  std::string body =
      "<thead><tr><th scope=\"col\">arm</th><th scope=\"col\">memory</th><th scope=\"col\">pages"
      "</th><th scope=\"col\">measured</th></tr></thead>\n<tbody>\n";
  for (std::size_t arm = 0; arm < report.arms.size(); ++arm) {
    const ArmRecord& record = report.arms[arm];
    body += cat("<tr><th scope=\"row\">", svg_swatch(arm), " ", escaped(arm_name(report, arm)),
                "</th><td>", record.memory.empty() ? "–" : prose(record.memory), "</td><td>",
                pages_of(record), "</td><td>", prose(outcome(report, arm)), "</td></tr>\n");
  }
  return cat("<section>\n<h2>What was compared</h2>\n",
             scrolling("What was compared", "text", "", body + "</tbody>\n"), "</section>\n");
}

std::string page_moments(const Report& report) {
  const std::vector<std::size_t> arms = arms_of(report, rows_at(report));
  if (arms.empty()) return {};
  const std::vector<Condition> conditions{
      {"load average", "", 2,
       [](const Moment& moment) { return std::optional(moment.load_average); }},
      {"GPU clock", " (MHz)", 0, reading(&Moment::sm_mhz)},
      {"GPU memory clock", " (MHz)", 0, reading(&Moment::memory_mhz)},
      {"GPU temperature", " (°C)", 0, reading(&Moment::celsius)},
      {"other GPU processes", "", 0, reading(&Moment::other_processes)},
  };
  std::string body = heads(report, "", arms) + "<tbody>\n";
  for (const Condition& condition : conditions) {
    std::string cells;
    bool is_known = false;
    for (const std::size_t arm : arms) {
      const std::vector<double> values = readings(report, arm, condition);
      is_known |= !values.empty();
      cells += condition_cell(values, condition.digits);
    }
    if (!is_known) continue;
    body +=
        cat("<tr><th scope=\"row\">", condition.name, condition.unit, "</th>", cells, "</tr>\n");
  }
  body += "<tr><th scope=\"row\">frequency governor</th>";
  for (const std::size_t arm : arms) {
    const std::string names = governors(report, arm);
    body += cat("<td>", names.empty() ? "not known" : escaped(names), "</td>");
  }
  return scrolling(
      "Conditions of each arm", "compact",
      "While each arm was measured: the median of its batches, the least and the most.",
      body + "</tr>\n</tbody>\n");
}

}  // namespace carveout::probe
