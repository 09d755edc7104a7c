#include "peer/bystander.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>

namespace carveout::test {

using Clock = std::chrono::steady_clock;

Bystander::Bystander(const DaemonProcess& daemon) : peer_(daemon.connect()) {
  thread_ = std::thread([this] { run(); });
}

Bystander::~Bystander() {
  finish();
}

void Bystander::finish() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void Bystander::run() {
  const std::string request = peer_.info_request();
  while (!stop_) {
    const bool attacked = attacked_;
    const auto before = Clock::now();
    try {
      if (peer_.ask(request).bytes.find("\"largest\"") == std::string::npos) harmed_ = true;
    } catch (const std::exception&) {
      harmed_ = true;
    }
    if (harmed_) return;
    const std::chrono::duration<double, std::micro> took = Clock::now() - before;
    (attacked ? under_attack_ : at_rest_).push_back(took.count());
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

double Bystander::p99(std::vector<double>& took) {
  if (took.empty()) return 0;
  const auto at = took.begin() + static_cast<std::ptrdiff_t>(took.size() * 99 / 100);
  std::nth_element(took.begin(), at, took.end());
  return *at;
}

void Hostile::SetUp() {
  before_ = daemon_.descriptors_with(calm_);
  bystander_ = std::make_unique<Bystander>(daemon_);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  bystander_->attack_begins();
}

void Hostile::TearDown() {
  // Time enough for the bystander to be asked even where the attack is one datagram.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  bystander_->finish();
  EXPECT_FALSE(bystander_->was_harmed()) << "a bystander was refused or closed";
  const double at_rest = bystander_->p99_at_rest();
  const double under_attack = bystander_->p99_under_attack();
  bystander_.reset();
  EXPECT_TRUE(eventually([&] { return daemon_.descriptors_with(calm_) == before_; }));
  EXPECT_TRUE(eventually([&] { return calm_.info().free == calm_.info().size; }));
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::printf("| %s | %s | %zu, %zu | %.0f / %.0f us |\n", test->name(), got_.c_str(), before_,
              count_descriptors(daemon_.pid()), under_attack, at_rest);
}

}  // namespace carveout::test
