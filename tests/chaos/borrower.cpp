// One borrower among many: claims, checks that what it gets is zero, stamps every page with who it
// is, looks again at random moments, keeps some of it past closing, and now and then dies by kill
// -9. Usage: chaos_borrower SOCKET KEY PLACE SEED SCOREBOARD_FD

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chaos/scoreboard.hpp"
#include "support/peer.hpp"

namespace carveout::chaos {
namespace {

using test::Peer;
using test::Reply;

constexpr std::uint64_t kSlice = 2097152;
constexpr std::size_t kPage = 4096;
constexpr int kTimeLimitMs = 10'000;  // the protocol's
constexpr std::uint64_t kMagic = 0x63617276656f7574;
constexpr std::size_t kMostKept = 3;  // what is kept past closing is nobody's reservation

// At the beginning and at the end of each page.
struct Stamp {
  std::uint64_t magic, borrower, generation, lease, page;
  bool operator==(const Stamp&) const = default;
};

class Borrower {
 public:
  Borrower(std::string socket, std::string key, std::uint64_t place, std::uint64_t seed,
           Scoreboard& board)
      : socket_(std::move(socket)),
        key_(std::move(key)),
        place_(place),
        random_(seed),
        board_(board),
        score_(board.scores.at(place)),
        generation_(score_.generation) {}

  void run() {
    while (!board_.stop) {
      episode();
      if (!kept_.empty() && chance(50)) kept_.erase(kept_.begin());
      sleep_up_to(20);
    }
  }

 private:
  struct Unmap {
    std::size_t size;
    void operator()(char* at) const { ::munmap(at, size); }
  };
  struct Held {
    UniqueFd memory;
    std::unique_ptr<char, Unmap> at;
    std::size_t size;
    std::uint64_t lease;
  };

  std::uint64_t up_to(std::uint64_t most) { return random_() % (most + 1); }
  bool chance(std::uint64_t percent) { return up_to(99) < percent; }
  void sleep_up_to(std::uint64_t most_ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(up_to(most_ms)));
  }

  // One connection's life.
  void episode() {
    Peer peer(socket_, key_);
    std::vector<Held> held;
    const std::uint64_t claims = 1 + up_to(2);
    for (std::uint64_t i = 0; i < claims; ++i) {
      if (!claim(peer, held, 1 + up_to(3))) {
        look_at(held);
        return;
      }
    }
    for (std::uint64_t round = up_to(4); round > 0; --round) {
      sleep_up_to(100);
      look_at(held);
      if (!is_quiet(peer)) return;
    }
    if (chance(8)) std::raise(SIGKILL);
    if (chance(25)) {
      const bool dup_only = chance(50);
      peer.close();
      for (Held& lease : held) {
        if (kept_.size() >= kMostKept) break;
        if (dup_only) lease.memory = UniqueFd(::dup(lease.memory.get()));
        ++score_.kept;
        kept_.push_back(std::move(lease));
      }
    }
    look_at(kept_);
  }

  // False when the connection is over.
  bool claim(Peer& peer, std::vector<Held>& held, std::uint64_t slices) {
    if (!peer.send(peer.alloc_request(slices * kSlice))) return ended(held);
    pollfd item{peer.socket(), POLLIN, 0};
    if (::poll(&item, 1, kTimeLimitMs) != 1) {
      ++score_.timed_out;
      return false;
    }
    Reply reply = peer.receive();
    if (reply.ended()) return ended(held);
    const std::string size = std::to_string(slices * kSlice);
    if (reply.bytes == R"({"ok": true, "base": 10739515392, "size": )" + size + "}" &&
        reply.descriptors.size() == 1) {
      take(held, std::move(reply.descriptors.front()), slices * kSlice);
      return true;
    }
    if (reply.bytes.find("\"not enough free carveout\"") != std::string::npos &&
        reply.descriptors.empty()) {
      ++score_.refused;
      sleep_up_to(300);
      return false;
    }
    ++score_.wrong_replies;
    std::fprintf(stderr, "borrower %llu: wrong reply: %s\n",
                 static_cast<unsigned long long>(place_), reply.bytes.c_str());
    return false;
  }

  // The connection has ended: that is wrong while a lease is on it.
  bool ended(const std::vector<Held>& held) {
    ++(held.empty() ? score_.ended : score_.ended_while_holding);
    return false;
  }

  // Nothing comes that was not asked for, and the connection is there.
  bool is_quiet(const Peer& peer) {
    pollfd item{peer.socket(), POLLIN, 0};
    if (::poll(&item, 1, 0) != 1) return true;
    ++(peer.receive().ended() ? score_.ended_while_holding : score_.second_replies);
    return false;
  }

  void take(std::vector<Held>& held, UniqueFd memory, std::size_t size) {
    void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (at == MAP_FAILED) {
      ++score_.wrong_replies;
      return;
    }
    held.push_back({std::move(memory), {static_cast<char*>(at), Unmap{size}}, size, ++last_lease_});
    const Held& lease = held.back();
    const char* bytes = lease.at.get();
    if (bytes[0] != 0 || std::memcmp(bytes, bytes + 1, size - 1) != 0) {
      score_.nonzero_bytes +=
          size - static_cast<std::uint64_t>(std::count(bytes, bytes + size, '\0'));
    }
    for (std::size_t page = 0; page < size / kPage; ++page) {
      const Stamp stamp = stamp_of(lease, page);
      std::memcpy(lease.at.get() + page * kPage, &stamp, sizeof stamp);
      std::memcpy(lease.at.get() + (page + 1) * kPage - sizeof stamp, &stamp, sizeof stamp);
    }
    ++score_.granted;
    score_.granted_bytes += size;
  }

  [[nodiscard]] Stamp stamp_of(const Held& lease, std::size_t page) const {
    return {kMagic, place_, generation_, lease.lease, page};
  }

  // Every page bears our stamp still.
  void look_at(const std::vector<Held>& leases) {
    for (const Held& lease : leases) {
      for (std::size_t page = 0; page < lease.size / kPage; ++page) {
        Stamp first, last;
        std::memcpy(&first, lease.at.get() + page * kPage, sizeof first);
        std::memcpy(&last, lease.at.get() + (page + 1) * kPage - sizeof last, sizeof last);
        const Stamp ours = stamp_of(lease, page);
        if (first == ours && last == ours) continue;
        ++score_.foreign_stamps;
        score_.stranger = (first == ours ? last : first).borrower + 1;
      }
      score_.rechecked_pages += lease.size / kPage;
    }
  }

  const std::string socket_;
  const std::string key_;
  const std::uint64_t place_;
  std::mt19937_64 random_;
  Scoreboard& board_;
  Score& score_;
  const std::uint64_t generation_;
  std::uint64_t last_lease_ = 0;
  std::vector<Held> kept_;
};

}  // namespace
}  // namespace carveout::chaos

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  try {
    carveout::chaos::Borrower borrower(argv[1], argv[2], std::stoull(argv[3]), std::stoull(argv[4]),
                                       carveout::chaos::map_scoreboard(std::stoi(argv[5])));
    borrower.run();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "borrower %s: %s\n", argv[3], problem.what());
    return 1;
  }
  return 0;
}
