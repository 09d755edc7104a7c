#pragma once

// What the tests in a guest share: the devices that tests/guest/run gives it.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/daemon_process.hpp"
#include "support/proc.hpp"

namespace carveout::test {

constexpr std::uint64_t kMib = 1 << 20;

// The CMA heap of the guest, by CARVEOUT_TEST_HEAP; empty: it has none.
[[nodiscard]] std::string cma_heap();

// A number of kB in /proc/meminfo, as bytes.
[[nodiscard]] std::uint64_t meminfo(const std::string& name);

// Of the daemon's status.
[[nodiscard]] std::uint64_t figure(const DaemonProcess& daemon, const std::string& name);
[[nodiscard]] std::uint64_t missing(const DaemonProcess& daemon);
[[nodiscard]] std::uint64_t largest(const DaemonProcess& daemon);

// What a newcomer that asks for so much is answered.
[[nodiscard]] std::string refusal(const DaemonProcess& daemon, std::uint64_t bytes);

enum class User { kRoot, kNobody };
// carveoutd with a key and sockets of its own, to its end.
[[nodiscard]] Outcome run_carveoutd(const std::vector<std::string>& options,
                                    User user = User::kRoot);
// ... which has to refuse to start.
[[nodiscard]] Outcome refuse(const std::vector<std::string>& options, User user = User::kRoot);

// A process that has inherited what is open here and does `body` with it: its exit code.
[[nodiscard]] int in_another_process(const std::function<bool()>& body);

}  // namespace carveout::test
