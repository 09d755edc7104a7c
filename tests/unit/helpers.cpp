#include "unit/helpers.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "wire/channel.hpp"

namespace carveout::test {
namespace {

// What a test stands on does not work: the exception fails the test.
void require(bool good, const char* what) {
  if (!good) throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

TemporaryDirectory::TemporaryDirectory()
    : path_(std::filesystem::temp_directory_path() / "carveout-test-XXXXXX") {
  require(::mkdtemp(path_.data()) != nullptr, "mkdtemp");
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryDirectory::path(std::string_view name) const {
  return path_ + "/" + std::string(name);
}

std::string TemporaryDirectory::file(std::string_view name, std::string_view text,
                                     mode_t mode) const {
  const std::string where = path(name);
  std::filesystem::create_directories(std::filesystem::path(where).parent_path());
  write_file(where, text, mode);
  return where;
}

void write_file(const std::string& path, std::string_view text, mode_t mode) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  require(static_cast<bool>(file), "open");
  // The umask has had its say at open().
  require(::fchmod(file.get(), mode) == 0, "fchmod");
  require(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()),
          "write");
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

bool is_open(int descriptor) {
  return ::fcntl(descriptor, F_GETFD) >= 0;
}

bool is_close_on_exec(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFD);
  return flags >= 0 && (flags & FD_CLOEXEC) != 0;
}

Pipe make_pipe() {
  std::array<int, 2> ends{};
  require(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe2");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::pair<UniqueFd, UniqueFd> socket_pair() {
  return socket_pair(SOCK_SEQPACKET);
}

std::pair<UniqueFd, UniqueFd> socket_pair(int type) {
  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) == 0, "socketpair");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

UniqueFd listen_at(const std::string& path, int type, int backlog) {
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  require(static_cast<bool>(socket), "socket");
  const auto address = wire::socket_address(path);
  require(address.has_value(), "socket_address");
  require(
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0 &&
          ::listen(socket.get(), backlog) == 0,
      "bind and listen");
  return socket;
}

std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 4096> part{};
  for (;;) {
    const ssize_t got = ::read(descriptor, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    require(got >= 0, "read");
    if (got == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
}

int run_in_child(const std::function<int()>& body) {
  constexpr int kThrew = 99;
  const pid_t child = ::fork();
  require(child >= 0, "fork");
  if (child == 0) {
    ::alarm(30);
    int code = kThrew;
    try {
      code = body();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    require(errno == EINTR, "waitpid");
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool wait_readable(int descriptor, std::chrono::milliseconds limit) {
  pollfd item{descriptor, POLLIN, 0};
  return ::poll(&item, 1, static_cast<int>(limit.count())) > 0;
}

std::chrono::milliseconds time_of(const std::function<void()>& body) {
  const auto before = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               before);
}

}  // namespace carveout::test
