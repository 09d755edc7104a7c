// Makes so many requests of one kind, for system_calls.
// Usage: bench_requests SOCKET info|connect-info|connect-alloc COUNT

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "support/daemon_process.hpp"

int main(int argc, char** argv) {
  using namespace carveout::test;  // NOLINT(google-build-using-namespace): this file's own
  if (argc != 4) {
    std::fprintf(stderr, "usage: bench_requests SOCKET info|connect-info|connect-alloc COUNT\n");
    return 2;
  }
  try {
    const std::string kind = argv[2];
    const Peer constant(argv[1]);
    for (int i = std::atoi(argv[3]); i > 0; --i) {
      if (kind == "info") {
        (void)constant.ask(constant.info_request());
      } else if (kind == "connect-info") {
        const Peer peer(argv[1]);
        (void)peer.ask(peer.info_request());
      } else {
        const Peer peer(argv[1]);
        (void)peer.alloc(kSlice);
      }
    }
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "bench_requests: %s\n", problem.what());
    return 1;
  }
}
