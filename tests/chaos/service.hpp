#pragma once

// The daemon under chaos, and who brings it back.

#include <memory>
#include <random>
#include <string>
#include <vector>

namespace carveout::chaos {

class Service {
 public:
  Service() = default;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  Service(Service&&) = delete;
  Service& operator=(Service&&) = delete;
  virtual ~Service() = default;

  // Ends the daemon by `signal` (SIGTERM: a clean restart) and has it back. Throws when it had
  // ended by itself, or does not come back.
  virtual void strike(int signal, std::mt19937_64& random) = 0;
  virtual void stop() = 0;
  [[nodiscard]] virtual std::string socket() const = 0;
  [[nodiscard]] virtual std::string key() const = 0;
  [[nodiscard]] virtual std::string ledger() const = 0;
};

// By tests/support's service manager.
std::unique_ptr<Service> play_manager(const std::string& carveoutd,
                                      const std::vector<std::string>& options);
// By the systemd that runs this machine: the unit is installed and running.
std::unique_ptr<Service> use_systemd(const std::string& unit);

}  // namespace carveout::chaos
