#include "options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iostream>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/text.hpp"
#include "version.hpp"

namespace carveout::daemon {
namespace {

constexpr int kUsage = 2;

CLI::Validator size_of_slices() {
  return {[](const std::string& text) -> std::string {
            const auto size = parse_bytes(text);
            if (!size) return size.error().describe();
            if (*size < kSliceBytes) {
              return cat(text, " is less than a slice of 2 MiB (write 2046MiB for MiB)");
            }
            if (Slices::holding(*size).bytes() != *size) {
              return cat(text, " is not a whole number of 2 MiB slices");
            }
            if (*size > gib(1 << 20)) return cat(text, " is more than any machine has");
            return {};
          },
          "SIZE"};
}

CLI::Validator any_size() {
  return {[](const std::string& text) -> std::string {
            const auto size = parse_bytes(text);
            return size ? std::string() : size.error().describe();
          },
          "SIZE"};
}

// Decimal, or hexadecimal behind 0x.
Result<Bytes> parse_address(std::string_view text) {
  const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  const std::string_view digits = hexadecimal ? text.substr(2) : text;
  std::uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [rest, problem] = std::from_chars(digits.data(), end, value, hexadecimal ? 16 : 10);
  if (problem != std::errc{} || rest != end) {
    return Error{Code::kInvalid, 0, cat("address \"", printable(text, 64), "\""),
                 "write it in decimal, or in hexadecimal behind 0x"};
  }
  return Bytes(value);
}

CLI::Validator address() {
  return {[](const std::string& text) -> std::string {
            const auto value = parse_address(text);
            return value ? std::string() : value.error().describe();
          },
          "ADDRESS"};
}

std::string hexadecimal(Bytes value) {
  std::ostringstream text;
  text << "0x" << std::hex << value.count();
  return text.str();
}

// CLI11 reads the lines of an option that stand apart from each other as options of their own, and
// drops all but the first. Here they are one option with several values, wherever they stand.
class WholeConfig : public CLI::ConfigTOML {
 public:
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> whole;
    for (CLI::ConfigItem& item : CLI::ConfigTOML::from_config(input)) {
      const auto same = std::find_if(whole.begin(), whole.end(), [&](const auto& other) {
        return other.fullname() == item.fullname();
      });
      if (same == whole.end()) {
        whole.push_back(std::move(item));
      } else {
        same->inputs.insert(same->inputs.end(), item.inputs.begin(), item.inputs.end());
      }
    }
    return whole;
  }
};

// Options as text, as CLI11 fills them.
struct Texts {
  std::string size, base, max_bytes_per_uid, ledger;
};

void declare(CLI::App& app, Options& options, Texts& texts) {
  app.set_version_flag("--version", cat("carveoutd ", kVersion));
  app.set_config("--config", kDefaultConfig,
                 "Read settings from FILE, one option a line without its dashes (size=2046MiB); "
                 "the command line goes first. The default may be missing")
      ->type_name("FILE");
  app.config_formatter(std::make_shared<WholeConfig>());
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.add_option(
         "--backend", options.backend,
         "Where the memory comes from (cuda: of a GPU, by its driver; to try things without a "
         "reservation)")
      ->check(CLI::IsMember({"memfd", "dma-heap", "drm", "cuda"}))
      ->capture_default_str();
  app.add_option("--heap", options.heap, "The heap's name in /dev/dma_heap (--backend dma-heap)")
      ->type_name("NAME");
  app.add_option("--card", options.card,
                 "The card's primary node, /dev/dri/cardN; auto: NVIDIA's, or else the first that "
                 "will do (--backend drm)")
      ->type_name("PATH")
      ->capture_default_str();
  app.add_option("--lend-as", options.lend_as,
                 "What a borrower gets: a dma-buf, or a file of NVIDIA's driver (--backend drm)")
      ->check(CLI::IsMember({"dma-buf", "nvidia"}))
      ->capture_default_str();
  app.add_flag("--allow-display", options.allow_display,
               "Lend although the card shows a picture, which may be damaged (--backend drm)");
  app.add_option("--size", texts.size, "How much is lent in all, in whole slices of 2 MiB")
      ->check(size_of_slices())
      ->default_str(cat(options.size.count() >> 20, "MiB"));
  app.add_option("--base", texts.base,
                 "The reservation's base address as borrowers are told it; not used for anything")
      ->check(address())
      ->default_str(hexadecimal(options.base));
  app.add_option(
         "--socket", options.sockets,
         "Lend on this socket; may be given several times. The default is only for when the "
         "service manager passes none")
      ->type_name("PATH")
      ->allow_extra_args(false)
      ->default_str(kDefaultSocket);
  app.add_option("--control", options.control,
                 "The operator's socket (carveoutctl); its directory must be private, and the "
                 "instance's lock stands beside it")
      ->type_name("PATH")
      ->capture_default_str();
  app.add_option("--key-file", options.key_file,
                 "The file whose first line is the key that every borrower must send; not "
                 "readable by everybody. Read again on SIGHUP")
      ->type_name("FILE");
  app.add_option("--max-bytes-per-uid", texts.max_bytes_per_uid,
                 "The most that one user may have at once (default: no limit)")
      ->check(any_size());
  app.add_option("--max-connections-per-uid", options.max_connections_per_uid,
                 "The most connections that one user may have at once (default: no limit)")
      ->check(CLI::PositiveNumber);
  app.add_option("--max-connections", options.max_connections,
                 "The most connections at once (default: as many as the descriptor limit allows)")
      ->check(CLI::PositiveNumber);
  app.add_option("--idle-timeout", options.idle_timeout_s,
                 "Close a connection that has not sent a good key for so many seconds; 0: never")
      ->type_name("SECONDS")
      ->check(CLI::Range(0U, 86'400U))
      ->capture_default_str();
  app.add_option(
         "--ledger", texts.ledger,
         "Record what is lent in FILE, so that leases survive the daemon; none: do not, and "
         "keep nothing in the service manager's store")
      ->type_name("FILE")
      ->default_str("ledger.jsonl beside the control socket");
  app.add_option("--store-max", options.store_max,
                 "The most connections with leases; not above FileDescriptorStoreMax= of the unit")
      ->check(CLI::Range(std::size_t{1}, std::size_t{65'536}))
      ->capture_default_str();
  app.add_option("--hold", options.hold,
                 "Claim the whole size at the start, so that nobody else takes it: yes or no "
                 "(default: yes with --backend drm)")
      ->check(CLI::IsMember({"yes", "no"}));
  app.add_flag("--allow-partial", options.allow_partial,
               "With --hold: lend what there is, if it is less than --size");
  app.add_flag("--check", options.check,
               "Check the settings, the key and that the backend gives memory, then end")
      ->configurable(false);
}

// CLI11's words, with the file named that they are about.
std::string explain(const CLI::App& app, const CLI::ParseError& problem) {
  std::string text = printable(problem.what(), 1000);
  const bool in_file = dynamic_cast<const CLI::ConfigError*>(&problem) != nullptr;
  const bool of_file = dynamic_cast<const CLI::FileError*>(&problem) != nullptr;
  if (!in_file && !of_file) return text;
  const auto path = app.get_config_ptr()->as<std::string>();
  if (of_file) text = "cannot be read: does it exist, is it a file, and may we read it?";
  const std::string_view cli11 = "INI was not able to parse ";
  if (text.starts_with(cli11)) text = "has an unknown setting: " + text.substr(cli11.size());
  return cat("configuration file ", printable(path, 200), " ", text);
}

// A setting that does nothing here is somebody's mistake: most likely --backend is missing.
std::string idle_setting(const CLI::App& app, const Options& options) {
  const std::pair<const char*, const char*> settings[] = {
      {"--heap", "dma-heap"}, {"--card", "drm"}, {"--lend-as", "drm"}, {"--allow-display", "drm"}};
  for (const auto& [name, backend] : settings) {
    if (app.count(name) != 0 && options.backend != backend) {
      return cat(name, " is only for --backend ", backend, ", and this is --backend ",
                 options.backend);
    }
  }
  if (options.allow_partial && !holds(options)) {
    return "--allow-partial is only for --hold yes: without, nothing is claimed at the start";
  }
  return {};
}

}  // namespace

bool holds(const Options& options) {
  return options.hold == "auto" ? options.backend == "drm" : options.hold == "yes";
}

std::variant<Options, int> parse_options(int argc, const char* const* argv) {
  Options options;
  Texts texts;
  CLI::App app{"carveoutd lends a machine's unused display reservation in 2 MiB slices",
               "carveoutd"};
  declare(app, options, texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return app.exit(wanted);
  } catch (const CLI::ParseError& problem) {
    std::cerr << "carveoutd: " << explain(app, problem) << "\ncarveoutd: see carveoutd --help\n";
    return kUsage;
  }
  if (!texts.size.empty()) options.size = *parse_bytes(texts.size);
  if (!texts.max_bytes_per_uid.empty()) {
    options.max_bytes_per_uid = *parse_bytes(texts.max_bytes_per_uid);
  }
  if (!texts.base.empty()) options.base = *parse_address(texts.base);
  options.ledger = texts.ledger.empty()     ? cat(directory_of(options.control), "/ledger.jsonl")
                   : texts.ledger == "none" ? ""
                                            : texts.ledger;
  if (options.backend == "dma-heap" && options.heap.empty()) {
    std::cerr << "carveoutd: --backend dma-heap wants a --heap: name one of /dev/dma_heap\n";
    return kUsage;
  }
  if (const std::string mistake = idle_setting(app, options); !mistake.empty()) {
    std::cerr << "carveoutd: " << mistake << '\n';
    return kUsage;
  }
  if (options.key_file.empty()) {
    std::cerr << "carveoutd: --key-file is missing: name a file (mode 0640) whose first line is "
                 "the key that borrowers send\n";
    return kUsage;
  }
  if (std::set<std::string>(options.sockets.begin(), options.sockets.end()).size() !=
      options.sockets.size()) {
    std::cerr << "carveoutd: --socket names the same path twice\n";
    return kUsage;
  }
  return options;
}

}  // namespace carveout::daemon
