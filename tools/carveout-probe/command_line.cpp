#include "command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "base/text.hpp"
#include "engines/crew.hpp"
#include "exit_codes.hpp"
#include "files/write_file.hpp"
#include "version.hpp"

namespace carveout::probe {
namespace {

constexpr const char* kAbout =
    "carveout-probe: measures whether memory that carveoutd lends is worth having: how fast it is, "
    "and whether the caches keep it.\n"
    "Memories are measured by turns, block by block; a difference counts only if it is larger than "
    "its range over the blocks.";

constexpr std::uint64_t kMostBlocks = 10000;
constexpr Bytes kMostSize = gib(1 << 10);

// A whole number of slices, as it is lent.
std::string read_size(const std::string& text, Command& command) {
  const auto parsed = parse_bytes(text);
  if (!parsed) return parsed.error().describe();
  if (*parsed == Bytes(0) || *parsed > kMostSize) {
    return cat(text, " cannot be measured: say 1 to ", format_bytes(kMostSize));
  }
  command.asked_size = *parsed;
  command.run.arms.size = Slices::holding(*parsed).bytes();
  return "";
}

void declare_memories(CLI::App& app, Command& command) {
  ArmSettings& arms = command.run.arms;
  app.add_option("--engine", command.engine, "What measures: auto is the GPU where there is one")
      ->check(CLI::IsMember({"auto", "gpu", "cpu"}))
      ->capture_default_str();
  app.add_option("--source", arms.sources,
                 "Memory to be compared with ordinary memory; can be said several times. Of the "
                 "GPU engine, also cuda is compared unless something is said; `ordinary` compares "
                 "ordinary memory with itself")
      ->check(CLI::IsMember({"daemon", "drm", "dma-heap", "memfd", "cuda", "ordinary"}))
      ->default_str("daemon");
  app.add_option("--map", arms.maps,
                 "How it is mapped; can be said several times. auto: by each way that there is for "
                 "the engine")
      ->check(CLI::IsMember({"auto", "vmm", "external", "register", "host"}))
      ->default_str("auto");
  app.add_option_function<std::string>(
         "--size",
         [&command](const std::string& text) {
           if (const std::string problem = read_size(text, command); !problem.empty()) {
             throw CLI::ValidationError("--size", problem);
           }
         },
         "Of each memory, rounded up to whole slices of 2 MiB, which is said where it is done; "
         "also what is streamed")
      ->type_name("SIZE")
      ->default_str("512MiB; of a GPU 32 times its L2, if that is more, up to 1792MiB");
  app.add_option("--device", arms.device, "The CUDA device's number (GPU engine)")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  app.add_option("--threads", command.run.threads,
                 "Of the CPU engine, each on a processor of its own; a working set is divided "
                 "among them")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{8192}))
      ->capture_default_str();
  app.add_option("--socket", arms.socket, "The lending socket (daemon)")
      ->type_name("PATH")
      ->default_str("/run/carveout/carveout.sock");
  app.add_option("--key-file", arms.key_file, "The file with the lender's key (daemon)")
      ->type_name("FILE")
      ->default_str("/etc/carveout/key");
  app.add_option("--control", command.control,
                 "The daemon's control socket, which its version and backend are asked of")
      ->type_name("PATH")
      ->capture_default_str();
  app.add_option("--card", arms.card, "A card's path (drm)")
      ->type_name("PATH")
      ->default_str("auto");
  app.add_option("--heap", arms.heap, "A name in /dev/dma_heap (dma-heap)")->type_name("NAME");
}

void declare_run(CLI::App& app, Command& command) {
  app.add_option("--blocks", command.run.blocks,
                 "Each holds every memory once; fewer than 8 tell nothing")
      ->check(CLI::Range(std::uint64_t{1}, kMostBlocks))
      ->capture_default_str();
  app.add_option("--repetitions", command.run.repetitions,
                 "Of a batch, beside the cold one. 0: what takes a tenth of a second, 5 to 20")
      ->check(CLI::Range(std::uint64_t{0}, kMostBlocks))
      ->capture_default_str();
  app.add_option("--json", command.json, "Write the results there")->type_name("FILE");
  app.add_option("--html", command.html, "Write a page for a browser there")->type_name("FILE");
}

void declare(CLI::App& app, Command& command) {
  app.set_version_flag("--version", cat("carveout-probe ", kVersion));
  app.require_subcommand(0, 1);
  app.fallthrough();
  app.allow_extras();  // mistake_in() names them
  declare_memories(app, command);
  declare_run(app, command);
  app.add_subcommand("info", "Show what can be measured here, and what cannot, and why");
  app.add_subcommand("bandwidth", "Measure reading, writing, copying, gathering, dependent loads");
  app.add_subcommand("residency",
                     "Measure whether the GPU's L2 (the processor's caches) keep the memory: "
                     "rereading working sets of many sizes")
      ->add_option_function<std::string>(
          "--require", [&command](const std::string&) { command.require_resident = true; },
          "Exit with 3 unless every memory that was measured beside ordinary memory is resident")
      ->check(CLI::IsMember({"resident"}));
  app.add_subcommand("latency", "Measure how long it takes to claim memory and to give it back");
  app.add_subcommand("compare", "Compare two results on file (--json), by the same rules")
      ->add_option("FILES", command.files, "A.json B.json")
      ->required()
      ->expected(2);
}

// What CLI11's own words for it would leave open.
std::string mistake_in(const CLI::App& app) {
  const auto rest = app.remaining();
  const std::string word = rest.empty() ? "" : printable(rest.front(), 100);
  if (app.get_subcommands().empty()) {
    return cat(rest.empty() ? "" : cat("\"", word, "\" is not a command: "),
               "say info, bandwidth, residency, latency or compare");
  }
  return rest.empty() ? "" : cat("\"", word, "\" is not expected here");
}

// What single options cannot see.
std::string mistake_in(const Command& command) {
  const bool measures = command.name != "info" && command.name != "compare";
  if (!measures && !command.html.empty())
    return cat(command.name, " has no page: leave out --html");
  if (are_one_file(command.json, command.html)) return "--json and --html name the same file";
  for (const std::string& file : command.files) {
    if (are_one_file(command.json, file))
      return cat("--json would take the place of ", printable(file, 100), ", which is compared");
  }
  const std::size_t processors = allowed_processors().size();
  if (command.run.threads > processors) {
    return cat("--threads ", command.run.threads, ": this process may run on ", processors,
               processors == 1 ? " processor" : " processors");
  }
  return "";
}

}  // namespace

std::variant<Command, Answer> parse_command_line(int argc, const char* const* argv) {
  Command command;
  command.engine = "auto";
  command.control = "/run/carveoutd/control.sock";
  CLI::App app{kAbout, "carveout-probe"};
  declare(app, command);
  const auto usage = [](const std::string& problem) {
    return Answer{
        kUsage, "",
        cat("carveout-probe: ", problem, "\ncarveout-probe: see carveout-probe --help\n")};
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    std::ostringstream output, ignored;
    const int code = app.exit(wanted, output, ignored);
    return Answer{code, output.str(), ""};
  } catch (const CLI::ParseError& problem) {
    return usage(printable(problem.what(), 1000));
  }
  if (const std::string mistake = mistake_in(app); !mistake.empty()) return usage(mistake);
  command.name = app.get_subcommands().front()->get_name();
  if (const std::string mistake = mistake_in(command); !mistake.empty()) return usage(mistake);
  return command;
}

}  // namespace carveout::probe
