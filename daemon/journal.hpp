#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/bytes.hpp"
#include "base/unique_fd.hpp"

namespace carveout::daemon {

enum class Level { kError = 3, kWarning = 4, kNotice = 5, kInfo = 6 };  // as syslog numbers them

// Events that a program may look for: MESSAGE_ID in the journal.
enum class Event {
  kStarted,
  kStopped,
  kGranted,
  kReleased,
  kRefused,
  kDraining,
  kReloaded,
  kTrouble,
  kAdopted,
  kLost
};

struct Fields {
  std::optional<std::uint64_t> lease = std::nullopt;
  std::optional<uid_t> uid = std::nullopt;
  std::optional<pid_t> pid = std::nullopt;
  std::optional<Bytes> bytes = std::nullopt;
};

// The daemon's log: the journal's native protocol when standard error is the journal, plain lines
// on standard error otherwise. Never blocks: what is not taken at once is dropped and counted.
class Journal {
 public:
  Journal();

  void log(Level level, Event event, std::string_view text, const Fields& fields = {});

  // For what a peer can bring about as often as it likes: at most kBurst lines a kWindow for each
  // uid, and as many again for trouble, which is not to drown in what a peer does anyway; what was
  // left out is counted in the next line that gets through.
  void log_of_peer(Level level, Event event, std::string_view text, const Fields& fields);
  static constexpr unsigned kBurst = 20;
  static constexpr std::chrono::seconds kWindow{10};

  // Lines that the log did not take, and lines that were over a peer's allowance.
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }
  [[nodiscard]] std::uint64_t left_out() const { return left_out_; }

 private:
  struct Allowance {
    std::chrono::steady_clock::time_point since;
    unsigned used = 0;
    std::uint64_t left_out = 0;
  };

  void write_journal(Level level, Event event, std::string_view text, const Fields& fields);
  void write_line(std::string_view text);

  UniqueFd journal_;
  UniqueFd line_;  // our own, non-blocking description of what standard error is, if it can be had
  bool line_is_socket_ = false;
  std::uint64_t dropped_ = 0;
  std::uint64_t left_out_ = 0;
  std::unordered_map<uid_t, Allowance> allowances_;
  std::unordered_map<uid_t, Allowance> trouble_allowances_;
};

}  // namespace carveout::daemon
