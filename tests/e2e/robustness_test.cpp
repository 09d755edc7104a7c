// Surroundings that are not as one would like them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "support/daemon_process.hpp"
#include "support/memory.hpp"

namespace carveout::test {
namespace {

using testing::HasSubstr;

TEST(FileSizeLimit, RefusesInsteadOfKilling) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "64MiB"}, {"prlimit", "--fsize=8388608"});
  const Peer peer = daemon.connect();
  const UniqueFd memory = peer.alloc(2 * kSlice);
  const std::string refused = daemon.connect().ask(peer.alloc_request(8 * kSlice)).bytes;
  EXPECT_THAT(refused, HasSubstr("not enough free carveout"));
  EXPECT_EQ(peer.info().free, 30 * kSlice);
  EXPECT_THAT(daemon.log(), HasSubstr("limit of file sizes"));
}

// The three standard descriptors closed: none of them may become something else.
std::vector<std::string> without_standard_descriptors(const std::string& words) {
  return {"/bin/sh", "-c", "exec " + words + " <&- >&- 2>&-"};
}

TEST(StandardDescriptors, OfTheDaemonMayBeClosed) {
  const TempDir directory;
  write_file(directory.file("key"), "secret\n", 0640);
  const std::string socket = directory.file("lend");
  const pid_t pid =
      spawn(without_standard_descriptors(std::string(CARVEOUTD) + " --size 16MiB --socket " +
                                         socket + " --control " + directory.file("control") +
                                         " --key-file " + directory.file("key")),
            -1, -1);
  ASSERT_TRUE(eventually([&] { return ::access(socket.c_str(), F_OK) == 0; }));
  ASSERT_TRUE(eventually([&] {
    try {
      return Peer(socket).info().free == 8 * kSlice;
    } catch (const std::exception&) {
      return false;
    }
  }));
  for (const int number : {0, 1, 2}) {
    const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(number);
    char target[64] = {};
    ASSERT_GT(::readlink(path.c_str(), target, sizeof target - 1), 0);
    EXPECT_STREQ(target, "/dev/null");
  }
  const Peer peer(socket);
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(Peer(socket).ask("junk").bytes.find("{\"ok\": false"), 0U);
  EXPECT_TRUE(is_zeroed_memory(peer.alloc(kSlice).get(), kSlice));
  ::kill(pid, SIGTERM);
  EXPECT_EQ(wait_for(pid), 0);
}

TEST(StandardDescriptors, OfAClaimMayBeClosed) {
  const DaemonProcess daemon(CARVEOUTD, {"--size", "16MiB"});
  const std::string claim = std::string(CARVEOUTCTL) + " --socket " + daemon.socket() +
                            " --key-file " + daemon.key_file() + " claim 2MiB";
  const pid_t holder = spawn(without_standard_descriptors(claim), -1, -1);
  EXPECT_TRUE(eventually([&] { return daemon.connect().info().free == 7 * kSlice; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(daemon.connect().info().free, 7 * kSlice) << "what it says went to the lender";
  ::kill(holder, SIGTERM);
  EXPECT_EQ(wait_for(holder), 0);

  const TempDir directory;
  const std::string report = directory.file("report");
  EXPECT_EQ(run(without_standard_descriptors(claim +
                                             " -- /bin/sh -c 'readlink /proc/self/fd/[012] "
                                             "> " +
                                             report + "'"))
                .code,
            0);
  EXPECT_THAT(read_file(report),
              testing::Not(testing::AnyOf(HasSubstr("socket"), HasSubstr("memfd"))));
}

class ControlSocket : public testing::Test {
 protected:
  [[nodiscard]] UniqueFd connect() const {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, daemon_.control().c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return socket;
  }
  static std::string answer(const UniqueFd& socket) {
    std::string text;
    char part[4096];
    for (ssize_t got = 0; (got = ::recv(socket.get(), part, sizeof part, 0)) > 0;) {
      text.append(part, static_cast<std::size_t>(got));
    }
    return text;
  }
  static void say(const UniqueFd& socket, const std::string& text) {
    EXPECT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }

  DaemonProcess daemon_{CARVEOUTD, {"--size", "16MiB"}};
};

TEST_F(ControlSocket, ARequestCountsEvenIfNobodyWaitsForItsAnswer) {
  daemon_.signal(SIGSTOP);
  {
    const UniqueFd socket = connect();
    say(socket, "{\"op\": \"drain\"}\n");
  }
  daemon_.signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return daemon_.connect().info().largest == 0; }));
}

TEST_F(ControlSocket, TheEndOfTheStreamEndsTheLine) {
  const UniqueFd socket = connect();
  say(socket, "{\"op\": \"leases\"}");
  ::shutdown(socket.get(), SHUT_WR);
  EXPECT_EQ(answer(socket), "{\"ok\":true,\"leases\":[]}\n");
}

TEST_F(ControlSocket, SaysWhatItDoesNotUnderstand) {
  for (const char* line : {"junk\n", "[]\n", "{}\n", "{\"op\": 1}\n", "\n"}) {
    const UniqueFd socket = connect();
    say(socket, line);
    EXPECT_THAT(answer(socket), HasSubstr("not a JSON object with an op")) << line;
  }
  const UniqueFd socket = connect();
  say(socket, "{\"op\": \"alloc\"}\n");
  EXPECT_THAT(answer(socket), HasSubstr("unknown op"));
}

TEST(LendingDirectory, ThatOthersMayWriteIsRefused) {
  const TempDir directory;
  write_file(directory.file("key"), "secret\n", 0640);
  const std::string open = directory.file("open");
  ASSERT_EQ(::mkdir(open.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(open.c_str(), 0777), 0);
  const auto check = [&] {
    return run({CARVEOUTD, "--check", "--key-file", directory.file("key"), "--socket", open + "/s",
                "--control", directory.file("control")});
  };
  const Outcome refused = check();
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.error, HasSubstr("can be written by others"));
  ASSERT_EQ(::chmod(open.c_str(), 01777), 0);
  EXPECT_EQ(check().code, 0) << "as /tmp is";
}

}  // namespace
}  // namespace carveout::test
