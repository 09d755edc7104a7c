#pragma once

// A lender of another make: a process that answers on a lending socket whatever a test wants. It
// shares no code with the daemon. Everything throws on what a test did not expect.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"

namespace carveout::test {

struct SentDatagram {
  std::string bytes;
  std::vector<int> descriptors = {};            // sent alongside
  std::shared_ptr<const UniqueFd> memory = {};  // sent behind those, closed when it is sent
};

// Sends it; a peer that has left already is nobody's mistake.
void send_datagram(int socket, const SentDatagram& datagram);

enum class Then {
  kStay,       // the connection stays open
  kClose,      // close(): with unread requests in the socket, that is ECONNRESET for the client
  kHalfClose,  // shutdown(SHUT_WR)
  kDie,        // the whole lender ends
};

struct Answer {
  std::vector<SentDatagram> datagrams = {};
  Then then = Then::kStay;
  std::chrono::milliseconds delay{0};  // before each datagram
};

struct Script {
  // Called in the lender's process with the request and the connection's number.
  std::function<Answer(std::string_view request, int connection)> answer;
  // A connection has ended.
  std::function<void(int connection)> ended = [](int) {};
  bool read_requests = true;  // false: it answers what it has not read ("")
};

class ScriptedLender {
 public:
  // Listens at `path`, which must not exist, and can be connected to once constructed. What is open
  // in this process now is open in the lender's, too.
  ScriptedLender(const std::string& path, const Script& script);
  // Gives these answers on each connection, one after the other; the last one stands for all
  // further requests.
  ScriptedLender(const std::string& path, const std::vector<Answer>& in_turn);
  ScriptedLender(const ScriptedLender&) = delete;
  ScriptedLender& operator=(const ScriptedLender&) = delete;
  ScriptedLender(ScriptedLender&&) = delete;
  ScriptedLender& operator=(ScriptedLender&&) = delete;
  ~ScriptedLender();

  // What has happened since it was asked last: "connected", the requests as they came, "ended".
  // Whatever an answer was received to is in it.
  [[nodiscard]] std::vector<std::string> events();

  // SIGKILL, waited for.
  void kill();

 private:
  pid_t pid_ = -1;
  UniqueFd events_;
};

// How a lender writes its replies.
enum class Style {
  kLetter,     // as the protocol page has it
  kCompact,    // no spaces
  kSpaced,     // with line ends and tabs wherever JSON allows them
  kReordered,  // the members backwards
  kExtra,      // with members that the protocol does not have
  kEscaped,    // with \u escapes in names and strings
  kSlow,       // to the letter, but late
};

// A lender to the protocol page's letter (alloc only), with `size` bytes of memfds in `style`.
[[nodiscard]] Script lender_of(std::uint64_t size, const std::string& key, Style style);

// A sealed memfd of that length.
[[nodiscard]] UniqueFd make_memory(std::uint64_t length);

}  // namespace carveout::test
