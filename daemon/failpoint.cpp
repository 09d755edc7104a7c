// Only in the tests' build.
#include "failpoint.hpp"

#include <atomic>
#include <csignal>
#include <cstdlib>

#include "base/text.hpp"

namespace carveout::daemon {

bool fails_at(std::string_view step, std::string_view side, Bytes size) {
  static const char* const setting = std::getenv("CARVEOUT_FAILPOINT");  // NOLINT
  static std::atomic<bool> armed = setting != nullptr;
  if (!armed) return false;
  const std::string_view text(setting);
  const std::string place = cat(step, ".", side, ":");
  const bool dies = text == cat(place, "die:", size.count());
  if (!dies && text != cat(place, "fail:", size.count())) return false;
  if (!armed.exchange(false)) return false;
  if (dies) std::raise(SIGKILL);
  return true;
}

}  // namespace carveout::daemon
