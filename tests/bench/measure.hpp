#pragma once

// What the benchmarks share: batches, processor time, medians with their range.

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace carveout::test {

using Clock = std::chrono::steady_clock;

// One batch of requests: how many, in how long, and the server's own processor time for it.
struct Batch {
  double per_second = 0;
  double cpu_us = 0;  // a request
};

// Of all threads of a process, to the nanosecond.
double cpu_seconds(pid_t pid);

// A kind of load on the server at a socket: makes `count` requests.
using Load = std::function<void(const std::string& socket, int count)>;

Batch run_batch(const Load& load, const std::string& socket, pid_t server, int count);

void connect_and_alloc(const std::string& socket, int count);

struct Spread {
  double median = 0, least = 0, most = 0;
};

Spread spread_of(std::vector<double> values);
void print(const char* row, const char* unit, const Spread& spread);

// Throws unless it is good.
void must(bool good, const char* what);

// Each process on a core of its own, so that the scheduler's choice is not what is measured.
void stay_on(pid_t pid, std::size_t core);

// As many descriptors as there may be, more where we may raise that: the daemon inherits
// our limit.
void raise_descriptor_limit();

}  // namespace carveout::test
