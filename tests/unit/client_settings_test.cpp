// What the rows of the environment say, and how each of them is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/settings.hpp"
#include "unit/helpers.hpp"
#include "unit/refusal.hpp"
#include "unit/rows.hpp"

namespace carveout::client {
namespace {

using test::Rows;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ClientSettings : public testing::Test {
 protected:
  // Of these rows, with a default key file that is there.
  [[nodiscard]] Result<std::optional<Settings>> read(const Rows& rows) {
    asked_.clear();
    return settings_from(
        [&, lookup = test::lookup_in(rows)](const char* row) {
          asked_.emplace_back(row);
          return lookup(row);
        },
        default_key_file_);
  }
  [[nodiscard]] Settings required(const Rows& rows) {
    auto settings = test::required(read(rows));
    if (!settings) throw std::runtime_error("off");
    return *std::move(settings);
  }
  // The refusal names the row, and shows neither that value nor a path.
  void expect_refused(const Rows& rows, const std::string& row, const std::string& hidden = "") {
    const std::size_t before = test::open_descriptors();
    const std::string refusal = test::refusal(read(rows));
    EXPECT_THAT(refusal, StartsWith(row + ": "));
    EXPECT_THAT(refusal, Not(HasSubstr(directory_.path())));
    EXPECT_TRUE(hidden.empty() || refusal.find(hidden) == std::string::npos) << refusal;
    EXPECT_EQ(test::open_descriptors(), before);
  }

  test::TemporaryDirectory directory_;
  std::string default_key_file_ = directory_.file("default-key", "from the default\n");
  std::vector<std::string> asked_;
};

TEST_F(ClientSettings, AreThoseOfTheDesignWhereNothingIsSet) {
  const Settings settings = required({{"CARVEOUT", "1"}});
  EXPECT_EQ(settings.source, SourceKind::kDaemon);
  EXPECT_EQ(settings.size, mib(1792));
  EXPECT_EQ(settings.map, MapStrategy::kAuto);
  EXPECT_EQ(settings.socket, "/run/carveout/carveout.sock");
  EXPECT_EQ(settings.key->bytes(), "from the default");
  EXPECT_EQ(settings.timeout, std::chrono::seconds(10));
  EXPECT_EQ(settings.card, "auto");
  EXPECT_STREQ(kDefaultKeyFile, "/etc/carveout/key");
}

TEST_F(ClientSettings, AreOffUnlessSwitchedOn) {
  const Rows bad{{"CARVEOUT_SOURCE", "x"}, {"CARVEOUT_MIB", "x"},      {"CARVEOUT_SOCKET", ""},
                 {"CARVEOUT_KEY", ""},     {"CARVEOUT_KEY_FILE", "/"}, {"CARVEOUT_DRM_CARD", ""},
                 {"CARVEOUT_HEAP", "/"},   {"CARVEOUT_MAP", "x"},      {"CARVEOUT_TIMEOUT_MS", ""}};
  default_key_file_ = directory_.path("missing");
  for (Rows rows : {Rows{}, Rows{{"CARVEOUT", "0"}}}) {
    rows.insert(bad.begin(), bad.end());
    const auto settings = read(rows);
    ASSERT_TRUE(settings) << settings.error().describe();
    EXPECT_FALSE(*settings);
    EXPECT_EQ(asked_, std::vector<std::string>{"CARVEOUT"}) << "no other row is even looked at";
  }
}

TEST_F(ClientSettings, RefuseASwitchThatIsNeither) {
  for (const char* value : {"", "2", "yes", "true", "on", " 1", "1 ", "01", "-1", "00"}) {
    expect_refused({{"CARVEOUT", value}}, "CARVEOUT");
  }
}

TEST_F(ClientSettings, AreWhatTheRowsSay) {
  const Settings settings = required({{"CARVEOUT", "1"},
                                      {"CARVEOUT_SOURCE", "daemon"},
                                      {"CARVEOUT_MIB", "3"},
                                      {"CARVEOUT_SOCKET", "some/socket"},
                                      {"CARVEOUT_KEY", " k\xc3\xbc "},
                                      {"CARVEOUT_MAP", "host"},
                                      {"CARVEOUT_TIMEOUT_MS", "250"}});
  EXPECT_EQ(settings.size, mib(3));
  EXPECT_EQ(settings.socket, "some/socket");
  EXPECT_EQ(settings.key->bytes(), " k\xc3\xbc ");
  EXPECT_EQ(settings.map, MapStrategy::kHost);
  EXPECT_EQ(settings.timeout, std::chrono::milliseconds(250));
  EXPECT_EQ(
      required(
          {{"CARVEOUT", "1"}, {"CARVEOUT_SOURCE", "drm"}, {"CARVEOUT_DRM_CARD", "/dev/dri/card1"}})
          .card,
      "/dev/dri/card1");
  EXPECT_EQ(required({{"CARVEOUT", "1"}, {"CARVEOUT_SOURCE", "drm"}}).card, "auto");
  EXPECT_EQ(
      required({{"CARVEOUT", "1"}, {"CARVEOUT_SOURCE", "dma-heap"}, {"CARVEOUT_HEAP", "system"}})
          .heap,
      "system");
  EXPECT_EQ(required({{"CARVEOUT", "1"}, {"CARVEOUT_MIB", "0001"}}).size, mib(1));
  EXPECT_EQ(required({{"CARVEOUT", "1"}, {"CARVEOUT_MIB", "1073741824"}}).size, gib(1U << 20U));
  EXPECT_EQ(required({{"CARVEOUT", "1"}, {"CARVEOUT_TIMEOUT_MS", "86400000"}}).timeout,
            std::chrono::hours(24));
}

TEST_F(ClientSettings, KnowEverySourceAndMap) {
  const std::vector<std::pair<std::string, SourceKind>> sources{{"daemon", SourceKind::kDaemon},
                                                                {"drm", SourceKind::kDrm},
                                                                {"memfd", SourceKind::kMemfd},
                                                                {"cuda", SourceKind::kCuda}};
  for (const auto& [word, source] : sources) {
    EXPECT_EQ(required({{"CARVEOUT", "1"}, {"CARVEOUT_SOURCE", word}}).source, source);
  }
  const std::vector<std::pair<std::string, MapStrategy>> maps{{"auto", MapStrategy::kAuto},
                                                              {"vmm", MapStrategy::kVmm},
                                                              {"external", MapStrategy::kExternal},
                                                              {"register", MapStrategy::kRegister},
                                                              {"host", MapStrategy::kHost}};
  for (const auto& [word, map] : maps) {
    EXPECT_EQ(required({{"CARVEOUT", "1"}, {"CARVEOUT_MAP", word}}).map, map);
  }
}

const std::vector<std::string>& all_sources() {
  static const std::vector<std::string> kSources{"daemon", "drm", "dma-heap", "memfd", "cuda"};
  return kSources;
}

// Each row: whose it is, values that it refuses, and one that it takes.
struct Row {
  std::string name;
  std::vector<std::string> sources;
  std::vector<std::string> bad;
  std::string good;
  [[nodiscard]] bool is_of(const std::string& source) const {
    return std::count(sources.begin(), sources.end(), source) > 0;
  }
};
const std::vector<Row>& table() {
  static const std::vector<Row> kRows{
      {"CARVEOUT_SOURCE",
       all_sources(),
       {"", "Daemon", "daemon ", "dma_heap", "none", "daemon,drm"},
       "memfd"},
      {"CARVEOUT_MIB",
       all_sources(),
       {"", "0", "-1", "+1", " 1", "1 ", "1MiB", "1.5", "1e3", "0x10", "1073741825", "all",
        "17592186044417", "18446744073709551615", "18446744073709551616",
        "99999999999999999999999"},
       "12"},
      {"CARVEOUT_MAP", all_sources(), {"", "Auto", "cuda", "vmm,host"}, "register"},
      {"CARVEOUT_SOCKET", {"daemon"}, {"", std::string(108, 's')}, "some/socket"},
      {"CARVEOUT_KEY", {"daemon"}, {"", std::string(256, 'k'), "hunter\xff"}, "hunter2"},
      {"CARVEOUT_KEY_FILE",
       {"daemon"},
       {"", "/no/such/file", "/dev/null", "/dev/zero", "/"},
       "/etc/passwd"},
      {"CARVEOUT_TIMEOUT_MS",
       {"daemon"},
       {"", "0", "-1", "1s", "1.5", " 1", "86400001", "18446744073709551616"},
       "250"},
      {"CARVEOUT_DRM_CARD",
       {"drm"},
       {"", "card0", "dev/dri/card0", "/" + std::string(4096, 'c')},
       "/dev/dri/card0"},
      {"CARVEOUT_HEAP",
       {"dma-heap"},
       {"", ".", "..", "a/b", "/dev/dma_heap/system", std::string(256, 'h')},
       "system"},
  };
  return kRows;
}

// As little as makes that source complete.
Rows rows_of(const std::string& source) {
  Rows rows{{"CARVEOUT", "1"}, {"CARVEOUT_SOURCE", source}};
  if (source == "dma-heap") rows["CARVEOUT_HEAP"] = "reserved";
  return rows;
}

TEST_F(ClientSettings, NameTheRowThatIsBadUnderEverySourceThatHasIt) {
  for (const Row& row : table()) {
    for (const std::string& source : row.sources) {
      for (const std::string& value : row.bad) {
        SCOPED_TRACE(source + ": " + row.name + "=" + value);
        Rows rows = rows_of(source);
        rows[row.name] = value;
        expect_refused(rows, row.name, value.size() > 6 ? value : "");
      }
    }
  }
}

TEST_F(ClientSettings, ReadEveryonesRowsUnderEverySource) {
  for (const std::string& source : all_sources()) {
    Rows rows = rows_of(source);
    rows["CARVEOUT_MIB"] = "12";
    rows["CARVEOUT_MAP"] = "external";
    const Settings settings = required(rows);
    EXPECT_EQ(name_of(settings.source), source);
    EXPECT_EQ(settings.size, mib(12)) << source;
    EXPECT_EQ(settings.map, MapStrategy::kExternal) << source;
  }
}

// Not even whether they are set.
TEST_F(ClientSettings, IgnoreTheRowsOfOtherSources) {
  for (const std::string& source : all_sources()) {
    const Settings without = required(rows_of(source));
    for (const Row& row : table()) {
      if (row.is_of(source)) continue;
      std::vector<std::string> values = row.bad;
      values.push_back(row.good);
      for (const std::string& value : values) {
        SCOPED_TRACE(source + ": " + row.name + "=" + value);
        Rows rows = rows_of(source);
        rows[row.name] = value;
        const Settings with = required(rows);
        EXPECT_THAT(asked_, Not(Contains(row.name)));
        EXPECT_EQ(with.socket, without.socket);
        EXPECT_EQ(with.key.has_value(), without.key.has_value());
        EXPECT_EQ(with.key_file, without.key_file);
        EXPECT_EQ(with.timeout, without.timeout);
        EXPECT_EQ(with.card, without.card);
        EXPECT_EQ(with.heap, without.heap);
      }
    }
  }
}

TEST_F(ClientSettings, ReadNoKeyFileForASourceWithoutAKey) {
  default_key_file_ = directory_.path("missing");
  for (const std::string& source : all_sources()) {
    EXPECT_EQ(read(rows_of(source)).has_value(), source != "daemon") << source;
  }
}

TEST_F(ClientSettings, WantAHeapBeNamed) {
  expect_refused({{"CARVEOUT", "1"}, {"CARVEOUT_SOURCE", "dma-heap"}}, "CARVEOUT_HEAP");
}

TEST_F(ClientSettings, RefuseAKeyAndAKeyFile) {
  const std::string file = directory_.file("key", "hunter2\n");
  expect_refused({{"CARVEOUT", "1"}, {"CARVEOUT_KEY", "swordfish"}, {"CARVEOUT_KEY_FILE", file}},
                 "CARVEOUT_KEY_FILE", "swordfish");
}

TEST_F(ClientSettings, ReadTheKeyFile) {
  const std::vector<std::pair<std::string, std::string>> files{
      {"secret\n", "secret"},
      {"secret", "secret"},
      {"secret\r\n", "secret"},
      {"secret\r\nmore\r\n", "secret"},
      {std::string(255, 'k') + "\r\n", std::string(255, 'k')}};
  for (const auto& [text, key] : files) {
    const std::string file = directory_.file("key", text, 0644);
    EXPECT_EQ(required({{"CARVEOUT", "1"}, {"CARVEOUT_KEY_FILE", file}}).key->bytes(), key);
    default_key_file_ = file;
    EXPECT_EQ(required({{"CARVEOUT", "1"}}).key->bytes(), key);
    EXPECT_EQ(required({{"CARVEOUT", "1"}, {"CARVEOUT_KEY", "other"}}).key->bytes(), "other");
  }
}

TEST_F(ClientSettings, RefuseAKeyFileThatIsNone) {
  const std::string fifo = directory_.path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string socket = directory_.path("socket");
  const UniqueFd listener = test::listen_at(socket, SOCK_STREAM, 1);
  const std::vector<std::string> files{fifo,
                                       socket,
                                       "/dev/tty",
                                       directory_.path(),
                                       directory_.path("missing"),
                                       directory_.file("empty", ""),
                                       directory_.file("line", "\nhunter2\n"),
                                       directory_.file("cr", "\r\nhunter2\n"),
                                       directory_.file("long", std::string(256, 'k') + "\n"),
                                       directory_.file("bytes", "hunter2\xff\n")};
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    expect_refused({{"CARVEOUT", "1"}, {"CARVEOUT_KEY_FILE", file}}, "CARVEOUT_KEY_FILE",
                   "hunter2");
    default_key_file_ = file;
    expect_refused({{"CARVEOUT", "1"}}, "CARVEOUT_KEY_FILE", "hunter2");
  }
}

TEST_F(ClientSettings, SayWhyAKeyFileCannotBeRead) {
  EXPECT_THAT(test::refusal(read({{"CARVEOUT", "1"}, {"CARVEOUT_KEY_FILE", "/no/such/file"}})),
              HasSubstr("(No such file or directory)"));
  const std::string file = directory_.file("key", "hunter2\n", 0000);
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  EXPECT_EQ(test::run_as_nobody([&] {
              const auto settings = read({{"CARVEOUT", "1"}, {"CARVEOUT_KEY_FILE", file}});
              return !settings && settings.error().number == EACCES &&
                             settings.error().context == "CARVEOUT_KEY_FILE" &&
                             settings.error().message.find("usermod -aG carveout USER") !=
                                 std::string::npos
                         ? 0
                         : 1;
            }),
            0);
}

TEST_F(ClientSettings, FromCodeAreHeldToTheSame) {
  const auto refused = [this](const std::function<void(Settings&)>& change) {
    Settings settings;
    settings.key = *wire::Key::from("secret");
    change(settings);
    return test::refusal(complete(settings, default_key_file_));
  };
  EXPECT_EQ(refused([](Settings&) {}), "no refusal");
  EXPECT_THAT(refused([](Settings& s) { s.size = Bytes(0); }), StartsWith("CARVEOUT_MIB: "));
  EXPECT_THAT(refused([](Settings& s) { s.size = gib(1U << 20U) + Bytes(1); }),
              StartsWith("CARVEOUT_MIB: "));
  EXPECT_THAT(refused([](Settings& s) { s.timeout = std::chrono::milliseconds(-1); }),
              StartsWith("CARVEOUT_TIMEOUT_MS: "));
  EXPECT_THAT(refused([](Settings& s) { s.socket.clear(); }), StartsWith("CARVEOUT_SOCKET: "));
  EXPECT_THAT(refused([](Settings& s) { s.key_file = "/key"; }), StartsWith("CARVEOUT_KEY_FILE: "));
  EXPECT_THAT(refused([](Settings& s) { s.source = SourceKind::kDmaHeap; }),
              StartsWith("CARVEOUT_HEAP: "));
}

TEST_F(ClientSettings, AreTheProcesssOwn) {
  EXPECT_EQ(test::run_in_child([] {
              ::unsetenv("CARVEOUT");
              const auto unset = settings_from(environment());
              ::setenv("CARVEOUT", "1", 1);
              ::setenv("CARVEOUT_SOURCE", "memfd", 1);
              ::setenv("CARVEOUT_MIB", "12", 1);
              const auto set = settings_from(environment());
              return unset && !*unset && set && *set && (*set)->size == mib(12) ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace carveout::client
