#include "files/result_file.hpp"

#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>

#include "base/json.hpp"
#include "base/text.hpp"
#include "files/result_check.hpp"

namespace carveout::probe {
namespace {

class ResultWriter {
 public:
  ResultWriter(const Report& report, const Findings& findings)
      : report_(report), findings_(findings) {}

  Result<std::string> write() {
    json_.object();
    write_run();
    write_machine();
    write_arms();
    json_.array("series");
    for (const Series& one : report_.series)
      write_series(one);
    json_.end_array();
    write_findings();
    json_.end();
    if (!problem_.empty()) return Error{Code::kInvalid, 0, "the result", problem_};
    return cat(json_.take(), "\n");
  }

 private:
  void write_run() {
    place_ = "the run";
    json_.text("schema", kResultSchema)
        .text("version", report_.version)
        .text("command", report_.command)
        .text("engine", name_of(report_.engine))
        .text("engine_detail", report_.engine_detail);
    figure("started_unix_s", report_.started_unix_s);
    figure("ended_unix_s", report_.ended_unix_s);
    json_.number("size_bytes", report_.size.count())
        .number("threads", report_.threads)
        .number("blocks", report_.blocks);
    known("reread_size_bytes", report_.reread_size.count());
  }

  void write_machine() {
    const Machine& machine = report_.machine;
    json_.object("machine");
    known("host", machine.host);
    known("kernel", machine.kernel);
    known("processor", machine.processor);
    known("gpu", machine.gpu);
    known("driver", machine.driver);
    known("cuda", machine.cuda);
    known("lender", machine.lender);
    known("page_bytes", machine.page_bytes);
    json_.array("cache_bytes");
    for (const std::uint64_t size : machine.cache_bytes)
      json_.number(size);
    json_.end_array().end();
  }

  void write_arms() {
    std::set<std::string_view> names;
    json_.array("arms");
    for (const ArmRecord& arm : report_.arms) {
      if (!names.insert(arm.name).second) complain(cat("two arms are named ", arm.name));
      json_.object().text("name", arm.name).text("source", arm.source);
      known("map", arm.map);
      known("memory", arm.memory);
      known("page_bytes", arm.page_bytes);
      known("unavailable", arm.unavailable);
      known("ended", arm.ended);
      json_.end();
    }
    json_.end_array();
  }

  void write_series(const Series& series) {
    const RowFacts& row = facts(series.row);
    const std::string_view suffix = field_suffix_of(row.unit);
    place_ = cat(row.title, " of ", arm_name(series.arm), " at ", format_bytes(series.size));
    json_.object()
        .text("row", row.name)
        .text("arm", arm_name(series.arm))
        .number("size_bytes", series.size.count());
    const Arm all = summarize_arm(series.batches);
    figure(cat("median_", suffix), all.median);
    figure(cat("least_", suffix), all.least);
    figure(cat("most_", suffix), all.most);
    figure(cat("spread_", suffix), all.spread());
    if (series.moments.size() != series.batches.size()) {
      complain(cat(series.batches.size(), " batches, but ", series.moments.size(), " moments"));
    }
    json_.array("batches");
    for (std::size_t i = 0; i < series.batches.size() && i < series.moments.size(); ++i) {
      const Batch& batch = series.batches[i];
      json_.object();
      figure(cat("median_", suffix), batch.median);
      figure(cat("cold_", suffix), batch.cold);
      fraction("autocorrelation", batch.autocorrelation);
      json_.number("count", batch.count);
      write_conditions(series.moments[i]);
      json_.end();
    }
    json_.end_array().end();
  }

  void write_conditions(const Moment& moment) {
    json_.object("conditions");
    figure("unix_s", moment.unix_s);
    figure("load_average", moment.load_average);
    known("governor", moment.governor);
    known("sm_mhz", moment.sm_mhz);
    known("memory_mhz", moment.memory_mhz);
    known("celsius", moment.celsius);
    known("other_processes", moment.other_processes);
    json_.end();
  }

  void write_findings() {
    json_.array("against_ordinary");
    for (const AgainstOrdinary& one : findings_.against_ordinary) {
      place_ = cat("what is said of ", facts(one.row).title, " of ", arm_name(one.arm));
      json_.object()
          .text("arm", arm_name(one.arm))
          .text("row", facts(one.row).name)
          .number("size_bytes", one.size.count());
      write_comparison(one.comparison);
      json_.end();
    }
    json_.end_array().array("residency");
    for (const ArmResidency& one : findings_.residencies) {
      place_ = cat("the residency of ", arm_name(one.arm));
      json_.object()
          .text("arm", arm_name(one.arm))
          .text("residency", word_of(one.verdict.residency))
          .text("why", one.verdict.why);
      json_.object("lent");
      write_comparison(one.verdict.lent);
      json_.end().object("ordinary");
      write_comparison(one.verdict.ordinary);
      json_.end().end();
    }
    json_.end_array().array("remarks");
    for (const std::string& remark : findings_.remarks)
      json_.string(remark);
    json_.end_array();
  }

  void write_comparison(const Comparison& comparison) {
    json_.text("verdict", word_of(comparison.verdict));
    fraction("difference_fraction", comparison.difference);
    fraction("least_fraction", comparison.least);
    fraction("most_fraction", comparison.most);
    json_.number("blocks", comparison.blocks);
    known("wanting", comparison.wanting());
  }

  // What is known: not there otherwise.
  void known(std::string_view name, const std::string& value) {
    if (!value.empty()) json_.text(name, value);
  }
  void known(std::string_view name, std::uint64_t value) {
    if (value != 0) json_.number(name, value);
  }
  void known(std::string_view name, const std::optional<unsigned>& value) {
    if (value) json_.number(name, *value);
  }

  // From 0; from -1.
  void figure(std::string_view name, double value) { real(name, value, 0); }
  void fraction(std::string_view name, double value) { real(name, value, -1); }
  void real(std::string_view name, double value, double least) {
    if (std::isfinite(value) && value >= least) {
      json_.real(name, value);
    } else {
      complain(cat(name, std::isfinite(value) ? " is negative" : " is not a finite number"));
    }
  }

  [[nodiscard]] std::string arm_name(std::size_t arm) {
    if (arm < report_.arms.size()) return report_.arms[arm].name;
    complain(cat("there is no arm ", arm));
    return "-";
  }

  // The first is enough.
  void complain(const std::string& what) {
    if (problem_.empty()) problem_ = cat(place_, ": ", what);
  }

  const Report& report_;
  const Findings& findings_;
  IndentingJsonWriter json_;
  std::string place_, problem_;
};

}  // namespace

const char* word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kInconclusive:
      break;
    case Verdict::kLess:
      return "less";
    case Verdict::kMore:
      return "more";
  }
  return "inconclusive";
}

const char* word_of(Residency residency) {
  switch (residency) {
    case Residency::kInconclusive:
      break;
    case Residency::kNotResident:
      return "not_resident";
    case Residency::kPartly:
      return "partly";
    case Residency::kResident:
      return "resident";
  }
  return "inconclusive";
}

Result<std::string> to_json(const Report& report, const Findings& findings) {
  return ResultWriter(report, findings).write();
}

}  // namespace carveout::probe
