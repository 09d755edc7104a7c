#include "sessions.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace carveout::daemon {
namespace {

// A reply that its peer has not read for so long ends the connection.
constexpr std::chrono::seconds kStallLimit{30};

// A guest that was silent for less is between two requests and keeps its place.
constexpr std::chrono::seconds kSilent{1};

}  // namespace

Sessions::Sessions(EventLoop& loop, PollSet& poll_set, Lending& lending, const KeyRing& keys,
                   Journal& journal, Counters& counters, const ConnectionLimits& limits)
    : loop_(loop),
      journal_(journal),
      counters_(counters),
      limits_(limits),
      stalls_(loop, kStallLimit,
              [this](std::uint64_t id, std::uint64_t ticket) {
                const auto session = sessions_.find(id);
                if (session != sessions_.end()) session->second->on_stalled(ticket);
              }),
      context_{.poll_set = poll_set,
               .lending = lending,
               .keys = keys,
               .journal = journal,
               .counters = counters,
               .stalls = stalls_,
               .idle = idle_,
               .ended = [this](std::uint64_t id) { end(id); }} {}

void Sessions::accept(std::uint64_t id, UniqueFd socket, const Peer& peer) {
  ++counters_.accepted;
  const auto of_user = by_user_.find(peer.uid);
  const bool too_many_of_user =
      limits_.per_user && of_user != by_user_.end() && of_user->second >= *limits_.per_user;
  if (too_many_of_user || (sessions_.size() >= limits_.total && !make_room())) {
    ++(too_many_of_user ? counters_.over_user_limit : counters_.shed);
    journal_.log_of_peer(Level::kInfo, Event::kRefused,
                         cat("closed a new connection of pid ", peer.pid, ", uid ", peer.uid, ": ",
                             too_many_of_user ? "that user has as many as it may"
                                              : "there are as many as there may be"),
                         {.uid = peer.uid, .pid = peer.pid});
    return;
  }
  auto session = std::make_unique<Session>(context_, id, std::move(socket), peer);
  if (auto started = session->start(); !started) return complain(peer, started.error());
  ++by_user_[peer.uid];
  sessions_.emplace(id, std::move(session));
  if (!stranger_timer_) wait_for_strangers();
}

void Sessions::adopt(std::uint64_t id, UniqueFd socket, const Peer& peer,
                     const std::vector<LedgerRecord>& leases) {
  ++by_user_[peer.uid];
  const auto session =
      sessions_.emplace(id, std::make_unique<Session>(context_, id, std::move(socket), peer)).first;
  if (auto adopted = session->second->adopt(leases); !adopted) {
    complain(peer, adopted.error());
    end(id);
  }
}

void Sessions::resume(std::uint64_t id, const LedgerRecord& request) {
  const auto session = sessions_.find(id);
  if (session != sessions_.end()) session->second->resume(request);
}

void Sessions::end_all() {
  while (!sessions_.empty())
    end(sessions_.begin()->first);
}

void Sessions::complain(const Peer& peer, const Error& problem) {
  journal_.log_of_peer(Level::kWarning, Event::kTrouble, problem.describe(),
                       {.uid = peer.uid, .pid = peer.pid});
}

bool Sessions::make_room() {
  const auto id = idle_.first_to_go(kSilent);
  if (!id) return false;
  ++counters_.idle_closed;
  end(*id);
  return true;
}

// Strangers are ordered by age, so that the oldest one's deadline is the next.
void Sessions::wait_for_strangers() {
  stranger_timer_.reset();
  const auto oldest = idle_.oldest_stranger();
  if (!oldest || limits_.idle_timeout.count() == 0) return;
  const auto left = oldest->since + limits_.idle_timeout - IdleOrder::Clock::now();
  // Without a timer (no memory for one) the next newcomer tries again.
  auto timer = loop_.after(
      std::chrono::ceil<std::chrono::microseconds>(std::max(left, decltype(left)::zero())),
      [this] { close_strangers(); });
  if (timer) stranger_timer_ = *std::move(timer);
}

void Sessions::close_strangers() {
  const auto now = IdleOrder::Clock::now();
  for (auto oldest = idle_.oldest_stranger(); oldest && now - oldest->since >= limits_.idle_timeout;
       oldest = idle_.oldest_stranger()) {
    ++counters_.timed_out;
    end(oldest->id);
  }
  wait_for_strangers();
}

void Sessions::end(std::uint64_t id) {
  const auto node = sessions_.extract(id);
  if (node.empty()) return;
  const auto of_user = by_user_.find(node.mapped()->peer().uid);
  if (of_user != by_user_.end() && --of_user->second == 0) by_user_.erase(of_user);
}

std::size_t Sessions::borrowers() const {
  return static_cast<std::size_t>(
      std::count_if(sessions_.begin(), sessions_.end(),
                    [](const auto& entry) { return entry.second->has_lease(); }));
}

}  // namespace carveout::daemon
