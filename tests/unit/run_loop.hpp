#pragma once

#include "event_loop.hpp"
#include "poll_set.hpp"

namespace carveout::test {

// Turns the loop until it is stopped, with no sockets to serve.
[[nodiscard]] inline Result<void> run(daemon::EventLoop& loop) {
  auto sockets = daemon::PollSet::create();
  if (!sockets) return sockets.error();
  return loop.run(*sockets);
}

}  // namespace carveout::test
