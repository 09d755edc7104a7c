#include "show/page.hpp"

#include <algorithm>
#include <string_view>

#include "base/text.hpp"
#include "findings.hpp"
#include "show/markup.hpp"
#include "show/page_style.hpp"
#include "show/page_tables.hpp"
#include "show/page_verdicts.hpp"
#include "show/reread_curve.hpp"
#include "show/svg_curve.hpp"
#include "writing.hpp"

namespace carveout::probe {
namespace {

std::string question(const Report& report) {
  if (report.command == "residency") {
    return cat("Is lent memory kept in ", cache_of(report.engine), "?");
  }
  if (report.command == "latency") return "How long does it take to claim memory?";
  return "How fast is lent memory?";
}

std::string duration(const Report& report) {
  return cat(fixed(std::max(0.0, report.ended_unix_s - report.started_unix_s), 0), " s");
}

// The policy keeps the page from doing anything, whatever a name or a reason in it might be.
std::string head(const Report& report) {
  return cat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'\">\n<title>",
      escaped(report.command), ", ", escaped(report.engine_detail), ", ",
      utc(report.started_unix_s), " - carveout-probe</title>\n<style>", page_style(),
      "</style>\n</head>\n");
}

std::string header(const Report& report) {
  return cat("<header>\n<p class=\"kicker\">carveout-probe ", escaped(report.version), ", ",
             escaped(report.command), "</p>\n<h1>", question(report), "</h1>\n<p class=\"lede\">",
             escaped(report.engine_detail), ". ", format_bytes(report.size), " of each memory, ",
             how_many(report.blocks, "block"), ", <time>", utc(report.started_unix_s),
             "</time>.</p>\n</header>\n");
}

std::string remark_list(const Report& report) {
  const auto all = remarks(report);
  if (all.empty()) return {};
  std::string text = "<section class=\"remarks\">\n<h2>To be known</h2>\n<ul>\n";
  for (const std::string& remark : all)
    text += cat("<li>", prose(remark), "</li>\n");
  return text + "</ul>\n</section>\n";
}

// Both shapes, of which the style shows one; without a style the wide one alone.
std::string figure_of_curve(const Report& report) {
  const std::string wide = svg_curve(report, SvgShape::kWide);
  if (wide.empty()) return {};
  const bool is_gpu = report.engine == EngineKind::kGpu;
  std::string note =
      cat("Each point is the median of the batches, the band about the line their "
          "least and most. Memory that ",
          cache_of(report.engine), is_gpu ? " keeps" : " keep",
          " is read faster while the working set fits.");
  if (report.command == "residency") {
    note += cat(residencies(report).empty() ? " The figures are of " : " The verdict is on ",
                format_bytes(report.reread_size), ", in bold.");
  }
  for (const std::string& likeness : likenesses(report, reread_curve(report)))
    note += cat(" ", escaped(likeness));
  return cat(
      "<section>\n<h2>Rereading, by the size of the working set</h2>\n<figure>\n"
      "<div class=\"wide\">\n",
      wide, "</div>\n<div class=\"narrow\" hidden>\n", svg_curve(report, SvgShape::kNarrow),
      "</div>\n<figcaption class=\"note\">", note, "</figcaption>\n</figure>\n</section>\n");
}

std::string fact(std::string_view name, std::string_view value) {
  return value.empty() ? std::string() : cat("<dt>", name, "</dt><dd>", prose(value), "</dd>\n");
}

std::string conditions(const Report& report) {
  const Machine& machine = report.machine;
  return cat(
      "<section>\n<h2>Conditions</h2>\n<dl class=\"facts\">\n", fact("host", machine.host),
      fact("kernel", machine.kernel), fact("processor", machine.processor),
      fact("GPU", machine.gpu), fact("driver", machine.driver),
      fact("CUDA",
           machine.cuda.empty() ? "" : cat(machine.cuda, ", the newest that the driver speaks")),
      fact("caches", caches(report)), fact("lender", machine.lender),
      fact("pages of the host",
           machine.page_bytes == 0 ? "" : format_bytes(Bytes(machine.page_bytes))),
      fact("began", utc(report.started_unix_s)),
      fact("ended", cat(utc(report.ended_unix_s), ", after ", duration(report))), "</dl>\n",
      page_moments(report), "</section>\n");
}

std::string method(const Report& report) {
  if (rows_at(report).empty()) return {};
  const bool is_gpu = report.engine == EngineKind::kGpu;
  std::string text =
      cat("<section>\n<h2>How it was measured</h2>\n<p>The arms took turns in ",
          how_many(report.blocks, "block"),
          ". Each block holds each arm once, in an order that mirrors itself from block to "
          "block (A B B A), so that what drifts is shared. An arm’s share of a block is a batch: "
          "many repetitions, of which the first is cold and stands by itself, reported as the "
          "median of the others. Repetitions are never pooled across batches.</p>\n");
  text +=
      cat("<p>Two arms are compared within blocks only. They are called different if the median of "
          "the blocks’ differences exceeds their range, and inconclusive otherwise: a "
          "description of what was observed, not a bound on the effect. Fewer than ",
          kLeastBlocks, " blocks tell nothing.</p>\n");
  if (!residencies(report).empty()) {
    text +=
        cat("<p>The verdict is about ", judged_cache(report).name, ", on rereading ",
            format_bytes(report.reread_size), " against the same arm’s own streaming of ",
            format_bytes(report.size),
            ". Resident: rereading stands above streaming, with at least half of the gain that "
            "ordinary memory shows. Partly: with less, and at least a tenth. Not resident: with "
            "less than that, or it does not stand above, and could not have half of that gain. "
            "Inconclusive: they cannot be told apart, or ordinary memory itself gains less "
            "than 10 %, or the stream is less than four times the cache.</p>\n");
  }
  if (report.command != "latency") {
    text +=
        cat("<p>GB/s are 10<sup>9</sup> bytes a second. Copies are counted one-way: each byte "
            "once, though it is read and written. ",
            is_gpu ? "Reads bypass L1, so that L2 is what is measured; time is taken by the "
                     "GPU’s own events. "
                   : "",
            "Buffers hold random data; what was read is checked, and what was written is read "
            "back, outside the time that is measured.</p>\n");
  }
  return text + "</section>\n";
}

}  // namespace

std::string html_page(const Report& report) {
  return cat(head(report), "<body>\n<main>\n", header(report), page_verdicts(report),
             remark_list(report), figure_of_curve(report), page_rows(report), page_arms(report),
             conditions(report), method(report), page_curve_figures(report),
             "<footer><p class=\"note\">carveout-probe ", escaped(report.version), ", ",
             utc(report.ended_unix_s), "</p></footer>\n</main>\n</body>\n</html>\n");
}

}  // namespace carveout::probe
