// Every refusal of the lending protocol through every layer: the client of it, the opener, the C
// ABI. What it is told, and that the process then has open and mapped what it had before.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "carveout/carveout.h"
#include "client/carveout.hpp"
#include "fake_cuda/fake_driver.hpp"
#include "support/fuse_file.hpp"
#include "support/holdings.hpp"
#include "support/scripted_lender.hpp"
#include "unit/refusal_table.hpp"

namespace carveout::client {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

// The process has room for so many descriptors more, and no other; negative: for all.
class Room {
 public:
  explicit Room(int descriptors) {
    if (descriptors < 0) return;
    rlimit low = before_;
    low.rlim_cur = static_cast<rlim_t>(UniqueFd(::dup(0)).get() + descriptors);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  Room(Room&&) = delete;
  Room& operator=(Room&&) = delete;
  ~Room() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  static rlimit now() {
    rlimit limit{};
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    return limit;
  }
  rlimit before_ = now();
};

class ClientRefusals : public testing::Test {
 protected:
  // Each row twice: what the first makes for good is there when it is counted.
  template <typename Ask>
  void expect_all(const Ask& ask) {
    for (const bool counted : {false, true}) {
      for (const Refused& row : refusals()) {
        SCOPED_TRACE(row.name);
        limit_ = row.silent ? milliseconds(60) : milliseconds(20'000);
        const auto lender = row.stage(path_, things_);
        const test::Holdings before = test::holdings();
        {
          const Room room(row.room < 0 ? -1 : row.room + 1);  // and one for the connection
          ask(row);
        }
        if (counted) {
          EXPECT_EQ(test::changed_since(before), "");
        }
        ::unlink(path_.c_str());
      }
    }
  }
  void expect_error(const Refused& row, const Error& error) const {
    EXPECT_EQ(error.code, row.code) << error.describe();
    EXPECT_EQ(error.number, row.number);
    expect_words(row, error.describe());
  }
  void expect_words(const Refused& row, const std::string& words) const {
    EXPECT_THAT(words, HasSubstr(row.words));
    EXPECT_THAT(words, Not(HasSubstr("swordfish")));
    EXPECT_THAT(words, Not(HasSubstr(path_)));
  }
  void expect_of_opener(MapStrategy map, const std::string& library) {
    Opening opening;
    opening.machine.cuda_library = library;
    expect_all([&](const Refused& row) {
      Settings settings;
      settings.size = mib(4);
      settings.map = map;
      settings.socket = path_;
      settings.key = key_;
      settings.timeout = limit_;
      const auto carveout = Carveout::open(settings, opening);
      ASSERT_FALSE(carveout);
      expect_error(row, carveout.error());
      const std::string& context = carveout.error().context;
      EXPECT_EQ(context.starts_with("CARVEOUT") ? context : "", row.setting);
    });
  }

  test::TemporaryDirectory directory_;
  std::string path_ = directory_.path("lend.sock");
  wire::Key key_ = *wire::Key::from("swordfish");
  Things things_{directory_};
  milliseconds limit_{};
};

TEST_F(ClientRefusals, OfALenderLeaveNothing) {
  expect_all([this](const Refused& row) {
    const LenderSettings settings{.socket = path_, .key = key_};
    const auto lease = borrow(settings, mib(4), wire::Clock::now() + limit_);
    ASSERT_FALSE(lease);
    expect_error(row, lease.error());
  });
}

TEST_F(ClientRefusals, OfTheOpenerLeaveNothing) {
  expect_of_opener(MapStrategy::kHost, directory_.path("libcuda.so.1"));
}

TEST_F(ClientRefusals, OfTheOpenerAskNothingOfTheDriver) {
  const test::FakeDriver fake;
  expect_of_opener(MapStrategy::kRegister, fake.library());
  EXPECT_EQ(fake.calls(), 0);
}

carveout_status_t status_of(Code code) {
  switch (code) {
    case Code::kSystem:
      return CARVEOUT_ERROR_SYSTEM;
    case Code::kRefused:
      return CARVEOUT_ERROR_REFUSED;
    case Code::kTimedOut:
      return CARVEOUT_ERROR_TIMED_OUT;
    case Code::kClosed:
      return CARVEOUT_ERROR_CLOSED;
    default:
      return CARVEOUT_ERROR_PROTOCOL;
  }
}

TEST_F(ClientRefusals, OfTheCAbiLeaveNothing) {
  carveout_options_t options;
  ASSERT_EQ(carveout_options_init(&options, sizeof options), CARVEOUT_OK);
  options.map = CARVEOUT_MAP_HOST;
  options.bytes = mib(4).count();
  options.socket_path = path_.c_str();
  options.key = "swordfish";
  expect_all([&](const Refused& row) {
    carveout_error_t error;
    error.struct_size = sizeof error;
    auto* handle = reinterpret_cast<carveout_t*>(this);
    options.timeout_ms = static_cast<uint32_t>(limit_.count());
    EXPECT_EQ(carveout_open(&options, &handle, &error), status_of(row.code)) << error.message;
    EXPECT_EQ(handle, nullptr);
    EXPECT_EQ(error.status, status_of(row.code));
    EXPECT_EQ(error.system_errno, row.number);
    EXPECT_EQ(error.cuda_result, 0);
    EXPECT_EQ(error.setting, row.setting);
    expect_words(row, error.message);
  });
}

TEST_F(ClientRefusals, OfAFileThatSomebodyServesWaitForNobody) {
  const std::string directory = directory_.path("mounted");
  ASSERT_EQ(::mkdir(directory.c_str(), 0700), 0);
  const test::SilentFile file(directory);
  if (file.descriptor() < 0) GTEST_SKIP() << "waived: no FUSE file can be made here";
  const test::ScriptedLender lender(path_, {test::Answer{{{kGrant, {file.descriptor()}}}}});
  for (const bool counted : {false, true}) {
    const test::Holdings before = test::holdings();
    const LenderSettings settings{.socket = path_, .key = key_};
    const auto lease = borrow(settings, mib(4), wire::Clock::now() + std::chrono::seconds(20));
    ASSERT_FALSE(lease);
    EXPECT_EQ(lease.error().code, Code::kProtocol);
    EXPECT_THAT(lease.error().message, HasSubstr("is neither a memfd"));
    if (counted) {
      EXPECT_EQ(test::changed_since(before), "");
    }
  }
  EXPECT_EQ(file.waits(), 0);
  struct stat status {};
  EXPECT_NE(::fstat(file.descriptor(), &status), 0) << "whoever asks does wait";
  EXPECT_EQ(file.waits(), 1);
}

TEST_F(ClientRefusals, OfAKeyBlameTheFileThatItIsFrom) {
  const test::ScriptedLender lender(path_, {test::Answer{{{kWrongKey}}}});
  Opening opening;
  opening.machine.default_key_file = directory_.file("key", "halibut\n");
  Settings settings;
  settings.socket = path_;
  const auto by_default = Carveout::open(settings, opening);
  ASSERT_FALSE(by_default);
  EXPECT_EQ(by_default.error().code, Code::kRefused);
  EXPECT_EQ(by_default.error().context, "CARVEOUT_KEY_FILE");
  EXPECT_THAT(by_default.error().message, Not(HasSubstr(directory_.path())));
  settings.key = key_;
  EXPECT_EQ(Carveout::open(settings, opening).error().context, "CARVEOUT_KEY");
}

TEST_F(ClientRefusals, OfADeviceWhereThereIsNoDriver) {
  const test::ScriptedLender lender(path_, {test::Answer{{{kGrant, {things_.memory.get()}}}}});
  Opening opening;
  opening.machine.cuda_library = directory_.path("libcuda.so.1");
  std::vector<LogLevel> levels;
  opening.log = [&](LogLevel level, const std::string&) { levels.push_back(level); };
  Settings settings;
  settings.size = mib(4);
  settings.socket = path_;
  settings.key = key_;
  {
    const auto for_the_processor = Carveout::open(settings, opening);
    ASSERT_TRUE(for_the_processor);
    EXPECT_EQ(for_the_processor->mapping().strategy(), MapStrategy::kHost);
    EXPECT_EQ(levels.back(), LogLevel::kWarning);
  }
  opening.device = 0;
  const test::Holdings before = test::holdings();
  for (const MapStrategy map : {MapStrategy::kAuto, MapStrategy::kRegister}) {
    settings.map = map;
    const auto refused = Carveout::open(settings, opening);
    ASSERT_FALSE(refused) << "not for the processor instead";
    EXPECT_EQ(refused.error().code, Code::kNotFound);
    EXPECT_THAT(refused.error().describe(), HasSubstr("driver's library cannot be loaded"));
    EXPECT_EQ(test::changed_since(before), "");
  }
}

// What was granted and cannot be mapped is given up as well.
TEST_F(ClientRefusals, OfTheDriverLeaveNothing) {
  test::FakeDriver fake;
  Opening opening;
  opening.machine.cuda_library = fake.library();
  Settings settings;
  settings.size = mib(4);
  settings.map = MapStrategy::kRegister;
  settings.socket = path_;
  settings.key = key_;
  const test::ScriptedLender lender(path_, {test::Answer{{{kGrant, {things_.memory.get()}}}}});
  for (const char* entry : {"cuMemHostRegister", "cuMemHostGetDevicePointer", "cuDeviceGet"}) {
    for (const bool counted : {false, true}) {
      const test::Holdings before = test::holdings();
      fake.fail(entry);
      const auto carveout = Carveout::open(settings, opening);
      ASSERT_FALSE(carveout);
      EXPECT_THAT(carveout.error().describe(), HasSubstr(entry));
      EXPECT_EQ(fake.live(), 0);
      if (counted) {
        EXPECT_EQ(test::changed_since(before), "");
      }
    }
  }
  EXPECT_EQ(fake.broken_rules(), "");
}

}  // namespace
}  // namespace carveout::client
