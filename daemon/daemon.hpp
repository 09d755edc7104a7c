#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adoption.hpp"
#include "base/unique_fd.hpp"
#include "control.hpp"
#include "event_loop.hpp"
#include "journal.hpp"
#include "key_ring.hpp"
#include "ledger.hpp"
#include "lending.hpp"
#include "listener.hpp"
#include "options.hpp"
#include "poll_set.hpp"
#include "reservation.hpp"
#include "sessions.hpp"
#include "source/source.hpp"
#include "supervisor.hpp"
#include "worker.hpp"

namespace carveout::daemon {

// All parts, joined. Signals must be blocked before it is made.
class Daemon {
 public:
  static Result<std::unique_ptr<Daemon>> create(const Options& options);
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;
  Daemon(Daemon&&) = delete;
  Daemon& operator=(Daemon&&) = delete;
  ~Daemon();

  // Until SIGTERM or SIGINT.
  Result<void> run();

 private:
  // What can fail to be had.
  struct Parts {
    UniqueFd lock;
    std::unique_ptr<Source> source;
    std::unique_ptr<Ledger> ledger;
    std::unique_ptr<EventLoop> loop;
    PollSet poll_set;
    std::unique_ptr<Worker> worker;
    Bytes asked;  // --size; there may have been less
  };
  Daemon(const Options& options, Parts parts, const wire::Key& key);
  Result<void> open(HandedOver handed_over, const Adoption& plan, Hold* hold);
  void adopt(std::vector<HandedOver::Kept> kept, const Adoption& plan);
  Result<void> open_listeners(std::vector<UniqueFd> passed);
  Result<void> watch_loop_sources();
  void give_notice();
  void reload();
  [[nodiscard]] std::vector<std::string> lending_sockets() const;
  std::string answer(std::string_view op);
  [[nodiscard]] std::string status() const;
  std::string drain(bool draining);

  // In the order of who outlives whom.
  const Options options_;
  const Bytes asked_;
  const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
  Journal journal_;
  std::unique_ptr<EventLoop> loop_;
  PollSet poll_set_;
  Counters counters_;
  KeyRing keys_;
  UniqueFd lock_;
  std::unique_ptr<Ledger> ledger_;
  Supervisor supervisor_;
  std::unique_ptr<Source> source_;
  Reservation reservation_;
  std::unique_ptr<Worker> worker_;
  Lending lending_;
  Sessions sessions_;
  Control control_;
  ListenerContext listener_context_;
  std::vector<std::unique_ptr<Listener>> listeners_;  // the lending sockets, then the control's
  std::size_t lending_sockets_ = 0;
  std::vector<EventLoop::Source> loop_sources_;
  std::uint64_t last_id_ = 0;  // of connections and listeners
};

}  // namespace carveout::daemon
