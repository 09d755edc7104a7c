#pragma once

// Places where the tests' build of the daemon can be made to fail or to die: before and after each
// step of a grant and of a release (tests/chaos/failpoint_test.cpp). In any other build there are
// none.

#include <string_view>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace carveout::daemon {

#ifdef CARVEOUT_FAILPOINTS
// CARVEOUT_FAILPOINT=STEP.before|after:fail|die:BYTES, once, at that step of a lease of that size.
// True: the step is to fail. "die" does not return.
bool fails_at(std::string_view step, std::string_view side, Bytes size);
#else
constexpr bool fails_at(std::string_view /*step*/, std::string_view /*side*/, Bytes /*size*/) {
  return false;
}
#endif

// The error of a step that fails as it was told to.
inline Error as_told() {
  return {Code::kSystem, 0, "failpoint", "fails as it was told to"};
}

// Runs one step, which answers a Result.
template <typename Run>
auto at_step(std::string_view step, Bytes size, Run run) -> decltype(run()) {
  if (fails_at(step, "before", size)) return as_told();
  auto result = run();
  if (fails_at(step, "after", size)) return as_told();
  return result;
}

}  // namespace carveout::daemon
