#include <unistd.h>

#include <csignal>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "base/file.hpp"
#include "base/text.hpp"
#include "command_line.hpp"
#include "engines/cpu_engine.hpp"
#include "engines/gpu_engine.hpp"
#include "exit_codes.hpp"
#include "files/compare.hpp"
#include "files/result_file.hpp"
#include "files/write_file.hpp"
#include "findings.hpp"
#include "lender_facts.hpp"
#include "outcome.hpp"
#include "run.hpp"
#include "show/curve.hpp"
#include "show/info_text.hpp"
#include "show/page.hpp"
#include "show/progress.hpp"
#include "show/tables.hpp"

namespace carveout::probe {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

// The first of a kind ends the measuring, with what there is so far; the second ends the process.
// What whoever started this has it ignore (nohup, a script's background) stays ignored.
void listen_for_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int number : {SIGHUP, SIGINT, SIGTERM}) {
    struct sigaction before {};
    if (::sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    ::sigaction(number, &action, nullptr);
  }
}

int complain(const Error& error) {
  std::cerr << "carveout-probe: " << error.describe() << '\n';
  return error.code == Code::kRefused ? kRefused : kFailed;
}

int print(const std::string& text) {
  std::cout << text << std::flush;
  if (std::cout.good()) return kDone;
  std::cerr << "carveout-probe: the answer cannot be written to standard output\n";
  return kFailed;
}

Result<std::unique_ptr<Engine>> choose_engine(const Command& command) {
  if (command.engine == "cpu") return open_cpu_engine(command.run.threads);
  auto gpu = open_gpu_engine(command.run.arms.device);
  if (gpu || command.engine == "gpu" || gpu.error().code != Code::kNotFound) return gpu;
  std::cerr << "carveout-probe: the processor measures, since there is no GPU: "
            << printable(gpu.error().describe(), 1000) << '\n';
  return open_cpu_engine(command.run.threads);
}

Result<Report> measure(Engine& engine, const Command& command, ProgressBar& bar) {
  const auto show = [&bar](std::size_t done, std::size_t all) { bar.show(done, all); };
  const Interrupted interrupted = [] { return g_interrupted != 0; };
  const RunSettings& run = command.run;
  const Bytes size = run.arms.size;
  if (command.name == "info") {
    RunSettings trial = run;
    trial.arms.size = kSliceBytes;
    return run_info(engine, trial);
  }
  bar.say("taking memory and filling it ...");
  if (command.name == "latency") return run_latency(engine, run, show, interrupted);
  if (command.name == "bandwidth") {
    return run_steps("bandwidth", engine, run, bandwidth_steps(engine.rows(), size), show,
                     interrupted);
  }
  const Bytes inside = well_inside(engine.cache());
  if (size <= inside) {
    return Error{Code::kInvalid, 0, cat("--size ", format_bytes(size)),
                 cat("must be more than ", format_bytes(inside),
                     ", which the cache holds: several times the largest cache is good")};
  }
  Machine machine;
  engine.describe(machine);
  const Bytes largest(machine.cache_bytes.empty() ? 0 : machine.cache_bytes.back());
  Report report =
      run_steps("residency", engine, run, residency_steps(engine.kind(), largest, inside, size),
                show, interrupted);
  report.reread_size = inside;
  return report;
}

std::string shown(const Report& report) {
  const auto columns = static_cast<unsigned>(columns_of(STDOUT_FILENO));
  const std::string curve = terminal_curve(report, columns);
  return table(report) + (curve.empty() ? "" : "\n" + curve);
}

// What is on file is always of a run that did not fail: of one that did it stands beside it.
constexpr const char* kIncomplete = ".incomplete";

std::string place_for(const std::string& file, bool failed) {
  if (!failed || is_written_in_place(file)) return file;
  const std::string name = printable(file, 1000);
  const bool is_there = ::access(file.c_str(), F_OK) == 0;
  std::cerr << "carveout-probe: " << name << (is_there ? " is left as it was" : " is not written")
            << ": what this run found is in " << name << kIncomplete << '\n';
  return file + kIncomplete;
}

Result<void> write_files(const Command& command, const Report& report, bool failed) {
  if (!command.json.empty()) {
    const Findings findings{against_ordinary(report), residencies(report), remarks(report)};
    auto text = to_json(report, findings);
    if (!text) return std::move(text).error();
    if (auto written = write_file(place_for(command.json, failed), *text); !written) return written;
  }
  if (command.html.empty()) return {};
  return write_file(place_for(command.html, failed), html_page(report));
}

// Before minutes are spent on what then has nowhere to go.
Result<void> check_files(const Command& command) {
  for (const std::string& file : {command.json, command.html}) {
    if (file.empty()) continue;
    if (auto writable = check_writable(file); !writable) return writable;
  }
  return {};
}

// The table first: a full disk must not take it, too.
int report_on(const Command& command, const Report& report) {
  const int printed = print(report.command == "info" ? info_text(report) : shown(report));
  const Outcome outcome = outcome_of(report, command.run.arms.sources, command.require_resident);
  // Before the files: one of them may be where this goes, too (--json /dev/stdout >all 2>&1).
  if (!outcome.complaint.empty()) std::cerr << "carveout-probe: " << outcome.complaint << '\n';
  if (auto written = write_files(command, report, outcome.code == kFailed); !written) {
    return complain(written.error());
  }
  return outcome.code != kDone ? outcome.code : printed;
}

// Tables and files have the size that was measured.
void say_how_size_is_rounded(const Command& command) {
  const Bytes size = command.run.arms.size;
  if (command.name == "info" || command.asked_size == Bytes(0) || command.asked_size == size)
    return;
  std::cerr << "carveout-probe: --size " << format_bytes(command.asked_size) << " is rounded up to "
            << format_bytes(size) << ": memory is lent in slices of " << format_bytes(kSliceBytes)
            << '\n';
}

int run_measurement(Command command) {
  if (auto files = check_files(command); !files) return complain(files.error());
  auto engine = choose_engine(command);
  if (!engine) {
    const bool lacking = engine.error().code == Code::kNotFound;
    std::cerr << "carveout-probe: " << (lacking ? "waived: " : "") << engine.error().describe()
              << '\n';
    return lacking ? kWaived : kFailed;
  }
  ArmSettings& arms = command.run.arms;
  if (arms.sources.empty()) arms.sources = default_sources((*engine)->kind());
  if (arms.size == Bytes(0)) arms.size = default_size((*engine)->kind(), (*engine)->cache());
  say_how_size_is_rounded(command);
  listen_for_interrupts();
  // First: what has lent may be gone when all is measured.
  const std::string lender = lender_facts(command.control);
  ProgressBar bar;
  auto report = measure(**engine, command, bar);
  bar.clear();
  if (!report) {
    complain(report.error());
    return report.error().code == Code::kInvalid ? kUsage : kFailed;
  }
  report->machine.lender = lender;
  return report_on(command, *report);
}

int run_compare(const Command& command) {
  const auto first = read_report(command.files[0]);
  if (!first) return complain(first.error());
  const auto second = read_report(command.files[1]);
  if (!second) return complain(second.error());
  const auto differences = compare_reports(*first, command.files[0], *second, command.files[1]);
  if (!differences) return complain(differences.error());
  const int printed = print(differences_table(*differences));
  if (command.json.empty()) return printed;
  const auto text = differences_json(*differences);
  if (!text) return complain(text.error());
  const auto written = write_file(command.json, *text);
  return written ? printed : complain(written.error());
}

int run(int argc, char** argv) {
  auto parsed = parse_command_line(argc, argv);
  if (const auto* answer = std::get_if<Answer>(&parsed)) {
    std::cerr << answer->complaint;
    const int printed = print(answer->output);
    return answer->code != kDone ? answer->code : printed;
  }
  const Command& command = std::get<Command>(parsed);
  return command.name == "compare" ? run_compare(command) : run_measurement(command);
}

}  // namespace
}  // namespace carveout::probe

int main(int argc, char** argv) {
  if (!carveout::fill_standard_descriptors()) return carveout::probe::kFailed;
  // Who reads the table may leave (`| head`): the files that were asked for are written all the
  // same.
  ::signal(SIGPIPE, SIG_IGN);
  try {
    return carveout::probe::run(argc, argv);
  } catch (const std::exception& problem) {
    std::cerr << "carveout-probe: " << problem.what() << '\n';
    return carveout::probe::kFailed;
  }
}
