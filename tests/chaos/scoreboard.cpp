#include "chaos/scoreboard.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace carveout::chaos {

UniqueFd make_scoreboard() {
  UniqueFd memory(::memfd_create("scoreboard", 0));
  if (!memory || ::ftruncate(memory.get(), sizeof(Scoreboard)) != 0) {
    throw std::system_error(errno, std::generic_category(), "scoreboard");
  }
  return memory;
}

Scoreboard& map_scoreboard(int descriptor) {
  void* at = ::mmap(nullptr, sizeof(Scoreboard), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "scoreboard");
  return *static_cast<Scoreboard*>(at);  // zeroed pages are zeroed counters
}

}  // namespace carveout::chaos
