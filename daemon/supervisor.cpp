#include "supervisor.hpp"

#include <fcntl.h>
#include <systemd/sd-daemon.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "adoption.hpp"
#include "base/text.hpp"
#include "failpoint.hpp"

namespace carveout::daemon {
namespace {

// The manager's queue is never filled by us, so that whoever else notifies it (our own watchdog,
// from the loop) does not wait behind more than these.
constexpr unsigned kUnheard = 16;
constexpr std::uint64_t kHearingTimeoutUs = 2'000'000;
constexpr std::chrono::minutes kUnansweredHolds{1};

using Clock = std::chrono::steady_clock;

// systemd 254 on says how large our store is. 0: it does not say.
std::size_t announced_store() {
  const char* text = std::getenv("FDSTORE");  // NOLINT(concurrency-mt-unsafe): at start
  if (text == nullptr) return 0;
  const std::string_view digits(text);
  std::size_t most = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), most);
  return most;
}

std::vector<std::string> adopt(char** names) {
  std::vector<std::string> adopted;
  for (char** name = names; name != nullptr && *name != nullptr; ++name) {
    const std::unique_ptr<char, decltype(&std::free)> owner(*name, &std::free);
    adopted.emplace_back(*name);
  }
  std::free(names);  // NOLINT(cppcoreguidelines-no-malloc): libsystemd's
  return adopted;
}

}  // namespace

Result<HandedOver> take_handed_over() {
  char** names = nullptr;
  const int count = sd_listen_fds_with_names(1, &names);
  if (count < 0) {
    return system_error(-count, "the service manager's descriptors", "cannot be taken over");
  }
  const auto named = adopt(names);
  HandedOver all;
  for (int i = 0; i < count; ++i) {
    UniqueFd descriptor(SD_LISTEN_FDS_START + i);
    const auto place = static_cast<std::size_t>(i);
    const std::string name = place < named.size() ? named[place] : std::string();
    if (name == "lend") {
      all.listeners.push_back(std::move(descriptor));
    } else {
      all.kept.push_back({name, std::move(descriptor)});
    }
  }
  return all;
}

Supervisor::Supervisor(std::size_t most) : most_(most), has_store_(false) {
  const char* socket = std::getenv("NOTIFY_SOCKET");  // NOLINT(concurrency-mt-unsafe): at start
  if (socket == nullptr || *socket == '\0') most_ = 0;
  if (const std::size_t announced = announced_store(); announced != 0) {
    most_ = std::min(most_, announced);
  }
  has_store_ = most_ != 0;
}

Result<void> Supervisor::store(std::uint64_t connection, int descriptor) {
  if (auto paid = pay(); !paid) return paid;
  if (stored_ >= most_) {
    return Error{Code::kExhausted, 0, "the service manager's descriptor store",
                 cat("is full with ", stored_.load(),
                     " connections: raise --store-max, and with it "
                     "FileDescriptorStoreMax= of the unit")};
  }
  // Left to watch it, the manager would drop it when its peer hangs up, and we would not hear of
  // that.
  auto told = tell(cat("FDSTORE=1\nFDPOLL=0\nFDNAME=", store_name(connection)), &descriptor);
  if (told) ++stored_;
  return told;
}

void Supervisor::remove(std::uint64_t connection) {
  to_remove_.push_back(connection);
  (void)pay();
}

Result<void> Supervisor::pay() {
  while (!to_remove_.empty()) {
    auto told = at_step("unstore", Bytes(0), [this] {
      return tell(cat("FDSTOREREMOVE=1\nFDNAME=", store_name(to_remove_.front())), nullptr);
    });
    if (!told) return told;
    to_remove_.pop_front();
    if (stored_ > 0) --stored_;
  }
  return {};
}

Result<void> Supervisor::tell(const std::string& state, const int* descriptor) {
  const int told =
      sd_pid_notify_with_fds(0, 0, state.c_str(), descriptor, descriptor == nullptr ? 0 : 1);
  if (told < 0) return system_error(-told, "the service manager", "cannot be told to keep a lease");
  if (++told_ >= kUnheard && Clock::now() >= wait_again_) {
    told_ = 0;
    // One that does not answer (it does not know barriers) is not waited for all the time.
    if (sd_notify_barrier(0, kHearingTimeoutUs) < 0) wait_again_ = Clock::now() + kUnansweredHolds;
  }
  return {};
}

}  // namespace carveout::daemon
