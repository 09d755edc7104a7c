#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "audit.hpp"
#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "claim.hpp"
#include "control_client.hpp"
#include "holders.hpp"
#include "l2.hpp"
#include "tables.hpp"
#include "version.hpp"

namespace carveout::ctl {
namespace {

// The last two are what shells and env(1) answer for a command that cannot be run.
enum Exit {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,
  kRefused = 3,
  kCannotRun = 126,
  kNoSuchCommand = 127
};

struct Settings {
  std::string control = "/run/carveoutd/control.sock";
  std::string socket = "/run/carveout/carveout.sock";
  std::string key_file = "/etc/carveout/key";
  bool json = false;
  bool undo = false;
  std::string size;
  std::string ledger;
  std::string probe_result = client::kL2ClassFile;
  std::optional<std::uint64_t> lease;
  std::vector<std::string> files;
  std::vector<std::string> command;  // what stands behind "--"
};

int complain(const Error& error) {
  std::cerr << "carveoutctl: " << error.describe() << '\n';
  return error.code == Code::kRefused ? kRefused : kFailed;
}

int show(const Settings& settings, const Result<rapidjson::Document>& reply,
         const std::function<std::string(const rapidjson::Value&)>& table) {
  if (!reply) return complain(reply.error());
  std::cout << (settings.json ? pretty_json(*reply) : table(*reply)) << std::flush;
  if (std::cout.good()) return kDone;
  std::cerr << "carveoutctl: the answer cannot be written to standard output\n";
  return kFailed;
}

int run_status(const Settings& settings) {
  auto reply = ask(settings.control, "status");
  if (reply) add_l2(*reply, settings.probe_result, client::here());
  return show(settings, reply, status_table);
}

int run_audit(const Settings& settings) {
  std::vector<std::string> files = settings.files;
  if (files.empty()) {
    const std::string ledger = cat(directory_of(settings.control), "/ledger.jsonl");
    files.push_back(ledger);
    if (::access(cat(ledger, ".1").c_str(), F_OK) == 0) files.push_back(cat(ledger, ".1"));
  }
  const auto reply = audit(files);
  const int shown = show(settings, reply, audit_table);
  if (shown != kDone) return shown;
  return find_member(*reply, "problem") == nullptr ? kDone : kFailed;
}

int run_holders(const Settings& settings) {
  const std::string nobody =
      settings.lease ? cat("nobody holds lease ", *settings.lease) : "nobody holds lent memory";
  return show(
      settings,
      holders({.control = settings.control, .ledger = settings.ledger, .lease = settings.lease}),
      [&nobody](const auto& reply) { return holders_table(reply, nobody); });
}

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

int run_claim(const Settings& settings) {
  const auto size = parse_bytes(settings.size);
  const std::string name =
      settings.command.empty() ? "carveoutctl" : base_name(settings.command.front());
  const auto held =
      claim({.socket = settings.socket, .key_file = settings.key_file, .size = *size}, name);
  if (!held) return complain(held.error());
  if (!settings.command.empty()) {
    const Error problem = become(*held, settings.command);
    complain(problem);
    return problem.number == ENOENT ? kNoSuchCommand : kCannotRun;
  }
  const auto ended = hold(*held, [&] {
    if (settings.json) {
      std::cout << "{\"bytes\": " << held->loan().size.count() << "}" << std::endl;
    } else {
      std::cout << "holding " << format_bytes(held->loan().size) << " until interrupted"
                << std::endl;
    }
  });
  return ended ? kDone : complain(ended.error());
}

// Whatever stands behind "--" is the command of `claim`, untouched.
std::vector<std::string> split_command(int& argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--") continue;
    std::vector<std::string> command(argv + i + 1, argv + argc);
    argc = i;
    return command;
  }
  return {};
}

void declare_holders(CLI::App& app, Settings& settings) {
  CLI::App* holders = app.add_subcommand(
      "holders",
      "Find the processes that hold lent memory, of leases that are open and of those that have "
      "ended, by its inode in /proc (as root: all of them). Memory lent as NVIDIA files has no "
      "inode of its own and cannot be found");
  holders->add_option("LEASE", settings.lease, "Its number: of this lease only")
      ->type_name("")
      ->check([](const std::string& text) -> std::string {
        const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
        const bool number = digits && text.size() < 20 && text.find_first_not_of('0') < text.size();
        return number ? "" : cat("\"", printable(text, 100), "\" is not a lease's number");
      });
  holders
      ->add_option("--ledger", settings.ledger,
                   "By this ledger (and FILE.1), instead of the daemon (which need not run)")
      ->type_name("FILE");
}

void declare(CLI::App& app, Settings& settings) {
  app.set_version_flag("--version", cat("carveoutctl ", kVersion));
  app.add_option("--control", settings.control, "The daemon's control socket")
      ->type_name("PATH")
      ->capture_default_str();
  app.add_option("--socket", settings.socket, "The lending socket (claim)")
      ->type_name("PATH")
      ->capture_default_str();
  app.add_option("--key-file", settings.key_file, "The file with the lender's key (claim)")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_flag("--json", settings.json, "Answer in JSON");
  app.require_subcommand(0, 1);
  app.fallthrough();
  app.allow_extras();  // mistake_in() names them

  app.add_subcommand("status", "Show what is lent, what is free and what was refused")
      ->add_option("--probe-result", settings.probe_result,
                   "What carveout-probe residency --json has found of the L2")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_subcommand("leases", "Show who holds what")
      ->add_option("--ledger", settings.ledger,
                   "Of this ledger, at its end, instead of the daemon (which need not run)")
      ->type_name("FILE");
  declare_holders(app, settings);
  app.add_subcommand("audit",
                     "Replay ledgers (the daemon's, and those before it) and verify every record")
      ->add_option("FILE", settings.files,
                   "ledger.jsonl, ledger.jsonl.1, ...; in any order. Without: those beside the "
                   "control socket");
  CLI::App* claim = app.add_subcommand(
      "claim",
      "Borrow SIZE and hold it until interrupted, or become a command that holds it: "
      "claim SIZE -- COMMAND... (the command inherits the memory as descriptor CARVEOUT_FD, of "
      "CARVEOUT_BYTES bytes, and the lease as CARVEOUT_LEASE_FD)");
  claim->add_option("SIZE", settings.size, "2MiB, 1GiB, ...; rounded up to whole slices of 2 MiB")
      ->required()
      ->check([](const std::string& text) -> std::string {
        const auto size = parse_bytes(text);
        if (!size) return size.error().describe();
        const bool fits = *size > Bytes(0) && *size <= gib(1 << 20);
        return fits ? "" : text + " is not a size that can be borrowed";
      });
  CLI::App* drain =
      app.add_subcommand("drain", "Lend nothing more; what is lent stays with its borrowers");
  drain->add_flag("--undo", settings.undo, "Lend again");
}

// What CLI11's own words for it would leave open.
std::string mistake_in(const CLI::App& app) {
  const auto rest = app.remaining();
  const std::string word = rest.empty() ? "" : printable(rest.front(), 100);
  if (app.get_subcommands().empty()) {
    return cat(rest.empty() ? "" : cat("\"", word, "\" is not a command: "),
               "say status, leases, holders, claim, audit or drain (drain --undo lends again)");
  }
  if (rest.empty()) return {};
  return cat("\"", word, "\" is not expected here (a command for claim stands behind --)");
}

int run(int argc, char** argv) {
  Settings settings;
  const int given = argc;
  settings.command = split_command(argc, argv);
  const bool has_command = argc != given;
  CLI::App app{"carveoutctl: the operator's tool for carveoutd", "carveoutctl"};
  declare(app, settings);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return app.exit(wanted);
  } catch (const CLI::ParseError& problem) {
    std::cerr << "carveoutctl: " << printable(problem.what(), 1000)
              << "\ncarveoutctl: see carveoutctl --help\n";
    return kUsage;
  }
  if (const std::string mistake = mistake_in(app); !mistake.empty()) {
    std::cerr << "carveoutctl: " << mistake << "\ncarveoutctl: see carveoutctl --help\n";
    return kUsage;
  }
  const std::string name = app.get_subcommands().front()->get_name();
  if (has_command && (name != "claim" || settings.command.empty())) {
    std::cerr << "carveoutctl: only claim takes a command behind --, and it must not be empty\n";
    return kUsage;
  }
  const std::string& control = settings.control;
  if (name == "status") return run_status(settings);
  if (name == "leases" && !settings.ledger.empty()) {
    return show(settings, leases_of_ledger(settings.ledger), leases_table);
  }
  if (name == "leases") return show(settings, ask(control, "leases"), leases_table);
  if (name == "holders") return run_holders(settings);
  if (name == "audit") return run_audit(settings);
  if (name == "drain") {
    return show(settings, ask(control, settings.undo ? "undrain" : "drain"), draining_line);
  }
  return run_claim(settings);
}

}  // namespace
}  // namespace carveout::ctl

int main(int argc, char** argv) {
  if (!carveout::fill_standard_descriptors()) return carveout::ctl::kFailed;
  try {
    return carveout::ctl::run(argc, argv);
  } catch (const std::exception& problem) {
    std::cerr << "carveoutctl: " << problem.what() << '\n';
    return 1;
  }
}
