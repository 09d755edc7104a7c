#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/unique_fd.hpp"
#include "counters.hpp"
#include "event_loop.hpp"
#include "peer.hpp"
#include "poll_set.hpp"

namespace carveout::daemon {

struct ListenerSettings {
  std::string path;
  int type;           // SOCK_SEQPACKET or SOCK_STREAM
  mode_t mode;        // of the socket's file
  std::string group;  // that the file is given to, where it exists and we may; empty: none
};

struct ListenerContext {
  EventLoop& loop;
  PollSet& poll_set;
  Counters& counters;
  // Closed to accept, and so to shed, one connection more when no descriptor is left.
  UniqueFd reserve;
  // Closes a connection that can be done without; false if there is none.
  std::function<bool()> make_room;
};

// Refuses a path that is too long, whose directory is missing or not ours to write, or that is
// something else than a socket. Whether somebody listens on it is not looked at.
Result<void> check_socket_path(const std::string& path);

// A bound socket whose connections are handed to `accepted`. Its file goes with it.
class Listener final : public PollSet::Member {
 public:
  using Accepted = std::function<void(UniqueFd socket, const Peer& peer)>;

  // Refuses what check_socket_path() does, and a path that another process listens on.
  static Result<std::unique_ptr<Listener>> open(ListenerContext& context, std::uint64_t id,
                                                ListenerSettings settings, Accepted accepted);
  // One that listens already, on behalf of the service manager: its file stays. Refuses what is not
  // a listening AF_UNIX SOCK_SEQPACKET socket.
  static Result<std::unique_ptr<Listener>> take_over(ListenerContext& context, std::uint64_t id,
                                                     UniqueFd socket, Accepted accepted);
  ~Listener() override;

  [[nodiscard]] const std::string& path() const { return settings_.path; }
  // Whether the kernel keeps peers from sending us descriptors (SO_PASSRIGHTS).
  [[nodiscard]] bool refuses_descriptors() const { return refuses_descriptors_; }

  // Whether the socket's file belongs to the group that was asked for.
  [[nodiscard]] bool in_group() const { return in_group_; }

  void on_ready(std::uint32_t events) override;

 private:
  Listener(ListenerContext& context, std::uint64_t id, ListenerSettings settings, Accepted accepted,
           UniqueFd socket);
  Result<void> watch();
  bool accept_one();
  void shed();
  void pause();

  ListenerContext& context_;
  const std::uint64_t id_;
  const ListenerSettings settings_;
  const Accepted accepted_;
  UniqueFd socket_;
  bool refuses_descriptors_ = false;
  bool in_group_ = false;
  dev_t device_ = 0;  // of the socket's file, so that only our own is removed; 0: the manager's
  ino_t inode_ = 0;
  EventLoop::Source pause_;
};

// A descriptor to keep for ListenerContext::reserve.
UniqueFd open_reserve();

}  // namespace carveout::daemon
