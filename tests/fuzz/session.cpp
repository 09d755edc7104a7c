// A connection's whole life in this process, on a real memfd source: the input's lines are its
// datagrams. Whatever they are, every reply is one of the protocol's, every grant is zeroed memory
// of its size, and in the end everything is given back.

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "event_loop.hpp"
#include "journal.hpp"
#include "lending.hpp"
#include "reservation.hpp"
#include "sessions.hpp"
#include "source/memfd.hpp"
#include "wire/channel.hpp"
#include "wire/codec.hpp"
#include "worker.hpp"

namespace {

using namespace carveout;          // NOLINT(google-build-using-namespace)
using namespace carveout::daemon;  // NOLINT(google-build-using-namespace)

constexpr Slices kReservation{3};

void must(bool good) {
  if (!good) std::abort();
}

// All that a session needs, made once.
struct World {
  Journal journal;
  std::unique_ptr<EventLoop> loop = *EventLoop::create();
  PollSet poll_set = *PollSet::create();
  std::unique_ptr<Source> source = make_memfd_source();
  Reservation reservation{Bytes(0x280200000), kReservation};
  std::unique_ptr<Worker> worker = *Worker::start();
  Counters counters;
  KeyRing keys{*wire::Key::from("k")};
  Supervisor supervisor{0};
  Lending lending{*loop, *worker, *source, reservation, journal, nullptr, supervisor};
  Sessions sessions{*loop,
                    poll_set,
                    lending,
                    keys,
                    journal,
                    counters,
                    {.total = 8, .per_user = {}, .idle_timeout = std::chrono::seconds(0)}};
  UniqueFd always{::eventfd(1, EFD_CLOEXEC)};  // so that serving never waits
  std::uint64_t last_id = 0;

  World() { must(poll_set.watch_guest(always.get()).has_value()); }
};

void check_grant(const wire::Datagram& reply, const wire::Grant& grant) {
  must(reply.descriptors.size() == 1);
  struct stat status {};
  must(::fstat(reply.descriptors[0].get(), &status) == 0 &&
       static_cast<std::uint64_t>(status.st_size) == grant.size.count());
  const std::size_t size = grant.size.count();
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, reply.descriptors[0].get(), 0);
  must(at != MAP_FAILED);
  const auto* bytes = static_cast<const char*>(at);
  must(bytes[0] == 0 && std::memcmp(bytes, bytes + 1, size - 1) == 0);
  ::munmap(at, size);
}

void check(const wire::Datagram& reply) {
  if (wire::parse_info_reply(reply.bytes)) return must(reply.descriptors.empty());
  const auto grant = wire::parse_grant_reply(reply.bytes);
  if (grant) return check_grant(reply, *grant);
  must(grant.error().code == Code::kRefused && reply.descriptors.empty());
}

// Reads what is there; false at the end of the connection.
bool read_replies(int socket) {
  for (;;) {
    const auto reply = wire::receive_by(socket, wire::kMaxDatagram, wire::Clock::now());
    if (reply) {
      check(*reply);
    } else {
      must(reply.error().code != Code::kProtocol);
      return reply.error().code == Code::kTimedOut;
    }
  }
}

void turn(World& world) {
  world.poll_set.serve();
  world.worker->run_done();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World& world = *new World;
  int ends[2];
  must(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  UniqueFd ours(ends[0]);
  world.sessions.accept(++world.last_id, UniqueFd(ends[1]), {.uid = 1, .gid = 1, .pid = 0});

  std::string_view rest(reinterpret_cast<const char*>(data), size);
  bool open = true;
  while (open && !rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    ::send(ours.get(), line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    turn(world);
    open = read_replies(ours.get());
  }
  // Half of them hang up while something may be under way, the others wait for their answers.
  if (size % 2 == 0) {
    ::shutdown(ours.get(), SHUT_WR);
    while (open) {
      turn(world);
      open = read_replies(ours.get());
    }
  }
  ours.reset();
  while (world.sessions.size() != 0 || world.reservation.figures().free != kReservation.bytes()) {
    turn(world);
  }
  must(world.lending.leases().empty());
  return 0;
}
