#include "files/compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "base/text.hpp"

namespace carveout::probe {
namespace {

constexpr std::size_t kMaxText = 200;

std::string shown(std::string_view text) {
  return text.empty() ? "not known" : printable(text, kMaxText);
}
std::string shown(std::uint64_t value) {
  return value == 0 ? "not known" : cat(value);
}
std::string shown_size(Bytes size) {
  return size == Bytes(0) ? "not known" : format_bytes(size);
}

// What the two files say of one thing.
class Sides {
 public:
  Sides(const Report& a, std::string name_a, const Report& b, std::string name_b)
      : a_(a), b_(b), name_a_(std::move(name_a)), name_b_(std::move(name_b)) {}

  [[nodiscard]] Result<void> refuse_unlike() const {
    if (auto same = require("command", a_.command, b_.command); !same) return same;
    if (auto same = require("engine", name_of(a_.engine), name_of(b_.engine)); !same) return same;
    if (auto same = require("size", shown_size(a_.size), shown_size(b_.size)); !same) return same;
    for (const auto& [report, name] : {std::pair(&a_, &name_a_), std::pair(&b_, &name_b_)}) {
      const bool has_any =
          std::any_of(report->series.begin(), report->series.end(),
                      [](const Series& series) { return !series.batches.empty(); });
      if (!has_any) {
        return Error{Code::kRefused, 0, *name,
                     "nothing was measured in that run, so there is nothing to compare"};
      }
    }
    return {};
  }

  [[nodiscard]] Error nothing_in_common() const {
    return Error{Code::kRefused, 0, cat(name_a_, " and ", name_b_),
                 "have no row of a memory in common, so there is nothing to compare"};
  }

  [[nodiscard]] std::vector<std::string> remarks() {
    remark_on_time();
    differ("the host", shown(a_.machine.host), shown(b_.machine.host));
    differ("the kernel", shown(a_.machine.kernel), shown(b_.machine.kernel));
    differ("the processor", shown(a_.machine.processor), shown(b_.machine.processor));
    differ("the GPU", shown(a_.machine.gpu), shown(b_.machine.gpu));
    differ("the driver", shown(a_.machine.driver), shown(b_.machine.driver));
    differ("CUDA", shown(a_.machine.cuda), shown(b_.machine.cuda));
    differ("the lender", shown(a_.machine.lender), shown(b_.machine.lender));
    differ("the host's page size", shown_size(Bytes(a_.machine.page_bytes)),
           shown_size(Bytes(b_.machine.page_bytes)));
    differ("the caches", caches(a_), caches(b_));
    differ("the governor", governors(a_), governors(b_));
    differ("the probe", shown(a_.version), shown(b_.version));
    differ("the engine", shown(a_.engine_detail), shown(b_.engine_detail));
    differ("the threads", shown(a_.threads), shown(b_.threads));
    differ("the blocks", shown(a_.blocks), shown(b_.blocks));
    differ("the working set that is read again", shown_size(a_.reread_size),
           shown_size(b_.reread_size));
    for (const ArmRecord& arm : a_.arms)
      remark_on_arm(arm);
    return std::move(remarks_);
  }

 private:
  [[nodiscard]] Result<void> require(std::string_view what, std::string_view in_a,
                                     std::string_view in_b) const {
    if (in_a == in_b) return {};
    return Error{Code::kRefused, 0, cat(name_a_, " and ", name_b_),
                 cat("cannot be compared: the ", what, " of ", name_a_, " is ", shown(in_a),
                     ", of ", name_b_, " it is ", shown(in_b))};
  }

  void differ(std::string_view what, const std::string& in_a, const std::string& in_b) {
    if (in_a == in_b) return;
    remarks_.push_back(
        cat("unlike in ", what, ": ", in_a, " in ", name_a_, ", ", in_b, " in ", name_b_));
  }

  void remark_on_time() {
    const double apart = std::abs(b_.started_unix_s - a_.started_unix_s);
    // What an integer does not hold is no time that people know.
    const auto seconds = static_cast<std::uint64_t>(std::min(apart, 1e15));
    std::string time = cat(seconds, " s");
    if (seconds >= 172'800) {
      time = cat(seconds / 86'400, " days");
    } else if (seconds >= 7'200) {
      time = cat(seconds / 3'600, " hours");
    } else if (seconds >= 120) {
      time = cat(seconds / 60, " minutes");
    }
    remarks_.push_back(cat("the runs began ", time,
                           " apart: what drifted between them counts as difference, which arms of "
                           "one run do not have"));
  }

  void remark_on_arm(const ArmRecord& arm) {
    const auto other = std::find_if(b_.arms.begin(), b_.arms.end(),
                                    [&](const ArmRecord& one) { return one.name == arm.name; });
    if (other == b_.arms.end()) return;
    const std::string of = cat(" of ", printable(arm.name, kMaxText));
    differ(cat("the page size", of), shown_size(Bytes(arm.page_bytes)),
           shown_size(Bytes(other->page_bytes)));
    differ(cat("the memory", of), shown(arm.memory), shown(other->memory));
    differ(cat("the mapping", of), shown(arm.map), shown(other->map));
  }

  static std::string caches(const Report& report) {
    std::string all;
    for (const std::uint64_t size : report.machine.cache_bytes)
      all += cat(all.empty() ? "" : ", ", format_bytes(Bytes(size)));
    return shown(all);
  }

  static std::string governors(const Report& report) {
    std::set<std::string> names;
    for (const Series& series : report.series) {
      for (const Moment& moment : series.moments)
        if (!moment.governor.empty()) names.insert(moment.governor);
    }
    std::string all;
    for (const std::string& name : names)
      all += cat(all.empty() ? "" : ", ", name);
    return shown(all);
  }

  const Report& a_;
  const Report& b_;
  std::string name_a_, name_b_;
  std::vector<std::string> remarks_;
};

// What of a run has something, each by what it is of. A file may hold very many.
using MeasuredSeries = std::map<std::tuple<std::string_view, Row, Bytes>, const Series*>;

MeasuredSeries measured_of(const Report& report) {
  MeasuredSeries all;
  for (const Series& one : report.series) {
    if (one.batches.empty()) continue;
    all.emplace(std::tuple(std::string_view(report.arms.at(one.arm).name), one.row, one.size),
                &one);
  }
  return all;
}

const Series* find_measured(const MeasuredSeries& in, const Measured& of) {
  const auto found = in.find({of.arm, of.row, of.size});
  return found == in.end() ? nullptr : found->second;
}

// Calls `visit` with each series that has something, and what it is of.
template <typename Visitor>
void each_measured(const Report& report, const Visitor& visit) {
  for (const Series& one : report.series) {
    if (one.batches.empty()) continue;
    visit(one, Measured{report.arms.at(one.arm).name, one.row, one.size});
  }
}

}  // namespace

Result<Differences> compare_reports(const Report& a, const std::string& name_a, const Report& b,
                                    const std::string& name_b) {
  Sides sides(a, printable(name_a, kMaxText), b, printable(name_b, kMaxText));
  if (auto alike = sides.refuse_unlike(); !alike) return alike.error();
  Differences result{.first = {name_a, a.version, a.started_unix_s},
                     .second = {name_b, b.version, b.started_unix_s},
                     .command = a.command,
                     .engine = a.engine,
                     .size = a.size,
                     .found = {},
                     .only_in_first = {},
                     .only_in_second = {},
                     .remarks = sides.remarks()};
  const MeasuredSeries all_in_a = measured_of(a), all_in_b = measured_of(b);
  each_measured(a, [&](const Series& in_a, const Measured& of) {
    if (const Series* in_b = find_measured(all_in_b, of)) {
      result.found.push_back({of, summarize_arm(in_a.batches), summarize_arm(in_b->batches),
                              compare(in_a.batches, in_b->batches)});
    } else {
      result.only_in_first.push_back(of);
    }
  });
  each_measured(b, [&](const Series& /*in_b*/, const Measured& of) {
    if (find_measured(all_in_a, of) == nullptr) result.only_in_second.push_back(of);
  });
  if (result.found.empty()) return sides.nothing_in_common();
  return result;
}

}  // namespace carveout::probe
