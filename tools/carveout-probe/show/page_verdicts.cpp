#include "show/page_verdicts.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "findings.hpp"
#include "show/markup.hpp"
#include "writing.hpp"

namespace carveout::probe {
namespace {

// One arm's box.
struct Card {
  const char* tone = "";  // a class of the style: "good", "bad", "part", or none
  std::string of;
  std::string word;
  std::string body;  // HTML
};

std::string paragraph(std::string_view text) {
  return cat("<p>", prose(text), "</p>\n");
}

std::string html(const Card& card) {
  return cat("<article class=\"verdict ", card.tone, "\">\n<h2><span class=\"of\">",
             escaped(card.of), "</span> <span class=\"word\">", escaped(card.word),
             "</span></h2>\n", card.body, "</article>\n");
}

// A reason as a sentence of its own.
std::string sentence(std::string why) {
  if (why.empty()) return why;
  if (why[0] >= 'a' && why[0] <= 'z') why[0] = static_cast<char>(why[0] - 'a' + 'A');
  for (const auto& [plain, character] : {std::pair{" -", " −"}, {" x", " ×"}}) {
    for (auto at = why.find(plain); at != std::string::npos; at = why.find(plain, at + 1)) {
      const char next = at + 2 < why.size() ? why[at + 2] : ' ';
      if (next >= '0' && next <= '9') why.replace(at, 2, character);
    }
  }
  return why + '.';
}

std::string ended_early(const ArmRecord& arm) {
  return arm.ended.empty() ? "" : paragraph(cat("It ended before the last block: ", arm.ended));
}

// --- residency ---

struct Words {
  const char* tone;
  const char* word;
  std::string sentence;
};

Words words_of(Residency residency, const std::string& kept_in) {
  std::string cache = kept_in;
  cache[0] = 'T';
  switch (residency) {
    case Residency::kInconclusive:
      break;
    case Residency::kNotResident:
      return {"bad", "Not resident", cat(cache, " does not keep it.")};
    case Residency::kPartly:
      return {"part", "Partly resident", cat(cache, " keeps a part of it.")};
    case Residency::kResident:
      return {"good", "Resident", cat(cache, " keeps it.")};
  }
  return {"", "Inconclusive", cat("This run cannot tell whether ", kept_in, " keeps it.")};
}

std::string rate_item(const Report& report, std::size_t arm, const RowAt& row) {
  const Series* series = find(report, arm, row.row, row.size);
  if (series == nullptr || series->batches.empty()) return {};
  const Arm rate = summarize_arm(series->batches);
  return cat("<div><dt>", row.row == Row::kReread ? "reread " : "streamed ", format_bytes(row.size),
             "</dt><dd><b>", figure(rate.median), "</b> GB/s <small>", figure(rate.least), "–",
             figure(rate.most), "</small></dd></div>\n");
}

std::string gain_item(const char* of, const Comparison& gain) {
  return gain.blocks == 0
             ? std::string()
             : cat("<div><dt>", of, "</dt><dd><b>", escaped(typographic(change(gain.difference))),
                   "</b> <small>", escaped(typographic(change(gain.least))), " to ",
                   escaped(typographic(change(gain.most))), "</small></dd></div>\n");
}

Card card_of(const Report& report, const ArmResidency& one) {
  const Words words = words_of(one.verdict.residency, judged_cache(report).name);
  Card card{words.tone, arm_name(report, one.arm), words.word, ""};
  card.body = cat(paragraph(cat(words.sentence, " ", sentence(one.verdict.why))),
                  ended_early(report.arms[one.arm]), "<dl>\n",
                  rate_item(report, one.arm, {Row::kReread, report.reread_size}),
                  rate_item(report, one.arm, {Row::kRead, report.size}),
                  gain_item("gain of rereading", one.verdict.lent),
                  gain_item("gain of ordinary", one.verdict.ordinary), "</dl>\n");
  return card;
}

// --- the other rows ---

// How the rows of one arm compare with ordinary memory.
struct Tally {
  std::vector<std::string> better, worse, unsure;
  [[nodiscard]] std::size_t all() const { return better.size() + worse.size() + unsure.size(); }
};

Tally tally(const Report& report, std::size_t arm) {
  Tally tally;
  const std::vector<RowAt> rows = table_rows(report);
  for (const AgainstOrdinary& one : against_ordinary(report)) {
    const RowAt at{one.row, one.size};
    if (one.arm != arm || std::find(rows.begin(), rows.end(), at) == rows.end()) continue;
    const std::string row = label(report, at);
    const std::string with = cat(row, " ", typographic(change(one.comparison.difference)));
    const bool has_more = one.comparison.verdict == Verdict::kMore;
    if (one.comparison.verdict == Verdict::kInconclusive)
      tally.unsure.push_back(row);
    else
      (has_more == more_is_better(facts(one.row).unit) ? tally.better : tally.worse)
          .push_back(with);
  }
  return tally;
}

std::string items(const char* what, const std::vector<std::string>& rows) {
  if (rows.empty()) return {};
  std::string all;
  for (const std::string& row : rows)
    all += cat(all.empty() ? "" : "; ", row);
  return cat("<li>", what, ": ", escaped(all), "</li>\n");
}

Card card_of(const Report& report, std::size_t arm, const Tally& tally) {
  Card card{"", arm_name(report, arm), "", ""};
  const std::string rows = how_many(tally.all(), "row");
  if (tally.worse.empty() && tally.better.empty()) {
    card.word = "No difference shown";
  } else if (tally.better.empty()) {
    card.tone = "bad";
    card.word = cat("Slower in ", tally.worse.size(), " of ", rows);
  } else if (tally.worse.empty()) {
    card.tone = "good";
    card.word = cat("Faster in ", tally.better.size(), " of ", rows);
  } else {
    card.tone = "part";
    card.word =
        cat("Slower in ", tally.worse.size(), ", faster in ", tally.better.size(), " of ", rows);
  }
  card.body =
      cat("<p>Against ordinary memory, within blocks:</p>\n<ul>\n", items("slower", tally.worse),
          items("faster", tally.better), items("cannot be told apart", tally.unsure), "</ul>\n",
          ended_early(report.arms[arm]));
  return card;
}

// Of an arm that was measured where ordinary memory was not.
Card alone(const Report& report, std::size_t arm) {
  std::string rows;
  for (const RowAt& row : table_rows(report)) {
    const Series* series = find(report, arm, row.row, row.size);
    if (series == nullptr || series->batches.empty()) continue;
    const Arm found = summarize_arm(series->batches);
    rows += cat("<li>", label(report, row), ": ", figure(found.median), " ",
                name_of(facts(row.row).unit), " (", figure(found.least), "–", figure(found.most),
                ")</li>\n");
  }
  return {"", arm_name(report, arm), "Nothing to compare with", cat("<ul>\n", rows, "</ul>\n")};
}

std::string not_measured(const Report& report, std::size_t arm) {
  const ArmRecord& record = report.arms[arm];
  const std::string& why = record.unavailable.empty() ? record.ended : record.unavailable;
  return cat("<li><b>", escaped(arm_name(report, arm)),
             "</b>: ", prose(why.empty() ? "it has no batches" : why), "</li>\n");
}

bool is_measured(const Report& report, std::size_t arm) {
  return std::any_of(report.series.begin(), report.series.end(), [arm](const Series& series) {
    return series.arm == arm && !series.batches.empty();
  });
}

}  // namespace

std::string page_verdicts(const Report& report) {
  const auto judged = residencies(report);
  std::string cards, missing;
  for (std::size_t arm = 0; arm < report.arms.size(); ++arm) {
    if (arm == 0 && report.arms[arm].is_ordinary()) continue;
    const auto one = std::find_if(judged.begin(), judged.end(),
                                  [arm](const ArmResidency& other) { return other.arm == arm; });
    const Tally found = tally(report, arm);
    if (one != judged.end())
      cards += html(card_of(report, *one));
    else if (found.all() > 0)
      cards += html(card_of(report, arm, found));
    else if (is_measured(report, arm))
      cards += html(alone(report, arm));
    else
      missing += not_measured(report, arm);
  }
  if (cards.empty()) cards = "<p>There was no memory to compare with ordinary memory.</p>\n";
  if (!missing.empty()) {
    missing = cat("<div class=\"missing note\">\n<p>Not measured:</p>\n<ul>\n", missing,
                  "</ul>\n</div>\n");
  }
  const std::string decided = decision(report);
  return cat("<section class=\"verdicts\" aria-label=\"Verdicts\">\n", cards, "</section>\n",
             decided.empty() ? "" : cat("<p class=\"decision\">", prose(decided), "</p>\n"),
             missing);
}

}  // namespace carveout::probe
