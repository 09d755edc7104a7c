#include "options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "base/text.hpp"
#include "unit/helpers.hpp"
#include "version.hpp"

namespace carveout::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Collects what is written to a stream.
class Captured {
 public:
  explicit Captured(std::ostream& stream) : stream_(stream), before_(stream.rdbuf(text_.rdbuf())) {}
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  Captured(Captured&&) = delete;
  Captured& operator=(Captured&&) = delete;
  ~Captured() { stream_.rdbuf(before_); }
  [[nodiscard]] std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::ostream& stream_;
  std::streambuf* before_;
};

class OptionsTest : public testing::Test {
 protected:
  // Reads these arguments, and `config` instead of the machine's own file.
  std::variant<Options, int> parse(const std::vector<std::string>& arguments,
                                   const std::string& config = "") {
    const std::string file = directory_.file("carveoutd.conf", config);
    std::vector<const char*> all{"carveoutd", "--config", file.c_str()};
    for (const std::string& argument : arguments)
      all.push_back(argument.c_str());
    const Captured out(std::cout), error(std::cerr);
    auto parsed = parse_options(static_cast<int>(all.size()), all.data());
    out_ = out.text();
    error_ = error.text();
    return parsed;
  }
  Options good(std::vector<std::string> arguments, const std::string& config = "") {
    arguments.insert(arguments.begin(), {"--key-file", "/key"});
    const auto parsed = parse(arguments, config);
    EXPECT_TRUE(std::holds_alternative<Options>(parsed)) << error_;
    return std::holds_alternative<Options>(parsed) ? std::get<Options>(parsed) : Options{};
  }
  // A mistake, named on standard error.
  void expect_usage(std::vector<std::string> arguments, const std::string& named,
                    const std::string& config = "") {
    arguments.insert(arguments.begin(), {"--key-file", "/key"});
    expect_bare_usage(arguments, named, config);
  }
  void expect_bare_usage(const std::vector<std::string>& arguments, const std::string& named,
                         const std::string& config = "") {
    const auto parsed = parse(arguments, config);
    ASSERT_TRUE(std::holds_alternative<int>(parsed)) << testing::PrintToString(arguments) << config;
    EXPECT_EQ(std::get<int>(parsed), 2) << testing::PrintToString(arguments) << config;
    EXPECT_THAT(error_, HasSubstr(named));
    EXPECT_TRUE(error_.starts_with("carveoutd: ")) << error_;
    EXPECT_EQ(out_, "");
  }

  test::TemporaryDirectory directory_;
  std::string out_, error_;
};

TEST_F(OptionsTest, HaveTheDocumentedDefaults) {
  const Options options = good({});
  EXPECT_EQ(options.backend, "memfd");
  EXPECT_EQ(options.size, Bytes(2145386496));
  EXPECT_EQ(options.base, Bytes(10739515392));
  EXPECT_TRUE(options.sockets.empty());  // whatever the service manager passes, or kDefaultSocket
  EXPECT_STREQ(kDefaultSocket, "/run/carveout/carveout.sock");
  EXPECT_EQ(options.control, "/run/carveoutd/control.sock");
  EXPECT_EQ(options.ledger, "/run/carveoutd/ledger.jsonl");
  EXPECT_EQ(options.store_max, 1024U);
  EXPECT_EQ(options.key_file, "/key");
  EXPECT_EQ(options.max_bytes_per_uid, std::nullopt);
  EXPECT_EQ(options.max_connections_per_uid, std::nullopt);
  EXPECT_EQ(options.max_connections, std::nullopt);
  EXPECT_EQ(options.idle_timeout_s, 30U);
  EXPECT_FALSE(options.check);
}

TEST_F(OptionsTest, AreTakenFromTheCommandLine) {
  const Options options = good({"--backend", "memfd", "--size", "64MiB", "--base", "0x1000",
                                "--socket", "/a", "--socket=/b", "--control", "/c", "--check"});
  EXPECT_EQ(options.size, mib(64));
  EXPECT_EQ(options.base, Bytes(0x1000));
  EXPECT_THAT(options.sockets, ElementsAre("/a", "/b"));
  EXPECT_EQ(options.control, "/c");
  EXPECT_TRUE(options.check);
}

TEST_F(OptionsTest, AreTakenFromTheConfigurationFile) {
  const auto parsed = parse({},
                            "# a comment\nbackend=memfd\nsize=64MiB\nbase=0x1000\nsocket=/a\n"
                            "control = /c\n\nkey-file=\"/key\"\n");
  ASSERT_TRUE(std::holds_alternative<Options>(parsed)) << error_;
  const auto& options = std::get<Options>(parsed);
  EXPECT_EQ(options.size, mib(64));
  EXPECT_EQ(options.base, Bytes(0x1000));
  EXPECT_THAT(options.sockets, ElementsAre("/a"));
  EXPECT_EQ(options.control, "/c");
  EXPECT_EQ(options.key_file, "/key");
}

TEST_F(OptionsTest, OfTheCommandLineGoFirst) {
  const Options options = good({"--size", "32MiB", "--socket", "/from/line"},
                               "size=64MiB\nsocket=/from/file\ncontrol=/c\nkey-file=/other\n");
  EXPECT_EQ(options.size, mib(32));
  EXPECT_THAT(options.sockets, ElementsAre("/from/line"));
  EXPECT_EQ(options.control, "/c");
  EXPECT_EQ(options.key_file, "/key");
}

TEST_F(OptionsTest, RepeatedSocketLinesAreSeveralSockets) {
  EXPECT_THAT(good({}, "socket=/a\nsocket=/b\nsocket=/c\n").sockets, ElementsAre("/a", "/b", "/c"));
  EXPECT_THAT(good({}, "socket=[\"/a\",\"/b\"]\n").sockets, ElementsAre("/a", "/b"));
}

TEST_F(OptionsTest, RepeatedSocketLinesNeedNotStandTogether) {
  EXPECT_THAT(good({}, "socket=/a\nsize=64MiB\nsocket=/b\n").sockets, ElementsAre("/a", "/b"));
}

TEST_F(OptionsTest, ThatAreUnknownAreRefused) {
  expect_usage({"--nonsense"}, "nonsense");
  expect_usage({"stray"}, "stray");
  expect_usage({}, "nonsense", "nonsense=1\n");
  expect_usage({}, "key_file", "key_file=/k\n");
  expect_usage({}, "", "[section]\nsize=64MiB\n");
  expect_usage({}, "check", "check=true\n");
  expect_usage({"--config"}, "--config");
}

TEST_F(OptionsTest, AConfigurationFileThatIsNamedMustBeThere) {
  const std::string missing = directory_.path("missing.conf");
  const std::vector<const char*> arguments{"carveoutd", "--key-file", "/key", "--config",
                                           missing.c_str()};
  const Captured error(std::cerr);
  const auto parsed = parse_options(static_cast<int>(arguments.size()), arguments.data());
  ASSERT_TRUE(std::holds_alternative<int>(parsed));
  EXPECT_EQ(std::get<int>(parsed), 2);
  EXPECT_THAT(error.text(), HasSubstr("missing.conf"));
}

TEST_F(OptionsTest, NeedAKeyFile) {
  expect_bare_usage({}, "--key-file");
  expect_bare_usage({"--check"}, "--key-file");
  expect_bare_usage({"--key-file", ""}, "--key-file");
}

TEST_F(OptionsTest, SizeIsWholeSlices) {
  EXPECT_EQ(good({"--size", "2097152"}).size, mib(2));
  EXPECT_EQ(good({"--size", "2 GiB"}).size, gib(2));
  EXPECT_EQ(good({"--size", "2048KiB"}).size, mib(2));
  EXPECT_EQ(good({"--size", "1048576GiB"}).size, gib(1048576));
  EXPECT_EQ(good({}, "size=\"64 MiB\"\n").size, mib(64));
  for (const char* size :
       {"0", "1", "1MiB", "3MiB", "2097153", "-2MiB", "", " ", "lots", "2MB", "2.0MiB",
        "1048577GiB", "18446744073709551615", "18446744073709551616", "17179869184GiB"}) {
    expect_usage({"--size", size}, "--size");
    if (*size != '\0' && *size != ' ') expect_usage({}, "--size", cat("size=", size, "\n"));
  }
}

TEST_F(OptionsTest, BaseIsAnAddress) {
  EXPECT_EQ(good({"--base", "0"}).base, Bytes(0));
  EXPECT_EQ(good({"--base", "4096"}).base, Bytes(4096));
  EXPECT_EQ(good({"--base", "0X280200000"}).base, Bytes(0x280200000));
  EXPECT_EQ(good({"--base", "0xFFFFFFFFFFFFFFFF"}).base, Bytes(~std::uint64_t{0}));
  for (const char* base : {"", "0x", "x", "0x1g", "1k", "-1", "0x-1", "0x10000000000000000",
                           "18446744073709551616", "0x 1", "2MiB", "28020000h"}) {
    expect_usage({"--base", base}, "--base");
  }
}

TEST_F(OptionsTest, LimitsAreNumbers) {
  const Options line = good({"--max-bytes-per-uid", "5MiB", "--max-connections-per-uid", "7",
                             "--max-connections", "9", "--idle-timeout", "0"});
  EXPECT_EQ(line.max_bytes_per_uid, mib(5));
  EXPECT_EQ(line.max_connections_per_uid, 7U);
  EXPECT_EQ(line.max_connections, 9U);
  EXPECT_EQ(line.idle_timeout_s, 0U);
  const Options file = good({},
                            "max-bytes-per-uid=\"1 GiB\"\nmax-connections-per-uid=1\n"
                            "max-connections=2\nidle-timeout=86400\n");
  EXPECT_EQ(file.max_bytes_per_uid, gib(1));
  EXPECT_EQ(file.max_connections_per_uid, 1U);
  EXPECT_EQ(file.max_connections, 2U);
  EXPECT_EQ(file.idle_timeout_s, 86'400U);
  for (const char* option : {"--max-connections-per-uid", "--max-connections", "--idle-timeout"}) {
    for (const char* value : {"", "-1", "1.5", "1e3", "lots", "1 2"}) {
      expect_usage({option, value}, option);
    }
  }
  expect_usage({"--max-connections", "0"}, "--max-connections");
  expect_usage({"--max-connections-per-uid", "0"}, "--max-connections-per-uid");
  expect_usage({"--idle-timeout", "86401"}, "--idle-timeout");
  for (const char* value : {"", "-1", "1.5MiB", "lots"}) {
    expect_usage({"--max-bytes-per-uid", value}, "--max-bytes-per-uid");
  }
}

TEST_F(OptionsTest, OfOneValueAreGivenOnce) {
  expect_usage({}, "--size", "size=64MiB\nbase=0\nsize=32MiB\n");
  expect_usage({}, "--control", "control=/a\ncontrol=/b\n");
}

TEST_F(OptionsTest, BackendIsOneThatThereIs) {
  for (const char* backend : {"", "drm2", "MEMFD", "memfd "}) {
    expect_usage({"--backend", backend}, "--backend");
  }
}

TEST_F(OptionsTest, AHeapIsNamed) {
  expect_usage({"--backend", "dma-heap"}, "--heap");
  EXPECT_EQ(good({"--backend", "dma-heap", "--heap", "reserved"}).heap, "reserved");
}

TEST_F(OptionsTest, OfAnotherBackendAreMistakes) {
  expect_usage({"--heap", "system"}, "--heap is only for --backend dma-heap");
  expect_usage({"--backend", "drm", "--heap", "system"}, "--heap is only for --backend dma-heap");
  expect_usage({"--card", "auto"}, "--card is only for --backend drm");
  expect_usage({"--lend-as", "nvidia"}, "--lend-as is only for --backend drm");
  expect_usage({}, "--allow-display is only for --backend drm", "allow-display=true\n");
  const Options drm = good({"--backend", "drm", "--card", "/dev/dri/card1", "--lend-as", "nvidia",
                            "--allow-display", "--allow-partial"});
  EXPECT_EQ(drm.card, "/dev/dri/card1");
  EXPECT_EQ(drm.lend_as, "nvidia");
  EXPECT_TRUE(drm.allow_display && drm.allow_partial);
}

TEST_F(OptionsTest, OfAHoldAreMistakesWithoutIt) {
  expect_usage({"--allow-partial"}, "--allow-partial is only for --hold yes");
  expect_usage({"--backend", "drm", "--hold", "no", "--allow-partial"}, "--allow-partial");
  EXPECT_TRUE(good({"--hold", "yes", "--allow-partial"}).allow_partial);
}

TEST_F(OptionsTest, SocketsAreNotNamedTwice) {
  expect_usage({"--socket", "/a", "--socket", "/b", "--socket", "/a"}, "--socket");
  expect_usage({}, "--socket", "socket=/a\nsocket=/a\n");
  // One word each: what follows is no further path.
  expect_usage({"--socket", "/a", "/b"}, "/b");
}

TEST_F(OptionsTest, ShowTheirMistakesSafely) {
  expect_usage({"--size", "\x1b[31m"}, "\\x1b");
  EXPECT_EQ(error_.find('\x1b'), std::string::npos);
  expect_usage({"--size", std::string(100'000, 'x')}, "--size");
  EXPECT_LT(error_.size(), 2'000U);
}

TEST_F(OptionsTest, HelpAndVersionEndWithSuccess) {
  auto parsed = parse({"--help"});
  ASSERT_TRUE(std::holds_alternative<int>(parsed));
  EXPECT_EQ(std::get<int>(parsed), 0);
  EXPECT_THAT(out_, HasSubstr("--socket"));
  EXPECT_EQ(error_, "");
  parsed = parse({"--version"});
  ASSERT_TRUE(std::holds_alternative<int>(parsed));
  EXPECT_EQ(std::get<int>(parsed), 0);
  EXPECT_EQ(out_, cat("carveoutd ", kVersion, "\n"));
  EXPECT_EQ(error_, "");
}

// "--size TEXT:SIZE=2046MiB   How much ..." -> "2046MiB"
std::optional<std::string> default_in_help(const std::string& help, const std::string& option) {
  const std::size_t line = help.find("\n  " + option + " ");
  if (line == std::string::npos) return std::nullopt;
  std::string entry = help.substr(line + 1, help.find('\n', line + 1) - line - 1);
  entry.resize(std::min(entry.size(), entry.find("  ", 4)));  // where the description begins
  if (entry.ends_with(" ...")) entry.resize(entry.size() - 4);
  const std::size_t equals = entry.find('=');
  return equals == std::string::npos ? std::string() : entry.substr(equals + 1);
}

TEST_F(OptionsTest, HelpShowsTheDefaultsThatHold) {
  (void)parse({"--help"});
  const std::string help = out_;
  const Options defaults;
  EXPECT_EQ(default_in_help(help, "--backend"), defaults.backend);
  EXPECT_EQ(default_in_help(help, "--control"), defaults.control);
  EXPECT_EQ(default_in_help(help, "--socket"), kDefaultSocket);
  EXPECT_EQ(default_in_help(help, "--config"), kDefaultConfig);
  EXPECT_EQ(default_in_help(help, "--key-file"), "");
  // And in a form that the option takes.
  const auto size = default_in_help(help, "--size");
  const auto base = default_in_help(help, "--base");
  ASSERT_TRUE(size && base) << help;
  const Options again = good({"--size", *size, "--base", *base});
  EXPECT_EQ(again.size, defaults.size);
  EXPECT_EQ(again.base, defaults.base);
}

}  // namespace
}  // namespace carveout::daemon
