#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arms.hpp"
#include "base/text.hpp"
#include "client/l2_class.hpp"
#include "findings.hpp"
#include "writing.hpp"

namespace carveout::probe {
namespace {

constexpr std::string_view kDaemon = "daemon";
constexpr std::size_t kLongestWord = 28;

// "vmm", "vmm or external", "vmm, external or register".
std::string listed(const std::vector<std::string>& words, const char* last) {
  std::string all;
  for (std::size_t i = 0; i < words.size(); ++i)
    all += cat(i == 0 ? "" : i + 1 == words.size() ? last : ", ", words[i]);
  return all;
}

bool is_lent(const ArmRecord& arm) {
  return client::is_lent(arm.source);
}

// What is lent and was measured, by what is known of it.
struct Lent {
  std::vector<std::size_t> resident, partly, not_resident, unanswered;
  std::vector<std::size_t> for_noise;  // of the unanswered: those that a quiet machine may answer
  [[nodiscard]] bool is_empty() const {
    return resident.empty() && partly.empty() && not_resident.empty() && unanswered.empty();
  }
};

Lent lent_of(const Report& report) {
  const std::vector<ArmResidency> judged = residencies(report);
  Lent lent;
  for (std::size_t arm = 0; arm < report.arms.size(); ++arm) {
    const ArmRecord& record = report.arms[arm];
    if (!is_lent(record) || !record.unavailable.empty()) continue;
    const auto one = std::find_if(judged.begin(), judged.end(),
                                  [arm](const ArmResidency& other) { return other.arm == arm; });
    // Why it ended may be that its data was wrong.
    const Residency residency = one == judged.end() || !record.ended.empty()
                                    ? Residency::kInconclusive
                                    : one->verdict.residency;
    if (residency == Residency::kInconclusive && record.ended.empty() && one != judged.end() &&
        one->verdict.is_for_noise) {
      lent.for_noise.push_back(arm);
    }
    (residency == Residency::kResident      ? lent.resident
     : residency == Residency::kPartly      ? lent.partly
     : residency == Residency::kNotResident ? lent.not_resident
                                            : lent.unanswered)
        .push_back(arm);
  }
  return lent;
}

std::string names(const Report& report, const std::vector<std::size_t>& arms, const char* last) {
  std::vector<std::string> words;
  words.reserve(arms.size());
  for (const std::size_t arm : arms)
    words.push_back(arm_name(report, arm));
  return listed(words, last);
}

// The rows of the environment by which the library takes one of them.
std::string rows_for(const Report& report, const std::vector<std::size_t>& arms) {
  // By source, in the order in which they come up.
  std::vector<std::pair<std::string, std::vector<std::string>>> maps;
  for (const std::size_t arm : arms) {
    const std::string& source = report.arms[arm].source;
    auto one = std::find_if(maps.begin(), maps.end(),
                            [&source](const auto& other) { return other.first == source; });
    if (one == maps.end()) one = maps.insert(one, {source, {}});
    one->second.push_back(printable(report.arms[arm].map, kLongestWord));
  }
  std::string all;
  for (const auto& [source, ways] : maps) {
    all += cat(all.empty() ? "by " : ", or by ",
               source == kDaemon ? "" : cat("CARVEOUT_SOURCE=", source, " and "),
               "CARVEOUT_MAP=", listed(ways, " or "));
  }
  return all;
}

// Whether one is the daemon's: another lend-as makes other memory of it.
bool is_of_daemon(const Report& report, const std::vector<std::size_t>& arms) {
  return std::any_of(arms.begin(), arms.end(),
                     [&report](std::size_t arm) { return report.arms[arm].source == kDaemon; });
}

// The ways to map what is lent that the run was not asked for, of the sources that it was.
std::vector<std::string> not_asked_for(const Report& report) {
  std::vector<std::string> sources;
  for (const ArmRecord& arm : report.arms) {
    if (is_lent(arm) && std::find(sources.begin(), sources.end(), arm.source) == sources.end())
      sources.push_back(arm.source);
  }
  std::vector<std::string> words;
  for (const ArmPlan& plan : plan_arms(report.engine, sources, {"auto"})) {
    const bool was_asked_for = std::any_of(
        report.arms.begin(), report.arms.end(),
        [&plan](const ArmRecord& arm) { return arm.source == plan.source && arm.map == plan.map; });
    if (client::is_lent(plan.source) && !was_asked_for)
      words.push_back(printable(plan.name, kLongestWord));
  }
  return words;
}

std::vector<std::size_t> not_had(const Report& report) {
  std::vector<std::size_t> arms;
  for (std::size_t arm = 0; arm < report.arms.size(); ++arm) {
    if (is_lent(report.arms[arm]) && !report.arms[arm].unavailable.empty()) arms.push_back(arm);
  }
  return arms;
}

// What may be kept although nothing that was measured is: first what is nearest at hand.
std::string what_to_try(const Report& report, const Lent& lent) {
  const std::vector<std::string> others = not_asked_for(report);
  const std::vector<std::size_t> missing = not_had(report);
  std::string text;
  if (!others.empty()) {
    text += cat(" First ask for ", listed(others, " and "), ", which ",
                others.size() == 1 ? "was" : "were", " not asked for: --map auto does.");
  }
  if (!missing.empty()) {
    text += cat(" Why ", names(report, missing, " and "), " could not be had is below.");
  }
  if (!is_of_daemon(report, lent.partly) && !is_of_daemon(report, lent.not_resident)) return text;
  return text + (text.empty() ? " Try the other lend-as first." : " Then try the other lend-as.");
}

// A quiet machine brings blocks together, and nothing else.
std::string how_to_get_an_answer(const Report& report, const Lent& lent) {
  if (lent.for_noise.size() == lent.unanswered.size()) return "Measure again on a quiet machine.";
  std::vector<std::size_t> others;
  std::set_difference(lent.unanswered.begin(), lent.unanswered.end(), lent.for_noise.begin(),
                      lent.for_noise.end(), std::back_inserter(others));
  if (lent.for_noise.empty()) {
    return "What the reason given says has to be mended first; then measure again.";
  }
  return cat("Measure again on a quiet machine, once what the reason given for ",
             names(report, others, " and "), " says is mended.");
}

std::string without_a_resident(const Report& report, const Lent& lent) {
  const std::string unanswered = names(report, lent.unanswered, " and ");
  if (!lent.partly.empty()) {
    return cat("No way of mapping that was measured is kept whole: see in the curve where ",
               names(report, lent.partly, " and "), lent.partly.size() == 1 ? " leaves" : " leave",
               " ordinary memory's, and without a better way let a long prompt decide.",
               unanswered.empty() ? "" : cat(" Of ", unanswered, " there is no answer yet."),
               what_to_try(report, lent));
  }
  if (!lent.unanswered.empty()) {
    return cat("Decide nothing yet: there is no answer, neither yes nor no, of ", unanswered,
               lent.not_resident.empty()
                   ? ""
                   : cat(" (", names(report, lent.not_resident, " and "),
                         lent.not_resident.size() == 1 ? " is" : " are", " not kept)"),
               ". ", how_to_get_an_answer(report, lent));
  }
  return cat(
      "No way of mapping that was measured is kept: leave the loan to what is read once, unless a "
      "long prompt says otherwise.",
      what_to_try(report, lent));
}

}  // namespace

std::string decision(const Report& report) {
  if (report.command != "residency") return {};
  if (report.engine == EngineKind::kCpu) {
    return "This is about the processor's caches and decides nothing about a GPU: --engine gpu "
           "measures that.";
  }
  const Lent lent = lent_of(report);
  if (lent.is_empty()) {
    return std::any_of(report.arms.begin(), report.arms.end(), is_lent)
               ? "There is nothing to decide: no lent memory was to be had. The reasons are below."
               : "There is nothing to decide: nothing that is lent was measured. --source daemon "
                 "does that.";
  }
  if (lent.resident.empty()) return without_a_resident(report, lent);
  return cat("Take the loan ", rows_for(report, lent.resident), ".");
}

}  // namespace carveout::probe
