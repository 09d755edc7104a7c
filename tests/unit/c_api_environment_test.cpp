// The C ABI and the rows of the environment: what they replace, and which of them is to blame.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "unit/c_api_fixture.hpp"

namespace carveout::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using CApiEnvironment = CApi;

TEST_F(CApiEnvironment, IsOffUnlessTheEnvironmentSwitchesItOn) {
  EXPECT_EQ(open(nullptr), CARVEOUT_OFF);
  EXPECT_EQ(handle_, nullptr);
  EXPECT_EQ(error_.status, CARVEOUT_OFF);
  EXPECT_STREQ(error_.message, "");
  ::setenv("CARVEOUT", "0", 1);
  ::setenv("CARVEOUT_MIB", "x", 1);
  options_.from_environment = 1;
  EXPECT_EQ(open(), CARVEOUT_OFF);
}

TEST_F(CApiEnvironment, TakesTheRowsOfTheEnvironmentWhenToldTo) {
  ::setenv("CARVEOUT", "1", 1);
  ::setenv("CARVEOUT_SOURCE", "memfd", 1);
  ::setenv("CARVEOUT_MAP", "host", 1);
  ::setenv("CARVEOUT_MIB", "1", 1);
  ASSERT_EQ(open(nullptr), CARVEOUT_OK) << error_.message;
  EXPECT_EQ(info().bytes, mib(2).count());
  ASSERT_EQ(carveout_close(handle_, nullptr), CARVEOUT_OK);
  options_.from_environment = 1;
  options_.source = CARVEOUT_SOURCE_CUDA;
  ASSERT_EQ(open(), CARVEOUT_OK) << error_.message;
  EXPECT_EQ(info().source, CARVEOUT_SOURCE_MEMFD);
  ASSERT_EQ(carveout_close(handle_, nullptr), CARVEOUT_OK);
  ::setenv("CARVEOUT_MIB", "0", 1);
  expect_refused(nullptr, CARVEOUT_ERROR_INVALID, "CARVEOUT_MIB", "a whole number");
}

TEST_F(CApiEnvironment, HidesWhatCodeSaysWhereARowIsSet) {
  ::setenv("CARVEOUT", "1", 1);
  ::setenv("CARVEOUT_SOURCE", "memfd", 1);
  ::setenv("CARVEOUT_MAP", "host", 1);
  options_.from_environment = 1;
  options_.source = 99;
  options_.map = 99;
  options_.key = "";
  ASSERT_EQ(open(), CARVEOUT_OK) << error_.message;
  ASSERT_EQ(carveout_close(handle_, nullptr), CARVEOUT_OK);
  ::unsetenv("CARVEOUT_MAP");
  expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_MAP", "carveout_map_t");
  ::unsetenv("CARVEOUT_SOURCE");
  expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_SOURCE", "carveout_source_t");
}

TEST_F(CApiEnvironment, LooksAtNothingElseWhereItIsOff) {
  options_.from_environment = 1;
  options_.source = 99;
  options_.map = -7;
  options_.bytes = 0;
  options_.timeout_ms = 0;
  options_.key = "";
  options_.socket_path = "";
  EXPECT_EQ(open(), CARVEOUT_OFF) << error_.message;
  ::setenv("CARVEOUT", "0", 1);
  EXPECT_EQ(open(), CARVEOUT_OFF) << error_.message;
  EXPECT_EQ(handle_, nullptr);
  EXPECT_STREQ(error_.message, "");
  ::setenv("CARVEOUT", "yes", 1);
  expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT", "must be one of 0, 1");
  ::setenv("CARVEOUT", "1", 1);
  expect_refused(CARVEOUT_ERROR_INVALID, "CARVEOUT_SOURCE", "carveout_source_t");
}

TEST_F(CApiEnvironment, TakesCodesValuesWhereNoRowIsSet) {
  const std::string socket = directory_.path("lend.sock");
  test::ScriptedLender lender(socket,
                              test::lender_of(mib(64).count(), "halibut", test::Style::kLetter));
  ::setenv("CARVEOUT", "1", 1);
  ::setenv("CARVEOUT_SOCKET", socket.c_str(), 1);
  options_.from_environment = 1;
  options_.source = CARVEOUT_SOURCE_DAEMON;
  options_.bytes = mib(6).count();
  options_.socket_path = "/nowhere";
  options_.key = "swordfish";
  expect_refused(CARVEOUT_ERROR_REFUSED, "CARVEOUT_KEY", "missing or unknown key");
  ::setenv("CARVEOUT_KEY_FILE", directory_.file("key", "halibut\n").c_str(), 1);
  ASSERT_EQ(open(), CARVEOUT_OK) << error_.message;
  EXPECT_EQ(info().bytes, mib(6).count());
  EXPECT_EQ(info().map, CARVEOUT_MAP_HOST);
  EXPECT_THAT(lender.events(),
              testing::IsSupersetOf({HasSubstr(R"("key":"swordfish","op":"alloc","size":6291456)"),
                                     HasSubstr(R"("key":"halibut","op":"alloc","size":6291456)")}));
  ASSERT_EQ(carveout_close(std::exchange(handle_, nullptr), nullptr), CARVEOUT_OK);
  // An option that is not asked for the environment does not see it.
  options_.from_environment = 0;
  expect_refused(CARVEOUT_ERROR_SYSTEM, "CARVEOUT_SOCKET", "is carveoutd running");
}

TEST_F(CApiEnvironment, BlamesTheKeyFileThatHasAnotherKey) {
  const std::string socket = directory_.path("lend.sock");
  const std::string key_file = directory_.file("key", "halibut\n");
  const test::ScriptedLender lender(socket, {test::Answer{{{kWrongKey}}}});
  options_.source = CARVEOUT_SOURCE_DAEMON;
  options_.socket_path = socket.c_str();
  options_.key_file = key_file.c_str();
  expect_refused(CARVEOUT_ERROR_REFUSED, "CARVEOUT_KEY_FILE", "the key is not this lender's");
  EXPECT_THAT(error_.message, testing::Not(HasSubstr(key_file)));
  ::setenv("CARVEOUT", "1", 1);
  ::setenv("CARVEOUT_KEY", "halibut", 1);
  options_.from_environment = 1;
  expect_refused(CARVEOUT_ERROR_REFUSED, "CARVEOUT_KEY", "the key is not this lender's");
}

}  // namespace
}  // namespace carveout::client
