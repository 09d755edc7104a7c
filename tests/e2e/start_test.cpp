// What the daemon refuses to start with, and says of it.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "support/daemon_process.hpp"

namespace carveout::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Start : public testing::Test {
 protected:
  Start() { write_file(key_, "hidden-word\n", 0640); }

  // A start that must fail: everything it needs is given, `options` last.
  Outcome start(const std::vector<std::string>& options) {
    std::vector<std::string> words{CARVEOUTD};
    words.insert(words.end(), options.begin(), options.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.error.find("hidden-word"), std::string::npos) << outcome.error;
    return outcome;
  }
  Outcome check(std::vector<std::string> options) {
    options.insert(options.begin(), {"--check", "--socket", socket_, "--control", control_});
    return start(options);
  }
  Outcome check_key(const std::string& path) { return check({"--key-file", path}); }

  TempDir directory_;
  std::string key_ = directory_.file("key");
  std::string socket_ = directory_.file("lend.sock");
  std::string control_ = directory_.file("control.sock");
};

TEST_F(Start, CheckSaysThatAllIsWellAndLeavesNothing) {
  const Outcome outcome = check_key(key_);
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_THAT(outcome.output, HasSubstr("settings are good"));
  EXPECT_NE(::access(socket_.c_str(), F_OK), 0);
  EXPECT_NE(::access(directory_.file("lock").c_str(), F_OK), 0);
}

TEST_F(Start, CheckDoesNotDisturbAnInstanceThatRuns) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "16MiB"});
  const Peer peer = daemon.connect();
  const UniqueFd memory = peer.alloc(kSlice);
  const Outcome outcome = run({CARVEOUTD, "--check", "--socket", daemon.socket(), "--control",
                               daemon.control(), "--key-file", daemon.key_file()});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(peer.info().free, 7 * kSlice);
  EXPECT_EQ(daemon.connect().info().free, 7 * kSlice);
}

TEST_F(Start, WithoutAKeyFile) {
  const Outcome outcome = start({"--socket", socket_, "--control", control_});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.error, HasSubstr("--key-file"));
}

TEST_F(Start, KeyFilesThatWillNotDo) {
  const auto refused = [this](const std::string& path, const char* why) {
    const Outcome outcome = check_key(path);
    EXPECT_EQ(outcome.code, 1) << path;
    EXPECT_THAT(outcome.error, AllOf(HasSubstr(path), HasSubstr(why)));
  };
  refused(directory_.file("missing"), "does not exist");
  write_file(directory_.file("empty"), "", 0640);
  refused(directory_.file("empty"), "empty first line");
  write_file(directory_.file("blank"), "\r\nkey\n", 0640);
  refused(directory_.file("blank"), "empty first line");
  write_file(directory_.file("long"), std::string(256, 'k'), 0640);
  refused(directory_.file("long"), "256 bytes");
  write_file(directory_.file("open"), "hidden-word\n", 0644);
  refused(directory_.file("open"), "chmod 0640");
  refused(directory_.file("."), "not a regular file");
  refused("/dev/null", "not a regular file");
  ASSERT_EQ(::mkfifo(directory_.file("fifo").c_str(), 0640), 0);
  refused(directory_.file("fifo"), "not a regular file");
}

TEST_F(Start, SocketsThatWillNotDo) {
  const auto refused = [this](const std::vector<std::string>& options, const char* why) {
    std::vector<std::string> words{"--key-file", key_, "--socket", socket_, "--control", control_};
    for (std::size_t i = 0; i + 1 < options.size(); i += 2) {
      const auto at = std::find(words.begin(), words.end(), options[i]);
      *(at + 1) = options[i + 1];
    }
    words.insert(words.begin(), "--check");
    const Outcome outcome = start(words);
    EXPECT_EQ(outcome.code, 1) << why;
    EXPECT_THAT(outcome.error, HasSubstr(why));
  };
  refused({"--socket", directory_.file(std::string(120, 's'))}, "107 bytes");
  refused({"--socket", directory_.file("no/such/dir")}, "its directory");
  refused({"--socket", key_}, "not a socket");
  refused({"--socket", control_}, "control socket as well");
  refused({"--control", directory_.file("no/control")}, "0700");
  ASSERT_EQ(::mkdir(directory_.file("shared").c_str(), 0700), 0);
  ASSERT_EQ(::chmod(directory_.file("shared").c_str(), 0777), 0);
  refused({"--control", directory_.file("shared/control")}, "chmod 0700");
}

TEST_F(Start, UsageErrors) {
  for (const std::vector<std::string>& options : {std::vector<std::string>{"--size", "3MiB"},
                                                  {"--size", "0"},
                                                  {"--size", "many"},
                                                  {"--size", "99999999999GiB"},
                                                  {"--base", "0xzz"},
                                                  {"--backend", "paper"},
                                                  {"--no-such-option"},
                                                  {"stray"}}) {
    std::vector<std::string> words{"--key-file", key_};
    words.insert(words.end(), options.begin(), options.end());
    const Outcome outcome = start(words);
    EXPECT_EQ(outcome.code, 2) << options.front();
    EXPECT_THAT(outcome.error, HasSubstr("--help"));
  }
}

TEST_F(Start, TheConfigurationFile) {
  const std::string config = directory_.file("conf");
  write_file(config, "size=16MiB\nkey-file=" + key_ + "\n", 0644);
  EXPECT_EQ(check({"--config", config}).code, 0);
  write_file(config, "size=16MiB\nkey-file=" + key_ + "\nsise=2MiB\n", 0644);
  const Outcome unknown = check({"--config", config});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.error, HasSubstr("sise"));
  EXPECT_EQ(check({"--config", directory_.file("none"), "--key-file", key_}).code, 2);
}

TEST_F(Start, OneInstanceAControlSocket) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "16MiB"});
  const Outcome outcome = start({"--key-file", key_, "--socket", socket_, "--control",
                                 daemon.directory().file("other.sock")});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.error,
              AllOf(HasSubstr("lock"), HasSubstr("pid " + std::to_string(daemon.pid()))));
}

TEST_F(Start, ASocketThatAnotherListensOnIsLeftAlone) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "16MiB"});
  const Outcome outcome =
      start({"--key-file", key_, "--socket", daemon.socket(), "--control", control_});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.error, HasSubstr("another process is listening"));
  EXPECT_EQ(daemon.connect().info().free, 8 * kSlice);
}

TEST_F(Start, WhatAKilledInstanceLeftBehindIsReplaced) {
  DaemonProcess daemon(CARVEOUTD, {"--size", "16MiB"});
  daemon.kill();
  EXPECT_EQ(::access(daemon.socket().c_str(), F_OK), 0);
  daemon.start();
  EXPECT_EQ(daemon.connect().info().free, 8 * kSlice);
  EXPECT_EQ(daemon.stop(), 0);
  EXPECT_NE(::access(daemon.socket().c_str(), F_OK), 0) << "a proper end takes its sockets along";
}

TEST_F(Start, ModesOfTheSockets) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "16MiB"});
  struct stat status {};
  ASSERT_EQ(::stat(daemon.socket().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0660U);
  ASSERT_EQ(::stat(daemon.control().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(Start, StopsWhileItPreparesAndWhileItLends) {
  DaemonProcess daemon(CARVEOUTD);
  const Peer holder = daemon.connect();
  const UniqueFd memory = holder.alloc(kSlice);
  const Peer waiting = daemon.connect();
  waiting.send(waiting.alloc_request(1000 * kSlice));
  EXPECT_EQ(daemon.stop(), 0);
  EXPECT_TRUE(holder.receive().ended());
  (void)waiting.receive();  // its grant or its end
}

}  // namespace
}  // namespace carveout::test
