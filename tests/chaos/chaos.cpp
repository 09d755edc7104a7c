// Many borrowers, and a daemon that is killed at random moments and comes back. The referee counts
// what must not happen and ends with 1 if anything did. Repeatable from its seed, as far as the
// machine's scheduler allows.
// Usage: chaos [--borrowers N] [--seconds S] [--kills N] [--seed N] [--systemd UNIT | --daemon
// OPTION ...]

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "chaos/scoreboard.hpp"
#include "chaos/service.hpp"
#include "support/peer.hpp"
#include "support/proc.hpp"

namespace carveout::chaos {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

struct Settings {
  std::size_t borrowers = 64;
  unsigned seconds = 15;
  unsigned kills = 0;  // at least so many, or it is no test
  std::uint64_t seed = 20261130;
  std::string systemd;                               // unit; empty: the manager is played
  std::vector<std::string> daemon{"--size=256MiB"};  // options of the played manager's daemon
};

// Keeps every file that the ledger has been, also those that it lets go of: each gets a name of its
// own while it is the ledger, or at the latest while it is the one before.
class Archive {
 public:
  explicit Archive(std::string ledger) : ledger_(std::move(ledger)) {
    fs::create_directory(folder());
    thread_ = std::thread([this] {
      ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), -10);  // where we may
      while (!stop_) {
        keep(ledger_);
        keep(ledger_ + ".1");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
  }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;
  Archive(Archive&&) = delete;
  Archive& operator=(Archive&&) = delete;
  ~Archive() { close(); }

  // All files, once nothing is recorded any more.
  std::vector<std::string> close() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    keep(ledger_);
    return files_;
  }

 private:
  [[nodiscard]] std::string folder() const { return ledger_ + ".archive"; }
  void keep(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0 || kept_.contains(status.st_ino)) return;
    const std::string copy = folder() + "/" + std::to_string(files_.size());
    std::error_code failed;
    fs::create_hard_link(path, copy, failed);
    // It may have become another file meanwhile.
    if (failed || ::stat(copy.c_str(), &status) != 0) return;
    if (kept_.insert(status.st_ino).second) {
      files_.push_back(copy);
    } else {
      fs::remove(copy, failed);
    }
  }

  std::string ledger_;
  std::set<ino_t> kept_;
  std::vector<std::string> files_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

std::size_t count_lost_leases(const std::vector<std::string>& ledgers) {
  std::size_t lost = 0;
  for (const std::string& ledger : ledgers) {
    std::ifstream lines(ledger);
    for (std::string line; std::getline(lines, line);) {
      const bool of_lease = line.find("\"lease\":0") == std::string::npos;
      if (line.find("\"event\":\"lost\"") != std::string::npos && of_lease) ++lost;
    }
  }
  return lost;
}

// Leases whose grant was recorded by a daemon that was ended before it recorded its reply. Whether
// the reply left is not known, none is sent again, and the borrower's time limit decides.
std::size_t count_unanswered_grants(const std::vector<std::string>& ledgers) {
  std::set<std::string> open, unanswered;
  for (const std::string& ledger : ledgers) {
    std::ifstream lines(ledger);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t at = line.find("\"lease\":");
      if (at == std::string::npos) continue;
      const std::string lease = line.substr(at, line.find_first_of(",}", at) - at);
      const auto is = [&](const char* event) { return line.find(event) != std::string::npos; };
      if (is("\"event\":\"granted\"")) open.insert(lease);
      if (is("\"event\":\"answered\"")) open.erase(lease);
      if (is("\"event\":\"adopted\"") && open.contains(lease)) unanswered.insert(lease);
    }
  }
  return unanswered.size();
}

class Referee {
 public:
  explicit Referee(const Settings& settings)
      : settings_(settings),
        random_(settings.seed),
        service_(settings.systemd.empty() ? play_manager(CARVEOUTD, settings.daemon)
                                          : use_systemd(settings.systemd)),
        archive_(service_->ledger()),
        board_memory_(make_scoreboard()),
        board_(map_scoreboard(board_memory_.get())),
        borrowers_(settings.borrowers, -1) {}

  int run() {
    for (std::size_t place = 0; place < borrowers_.size(); ++place)
      spawn(place);
    const auto end = Clock::now() + std::chrono::seconds(settings_.seconds);
    while (Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100 + random_() % 1300));
      replace_the_dead();
      const std::uint64_t die = random_() % 10;
      service_->strike(die < 8 ? SIGKILL : die == 8 ? SIGABRT : SIGTERM, random_);
      ++strikes_;
    }
    board_.stop = true;
    for (const pid_t borrower : borrowers_)
      failed_borrowers_ += is_failure(test::wait_for(borrower)) ? 1U : 0U;
    const test::Peer peer(service_->socket(), service_->key());
    size_ = peer.info().size;
    test::eventually([&] { return peer.info().free == size_; });
    free_ = peer.info().free;
    const int verdict = judge();  // a real manager takes the ledger away with the daemon
    service_->stop();
    return verdict;
  }

 private:
  static bool is_failure(int code) { return code != 0 && code != 128 + SIGKILL; }

  void spawn(std::size_t place) {
    ++board_.scores.at(place).generation;
    borrowers_[place] =
        test::spawn({CHAOS_BORROWER, service_->socket(), service_->key(), std::to_string(place),
                     std::to_string(random_()), std::to_string(board_memory_.get())},
                    -1, -1);
    ++spawned_;
  }

  void replace_the_dead() {
    for (std::size_t place = 0; place < borrowers_.size(); ++place) {
      int status = 0;
      if (::waitpid(borrowers_[place], &status, WNOHANG) != borrowers_[place]) continue;
      const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      if (!killed) ++failed_borrowers_;
      spawn(place);
    }
  }

  [[nodiscard]] std::uint64_t sum(std::atomic<std::uint64_t> Score::*member) const {
    std::uint64_t total = 0;
    for (const Score& score : board_.scores)
      total += score.*member;
    return total;
  }

  int judge() {
    const auto ledgers = archive_.close();
    std::vector<std::string> words{CARVEOUTCTL, "audit"};
    words.insert(words.end(), ledgers.begin(), ledgers.end());
    const test::Outcome audited = test::run(words);
    const auto show = [](const char* what, std::uint64_t count) {
      std::printf("%-44s %llu\n", what, static_cast<unsigned long long>(count));
    };
    show("seed", settings_.seed);
    show("borrowers at once", settings_.borrowers);
    show("borrowers that died by kill -9", spawned_ - settings_.borrowers);
    show("daemon ended and back", strikes_);
    show("leases granted", sum(&Score::granted));
    show("MiB granted, every byte looked at", sum(&Score::granted_bytes) >> 20U);
    show("pages looked at again", sum(&Score::rechecked_pages));
    show("leases kept past closing", sum(&Score::kept));
    show("refused: not enough free", sum(&Score::refused));
    show("ended before the daemon knew of the request", sum(&Score::ended));
    const std::uint64_t timed_out = sum(&Score::timed_out);
    show("time-outs (ambiguous steps)", timed_out);
    const std::uint64_t unanswered = count_unanswered_grants(ledgers);
    show("grants whose reply a kill left unrecorded", unanswered);
    std::printf("%-44s %s", "audit", (audited.output + audited.error).c_str());
    // A rate needs a number: in 13 kills, one that the design allows would be one too many.
    const bool is_long = strikes_ >= 200;
    const std::uint64_t lost = count_lost_leases(ledgers);
    const std::vector<std::pair<const char*, std::uint64_t>> wrong{
        {"non-zero bytes at grant", sum(&Score::nonzero_bytes)},
        {"foreign stamps", sum(&Score::foreign_stamps)},
        {"ended while holding a lease", sum(&Score::ended_while_holding)},
        {"second replies", sum(&Score::second_replies)},
        {"wrong replies", sum(&Score::wrong_replies)},
        {"leases lost", lost},
        {"borrowers that failed otherwise", failed_borrowers_},
        {"bytes not free at the end", size_ - free_},
        {"audit failed", audited.code == 0 ? 0U : 1U},
        {"time-outs beyond 1 in 20 kills", is_long && timed_out * 20 > strikes_ ? 1U : 0U},
        {"time-outs beyond that which nothing explains",
         timed_out > unanswered + std::max<std::uint64_t>(strikes_ / 20, 1) ? 1U : 0U},
        {"fewer kills than wanted", strikes_ < settings_.kills ? 1U : 0U},
        {"nothing was granted", sum(&Score::granted) == 0 ? 1U : 0U}};
    bool good = true;
    for (const auto& [what, count] : wrong) {
      show(what, count);
      good = good && count == 0;
    }
    std::puts(good ? "good" : "BAD");
    return good ? 0 : 1;
  }

  Settings settings_;
  std::mt19937_64 random_;
  std::unique_ptr<Service> service_;
  Archive archive_;
  UniqueFd board_memory_;
  Scoreboard& board_;
  std::vector<pid_t> borrowers_;
  std::uint64_t spawned_ = 0;
  std::uint64_t strikes_ = 0;
  std::uint64_t failed_borrowers_ = 0;
  std::uint64_t size_ = 0;
  std::uint64_t free_ = 0;
};

}  // namespace
}  // namespace carveout::chaos

int main(int argc, char** argv) {
  carveout::chaos::Settings settings;
  CLI::App app{"Borrowers against a daemon that is killed at random moments"};
  app.add_option("--borrowers", settings.borrowers)
      ->check(CLI::Range(std::size_t{1}, carveout::chaos::kMostBorrowers))
      ->capture_default_str();
  app.add_option("--seconds", settings.seconds)->capture_default_str();
  app.add_option("--kills", settings.kills, "Fail with fewer")->capture_default_str();
  app.add_option("--seed", settings.seed)->capture_default_str();
  app.add_option("--systemd", settings.systemd, "The unit of a real systemd");
  app.add_option("--daemon", settings.daemon, "An option of carveoutd's (--daemon=--size=64MiB)")
      ->allow_extra_args(false)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return carveout::chaos::Referee(settings).run();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "chaos: %s\n", problem.what());
    return 1;
  }
}
