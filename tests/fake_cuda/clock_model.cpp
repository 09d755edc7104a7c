// The time that work would take on a made GPU: with the knob "model", events tell this instead of
// what the processor took. So what is said of figures can be tested, without a figure of anybody's:
// they are round numbers of nobody's GPU.

#include "state.hpp"

namespace carveout::fake_cuda {
namespace {

// Bytes a nanosecond are GB/s.
constexpr double kStream = 250;
constexpr double kWithinL2 = 1000;
// Reread by many at once, where L2 keeps none of it.
constexpr double kNotKept = 200;
constexpr double kMove = 125;  // one-way
constexpr double kLoadNs = 150;
constexpr double kLoadNotKeptNs = 400;

// Memory that is mapped as handles of the driver's is kept as the knob says; all other is.
bool is_kept(CUdeviceptr at) {
  const auto after = state().mapped.upper_bound(at);
  if (after == state().mapped.begin()) return true;
  const auto& [start, range] = *std::prev(after);
  return at >= start + range.size || knob("vmm-l2") != 0;
}

}  // namespace

void model_reading(CUdeviceptr from, std::size_t size, std::uint64_t passes) {
  const long kept = knob("kept") != 0 ? knob("kept") : knob("l2");
  const bool fits = size <= static_cast<std::size_t>(kept);
  const double rate = !fits ? kStream : is_kept(from) ? kWithinL2 : kNotKept;
  state().modelled_ns += static_cast<double>(size) * static_cast<double>(passes) / rate;
}

void model_moving(std::size_t size) {
  state().modelled_ns += static_cast<double>(size) / kMove;
}

void model_loads(CUdeviceptr from, std::uint64_t steps) {
  state().modelled_ns += static_cast<double>(steps) * (is_kept(from) ? kLoadNs : kLoadNotKeptNs);
}

}  // namespace carveout::fake_cuda
