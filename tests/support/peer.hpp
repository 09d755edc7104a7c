#pragma once

// A client of the lending protocol that shares no code with the daemon, so that neither can hide
// the other's mistakes. Everything throws on what a test did not expect.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"

namespace carveout::test {

struct Reply {
  std::string bytes;                  // empty: the connection has ended
  std::vector<UniqueFd> descriptors;  // what came with it
  int error = 0;                      // errno where the connection broke instead of ending
  [[nodiscard]] bool ended() const { return bytes.empty(); }
};

struct Figures {
  std::uint64_t base = 0, size = 0, free = 0, largest = 0;
};

// The number behind "name": in a reply; throws if there is none.
std::uint64_t member(std::string_view reply, const std::string& name);

class Peer {
 public:
  explicit Peer(const std::string& socket_path, std::string key = "secret");

  [[nodiscard]] int socket() const { return socket_.get(); }
  void close() { socket_.reset(); }

  // False when the daemon has closed the connection.
  bool send(std::string_view datagram) const;
  [[nodiscard]] bool send_with_descriptors(std::string_view datagram,
                                           const std::vector<int>& descriptors) const;
  // Waits up to 60 s.
  [[nodiscard]] Reply receive() const;

  [[nodiscard]] std::string info_request() const;
  [[nodiscard]] std::string alloc_request(std::uint64_t bytes) const;
  [[nodiscard]] Reply ask(std::string_view datagram) const;
  [[nodiscard]] Figures info() const;
  // The memory, or a throw with the daemon's answer.
  [[nodiscard]] UniqueFd alloc(std::uint64_t bytes) const;

 private:
  UniqueFd socket_;
  std::string key_;
};

}  // namespace carveout::test
