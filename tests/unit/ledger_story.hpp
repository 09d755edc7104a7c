#pragma once

// Ledgers that tell a story: legal, and told at random from a seed. Keeps its own books, which
// know nothing of LedgerHistory.

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ledger_history.hpp"

namespace carveout::daemon {

class LedgerStory {
 public:
  using State = LedgerHistory::State;
  using Lines = std::vector<std::string>;  // each with its '\n'

  static constexpr std::uint64_t kSlices = 16;

  explicit LedgerStory(std::uint64_t seed) : random_(seed) { start(); }

  // Goes on at random until there are so many records, over starts and files.
  void tell(std::size_t records);

  void start();      // of the daemon, and what it makes of what it finds
  void next_file();  // a rotation
  void request();
  void grant();
  void answer();
  void release();

  [[nodiscard]] const std::vector<Lines>& files() const { return files_; }
  [[nodiscard]] std::size_t records() const { return seq_; }
  [[nodiscard]] std::uint64_t starts() const { return start_; }
  // What is open at the end.
  [[nodiscard]] const std::map<std::uint64_t, State>& open() const { return open_; }

  static std::string text_of(const Lines& lines);

 private:
  void step();
  void refuse();
  void hold_up();
  void complain();  // what is of no lease
  void write(LedgerEvent event, LedgerRecord record);
  void put(LedgerEvent event, std::uint64_t lease);
  // One of the leases in that state; 0 if there is none.
  [[nodiscard]] std::uint64_t one_of(State state);
  [[nodiscard]] std::uint64_t below(std::uint64_t count) { return random_() % count; }
  [[nodiscard]] Bytes lent() const;

  std::mt19937_64 random_;
  std::vector<Lines> files_;
  std::uint64_t seq_ = 0;
  std::uint64_t start_ = 0;
  std::uint64_t boot_ = 0;
  std::uint64_t mono_us_ = 0;
  std::uint64_t last_lease_ = 0;
  std::uint64_t last_connection_ = 0;
  std::map<std::uint64_t, State> open_;
  std::map<std::uint64_t, LedgerRecord> borrowers_;  // of all leases that there have been
};

}  // namespace carveout::daemon
