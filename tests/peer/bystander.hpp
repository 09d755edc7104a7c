#pragma once

// Hostile peers against the real daemon, with somebody else connected who must not notice: each
// test prints a row of what the hostile peer got, the daemon's descriptors before and after, and
// the bystander's p99 against its own p99 at rest.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/daemon_process.hpp"

namespace carveout::test {

// Asks for `info` every now and then and keeps how long the answers took.
class Bystander {
 public:
  explicit Bystander(const DaemonProcess& daemon);
  Bystander(const Bystander&) = delete;
  Bystander& operator=(const Bystander&) = delete;
  Bystander(Bystander&&) = delete;
  Bystander& operator=(Bystander&&) = delete;
  ~Bystander();

  void attack_begins() { attacked_ = true; }
  void finish();
  // After finish(): whether any answer failed to come, and the percentile in microseconds.
  [[nodiscard]] bool was_harmed() const { return harmed_; }
  [[nodiscard]] double p99_at_rest() { return p99(at_rest_); }
  [[nodiscard]] double p99_under_attack() { return p99(under_attack_); }

 private:
  static double p99(std::vector<double>& took);
  void run();

  Peer peer_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> attacked_{false};
  std::atomic<bool> harmed_{false};
  std::vector<double> at_rest_, under_attack_;
  std::thread thread_;
};

class Hostile : public testing::Test {
 protected:
  explicit Hostile(const std::vector<std::string>& options = {"--size", "64MiB"},
                   const std::vector<std::string>& launcher = {})
      : daemon_(CARVEOUTD, options, launcher) {}

  // Between the two, the attack.
  void SetUp() override;
  void TearDown() override;
  // What the hostile peer got, for the row.
  void got(const std::string& what) { got_ = what; }

  DaemonProcess daemon_;
  Peer calm_{daemon_.connect()};

 private:
  std::size_t before_ = 0;
  std::unique_ptr<Bystander> bystander_;
  std::string got_;
};

inline constexpr const char* kUnknownKey = R"({"ok": false, "error": "missing or unknown key"})";

}  // namespace carveout::test
