#include <csignal>
#include <exception>
#include <iostream>
#include <variant>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "daemon.hpp"
#include "options.hpp"
#include "startup.hpp"

namespace carveout::daemon {
namespace {

constexpr int kFailed = 1;

// Before any thread: each inherits this.
void set_up_signals() {
  sigset_t waited_for;
  sigemptyset(&waited_for);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP})
    sigaddset(&waited_for, signal);
  sigprocmask(SIG_BLOCK, &waited_for, nullptr);
  // A reader of standard error that went away, and leases on files, are no reason to die,
  // nor is a file that is too large (the answer says so), nor signals that mean nothing to us.
  for (const int signal : {SIGPIPE, SIGIO, SIGXFSZ, SIGUSR1, SIGUSR2})
    std::signal(signal, SIG_IGN);
}

int run(const Options& options) {
  set_up_signals();
  if (options.check) {
    const auto fit = check(options);
    if (!fit) {
      std::cerr << "carveoutd: " << fit.error().describe() << '\n';
      return kFailed;
    }
    std::cout << "carveoutd: the settings are good: " << *fit << ", the key in " << options.key_file
              << '\n';
    return 0;
  }
  auto daemon = Daemon::create(options);
  if (!daemon) {
    std::cerr << "carveoutd: " << daemon.error().describe() << '\n';
    return kFailed;
  }
  const auto ended = (*daemon)->run();
  if (!ended) std::cerr << "carveoutd: " << ended.error().describe() << '\n';
  return ended ? 0 : kFailed;
}

}  // namespace
}  // namespace carveout::daemon

int main(int argc, char** argv) {
  if (!carveout::fill_standard_descriptors()) return carveout::daemon::kFailed;
  try {
    const auto options = carveout::daemon::parse_options(argc, argv);
    if (const int* code = std::get_if<int>(&options)) return *code;
    return carveout::daemon::run(std::get<carveout::daemon::Options>(options));
  } catch (const std::exception& problem) {
    std::cerr << "carveoutd: " << problem.what() << '\n';
    return carveout::daemon::kFailed;
  }
}
