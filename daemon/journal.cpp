#include "journal.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/text.hpp"

namespace carveout::daemon {
namespace {

// In the order of Event. Made by random; never reused for another meaning.
constexpr std::array<std::string_view, 10> kMessageIds{
    "00f2240fce1f4ddcb3214aafdb78f363", "9cef67a96f26457da0ab83f05b5011e9",
    "e5511ed5cc4347b596f062ee3c2200e9", "e96dbbe2322a4b158ec371b866aa5974",
    "ff2d720ac9ea432badb122b2acbe1643", "1cb85ad78fc642548e68d15dce967183",
    "0d1b3a92862d4151bd4b27dbbd9bf14a", "e7fdbbe5f63345d2a2aee92fec476e99",
    "1e0f1cfa497c4e38be7914ea62b485dc", "8810ad50bcc44272856bb4d9b62c824a"};

// Each byte may become four (\xNN); a line is then still below PIPE_BUF, and is written whole.
constexpr std::size_t kMaxText = 1000;

// The service manager says in JOURNAL_STREAM which file it gave us as standard error
// (systemd.exec(5)).
bool standard_error_is_the_journal() {
  const char* stream = std::getenv("JOURNAL_STREAM");  // NOLINT(concurrency-mt-unsafe): at start
  struct stat status {};
  if (stream == nullptr || ::fstat(STDERR_FILENO, &status) != 0) return false;
  return cat(status.st_dev, ":", status.st_ino) == stream;
}

UniqueFd connect_to_journal() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un address{AF_UNIX, "/run/systemd/journal/socket"};
  if (!socket ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return {};
  }
  return socket;
}

bool is_socket(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode);
}

// Pipes and terminals block whoever writes to them. Setting O_NONBLOCK on what we inherited would
// change it for everybody who shares it, so they are opened once more. Files do not block.
UniqueFd reopen_standard_error() {
  struct stat status {};
  if (::fstat(STDERR_FILENO, &status) != 0) return {};
  if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return {};
  return UniqueFd(::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
}

}  // namespace

Journal::Journal() {
  if (standard_error_is_the_journal()) journal_ = connect_to_journal();
  if (!journal_) {
    line_ = reopen_standard_error();
    line_is_socket_ = is_socket(STDERR_FILENO);
  }
}

void Journal::log(Level level, Event event, std::string_view text, const Fields& fields) {
  const std::string safe = printable(text, kMaxText);
  if (journal_) {
    write_journal(level, event, safe, fields);
  } else {
    write_line(safe);
  }
}

void Journal::log_of_peer(Level level, Event event, std::string_view text, const Fields& fields) {
  const auto now = std::chrono::steady_clock::now();
  auto& allowances = event == Event::kTrouble ? trouble_allowances_ : allowances_;
  Allowance& allowance = allowances[fields.uid.value_or(0)];
  if (now - allowance.since >= kWindow) {
    allowance.since = now;
    allowance.used = 0;
  }
  if (allowance.used >= kBurst) {
    ++allowance.left_out;
    ++left_out_;
    return;
  }
  ++allowance.used;
  if (allowance.left_out == 0) return log(level, event, text, fields);
  log(level, event,
      cat(text, " (", allowance.left_out, " earlier lines of uid ", fields.uid.value_or(0),
          " were left out)"),
      fields);
  allowance.left_out = 0;
}

void Journal::write_journal(Level level, Event event, std::string_view text, const Fields& fields) {
  std::string entry = cat("MESSAGE=", text, "\nPRIORITY=", static_cast<int>(level),
                          "\nSYSLOG_IDENTIFIER=carveoutd\nMESSAGE_ID=",
                          kMessageIds.at(static_cast<std::size_t>(event)), "\n");
  if (fields.lease) entry += cat("CARVEOUT_LEASE=", *fields.lease, "\n");
  if (fields.uid) entry += cat("CARVEOUT_PEER_UID=", *fields.uid, "\n");
  if (fields.pid) entry += cat("CARVEOUT_PEER_PID=", *fields.pid, "\n");
  if (fields.bytes) entry += cat("CARVEOUT_BYTES=", fields.bytes->count(), "\n");
  if (::send(journal_.get(), entry.data(), entry.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return;
  if (errno == ECONNREFUSED || errno == ENOTCONN) {
    // The journal was restarted: its socket is a new one.
    UniqueFd again = connect_to_journal();
    if (again &&
        ::send(again.get(), entry.data(), entry.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
      journal_ = std::move(again);
      return;
    }
  }
  ++dropped_;
}

void Journal::write_line(std::string_view text) {
  const std::string line = cat("carveoutd: ", text, "\n");
  if (line_is_socket_) {
    if (::send(STDERR_FILENO, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
      ++dropped_;
    return;
  }
  const int target = line_ ? line_.get() : STDERR_FILENO;
  if (!line_) {
    // A pipe with room for a page takes a line whole; a file always says that it has room.
    pollfd item{target, POLLOUT, 0};
    if (::poll(&item, 1, 0) <= 0 || (item.revents & POLLOUT) == 0) {
      ++dropped_;
      return;
    }
  }
  if (::write(target, line.data(), line.size()) < 0) ++dropped_;
}

}  // namespace carveout::daemon
