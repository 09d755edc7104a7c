#include "chaos/service.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <utility>

#include "support/proc.hpp"
#include "support/service_manager.hpp"

namespace carveout::chaos {
namespace {

class Played final : public Service {
 public:
  Played(const std::string& carveoutd, const std::vector<std::string>& options)
      : manager_(carveoutd, options) {
    manager_.start();
  }
  void strike(int signal, std::mt19937_64& random) override {
    const int code = manager_.end(signal);
    if (code != (signal == SIGTERM ? 0 : 128 + signal)) {
      throw std::runtime_error("carveoutd had ended by itself: " + std::to_string(code) + "\n" +
                               manager_.log());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 100));
    manager_.start();
  }
  void stop() override { manager_.end(SIGTERM); }
  [[nodiscard]] std::string socket() const override { return manager_.socket(); }
  [[nodiscard]] std::string key() const override { return "secret"; }
  [[nodiscard]] std::string ledger() const override { return manager_.ledger(); }

 private:
  test::ServiceManager manager_;
};

class Systemd final : public Service {
 public:
  explicit Systemd(std::string unit) : unit_(std::move(unit)), pid_(main_pid()) {}
  void strike(int signal, std::mt19937_64& /*random*/) override {
    if (main_pid() != pid_) throw std::runtime_error(unit_ + " had ended by itself");
    if (signal == SIGTERM) {
      systemctl({"restart"});
    } else {
      ::kill(std::stoi(pid_), signal);
    }
    const std::string before = pid_;
    const bool back = test::eventually([&] {
      pid_ = main_pid();
      return pid_ != before && pid_ != "0" && property("ActiveState") == "active";
    });
    if (!back) throw std::runtime_error(unit_ + " does not come back");
  }
  void stop() override { systemctl({"stop"}); }
  [[nodiscard]] std::string socket() const override { return "/run/carveout/carveout.sock"; }
  [[nodiscard]] std::string key() const override {
    const std::string text = test::read_file("/etc/carveout/key");
    return text.substr(0, text.find('\n'));
  }
  [[nodiscard]] std::string ledger() const override { return "/run/carveoutd/ledger.jsonl"; }

 private:
  std::string systemctl(std::vector<std::string> words) const {
    words.insert(words.begin(), "systemctl");
    words.push_back(unit_);
    const test::Outcome outcome = test::run(words);
    if (outcome.code != 0) throw std::runtime_error(outcome.output + outcome.error);
    return outcome.output;
  }
  [[nodiscard]] std::string property(const std::string& name) const {
    const std::string value = systemctl({"show", "--value", "-p", name});
    return value.substr(0, value.find('\n'));
  }
  [[nodiscard]] std::string main_pid() const { return property("MainPID"); }

  std::string unit_;
  std::string pid_;
};

}  // namespace

std::unique_ptr<Service> play_manager(const std::string& carveoutd,
                                      const std::vector<std::string>& options) {
  return std::make_unique<Played>(carveoutd, options);
}

std::unique_ptr<Service> use_systemd(const std::string& unit) {
  return std::make_unique<Systemd>(unit);
}

}  // namespace carveout::chaos
