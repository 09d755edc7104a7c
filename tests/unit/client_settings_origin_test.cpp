// Where settings come from: rows, code, files; and what a program with more rights than its user
// takes from the environment.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "client/settings.hpp"
#include "unit/helpers.hpp"
#include "unit/refusal.hpp"
#include "unit/rows.hpp"

namespace carveout::client {
namespace {

using std::chrono::milliseconds;
using test::Rows;
using testing::StartsWith;

class SettingsOrigin : public testing::Test {
 protected:
  [[nodiscard]] Result<std::optional<Settings>> read(Rows rows, const Settings& unset) const {
    rows.try_emplace("CARVEOUT", "1");
    return settings_from(test::lookup_in(rows), default_key_file_, unset);
  }
  [[nodiscard]] Settings required(const Rows& rows, const Settings& unset) const {
    auto settings = test::required(read(rows, unset));
    if (!settings) throw std::runtime_error("off");
    return *std::move(settings);
  }
  // Of code that says everything, and nothing as it is by default.
  static Settings of_code() {
    Settings code;
    code.size = mib(6);
    code.map = MapStrategy::kHost;
    code.socket = "code/socket";
    code.key = *wire::Key::from("code's");
    code.timeout = milliseconds(77);
    code.card = "/dev/dri/code";
    code.heap = "code";
    return code;
  }

  test::TemporaryDirectory directory_;
  std::string default_key_file_ = directory_.file("default-key", "the default's\n");
  std::string file_ = directory_.file("key", "the file's\n");
};

TEST_F(SettingsOrigin, SayWhetherTheyAreOn) {
  const auto on = [](const Rows& rows) { return is_on(test::lookup_in(rows)); };
  EXPECT_FALSE(test::required(on({})));
  EXPECT_FALSE(test::required(on({{"CARVEOUT", "0"}, {"CARVEOUT_SOURCE", "x"}})));
  EXPECT_TRUE(test::required(on({{"CARVEOUT", "1"}, {"CARVEOUT_SOURCE", "x"}})));
  for (const char* neither : {"", "2", "yes", "01", "1 "}) {
    EXPECT_THAT(test::refusal(on({{"CARVEOUT", neither}})), StartsWith("CARVEOUT: must be one of"));
  }
}

TEST_F(SettingsOrigin, CodesCountWhereNoRowIsSet) {
  const Settings settings = required({}, of_code());
  EXPECT_EQ(settings.source, SourceKind::kDaemon);
  EXPECT_EQ(settings.size, mib(6));
  EXPECT_EQ(settings.map, MapStrategy::kHost);
  EXPECT_EQ(settings.socket, "code/socket");
  EXPECT_EQ(settings.key->bytes(), "code's");
  EXPECT_EQ(settings.timeout, milliseconds(77));
  Settings code = of_code();
  code.source = SourceKind::kDrm;
  EXPECT_EQ(required({}, code).card, "/dev/dri/code");
  code.source = SourceKind::kDmaHeap;
  EXPECT_EQ(required({}, code).heap, "code");
}

TEST_F(SettingsOrigin, RowsCountInsteadOfCodes) {
  EXPECT_EQ(required({{"CARVEOUT_SOURCE", "memfd"}}, of_code()).source, SourceKind::kMemfd);
  EXPECT_EQ(required({{"CARVEOUT_MIB", "2"}}, of_code()).size, mib(2));
  EXPECT_EQ(required({{"CARVEOUT_MAP", "vmm"}}, of_code()).map, MapStrategy::kVmm);
  EXPECT_EQ(required({{"CARVEOUT_MAP", "auto"}}, of_code()).map, MapStrategy::kAuto);
  EXPECT_EQ(required({{"CARVEOUT_SOCKET", "row"}}, of_code()).socket, "row");
  EXPECT_EQ(required({{"CARVEOUT_TIMEOUT_MS", "5"}}, of_code()).timeout, milliseconds(5));
  EXPECT_EQ(required({{"CARVEOUT_SOURCE", "drm"}, {"CARVEOUT_DRM_CARD", "/row"}}, of_code()).card,
            "/row");
  EXPECT_EQ(required({{"CARVEOUT_SOURCE", "dma-heap"}, {"CARVEOUT_HEAP", "row"}}, of_code()).heap,
            "row");
  EXPECT_EQ(required({{"CARVEOUT_MIB", "2"}}, of_code()).socket, "code/socket") << "one by one";
}

TEST_F(SettingsOrigin, BadOnesOfCodeAreRefusedUnlessARowReplacesThem) {
  Settings code = of_code();
  code.size = Bytes(0);
  EXPECT_THAT(test::refusal(read({}, code)), StartsWith("CARVEOUT_MIB: "));
  EXPECT_EQ(required({{"CARVEOUT_MIB", "2"}}, code).size, mib(2));
}

TEST_F(SettingsOrigin, EitherRowOfTheKeyReplacesBothOfCodes) {
  Settings with_file = of_code();
  with_file.key.reset();
  with_file.key_file = directory_.path("missing");
  for (const Settings& code : {Settings{}, of_code(), with_file}) {
    const Settings by_key = required({{"CARVEOUT_KEY", "the row's"}}, code);
    EXPECT_EQ(by_key.key->bytes(), "the row's");
    EXPECT_EQ(by_key.key_file, std::nullopt);
    const Settings by_file = required({{"CARVEOUT_KEY_FILE", file_}}, code);
    EXPECT_EQ(by_file.key->bytes(), "the file's");
    EXPECT_EQ(by_file.key_file, file_);
    EXPECT_THAT(
        test::refusal(read({{"CARVEOUT_KEY", "swordfish"}, {"CARVEOUT_KEY_FILE", file_}}, code)),
        StartsWith("CARVEOUT_KEY_FILE: is set, and so is CARVEOUT_KEY"));
    EXPECT_THAT(test::refusal(read({{"CARVEOUT_KEY", ""}}, code)), StartsWith("CARVEOUT_KEY: "));
    EXPECT_THAT(test::refusal(read({{"CARVEOUT_KEY_FILE", ""}}, code)),
                StartsWith("CARVEOUT_KEY_FILE: "));
  }
  Settings both = with_file;
  both.key = *wire::Key::from("code's");
  EXPECT_THAT(test::refusal(read({}, both)), StartsWith("CARVEOUT_KEY_FILE: "));
}

TEST_F(SettingsOrigin, HaveAKeyFileWhereTheKeyIsFromThere) {
  EXPECT_EQ(required({}, {}).key_file, default_key_file_);
  EXPECT_EQ(required({}, {}).key->bytes(), "the default's");
  EXPECT_EQ(required({}, of_code()).key_file, std::nullopt);
  Settings code;
  code.key_file = file_;
  EXPECT_EQ(required({}, code).key_file, file_);
  EXPECT_EQ(required({}, code).key->bytes(), "the file's");
  code.source = SourceKind::kMemfd;
  EXPECT_EQ(required({}, code).key, std::nullopt) << "nobody needs it";
}

// --- a program with more rights than its user ---

#ifdef __SANITIZE_THREAD__
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

TEST_F(SettingsOrigin, AreOffInAProgramThatRunsWithMoreRightsThanItsUser) {
  constexpr gid_t kSomeGroup = 12345;
  struct statvfs mounted {};
  ASSERT_EQ(::statvfs(directory_.path().c_str(), &mounted), 0);
  if (::geteuid() != 0 || ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 0 ||
      (mounted.f_flag & (ST_NOSUID | ST_NOEXEC)) != 0) {
    GTEST_SKIP() << "waived: no set-user-ID program can be made here";
  }
  if (kThreadSanitizer) {
    GTEST_SKIP()
        << "waived: the address layout that ThreadSanitizer wants is not for such programs";
  }
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  const std::string program = directory_.path("print_settings");
  std::filesystem::copy_file(CARVEOUT_PRINT_SETTINGS, program);
  ASSERT_EQ(::chown(program.c_str(), 0, kSomeGroup), 0);
  std::array<std::string, 3> environment{"CARVEOUT=1", "CARVEOUT_SOURCE=memfd", "CARVEOUT_MIB=12"};
  for (const mode_t mode : {mode_t{0755}, mode_t{04755}, mode_t{02755}}) {
    ASSERT_EQ(::chmod(program.c_str(), mode), 0);
    test::Pipe pipe = test::make_pipe();
    EXPECT_EQ(test::run_as_nobody([&] {
                std::array<char*, 2> words{const_cast<char*>(program.c_str()), nullptr};
                std::array<char*, 4> rows{environment[0].data(), environment[1].data(),
                                          environment[2].data(), nullptr};
                ::dup2(pipe.write_end.get(), STDOUT_FILENO);
                ::execve(program.c_str(), words.data(), rows.data());
                return 97;
              }),
              0);
    pipe.write_end.reset();
    EXPECT_EQ(test::read_all(pipe.read_end.get()), mode == 0755 ? "on: 12582912\n" : "off\n")
        << std::oct << mode;
  }
}

}  // namespace
}  // namespace carveout::client
