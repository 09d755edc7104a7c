#include "engines/loss_guard.hpp"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <csignal>
#include <utility>

namespace carveout::probe {
namespace {

// What a signal handler may look at.
struct Slot {
  std::atomic<bool> is_taken{false};
  std::atomic<std::uintptr_t> begin{0};  // 0: nothing is guarded
  std::atomic<std::uintptr_t> size{0};
  std::atomic<bool> is_lost{false};
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free &&
              std::atomic<bool>::is_always_lock_free);
std::array<Slot, LossGuard::kMostGuards> g_slots;

// Of several threads that are there each comes here, and finds it done or does it again.
void replace(int /*signal*/, siginfo_t* about, void* /*context*/) {
  const auto fault = reinterpret_cast<std::uintptr_t>(about->si_addr);
  for (Slot& slot : g_slots) {
    const std::uintptr_t begin = slot.begin;
    if (begin == 0 || fault < begin || fault - begin >= slot.size) continue;
    slot.is_lost = true;
    void* const at = reinterpret_cast<void*>(begin);  // NOLINT(performance-no-int-to-ptr)
    if (::mmap(at, slot.size, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED) {
      return;
    }
  }
  // Once more, and this time it ends the process.
  ::signal(SIGBUS, SIG_DFL);
}

void listen() {
  struct sigaction action {};
  action.sa_sigaction = replace;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

LossGuard::LossGuard(void* at, Bytes size) {
  if (at == nullptr) return;
  listen();
  for (slot_ = 0; slot_ < kMostGuards; ++slot_) {
    if (!g_slots[slot_].is_taken.exchange(true)) break;
  }
  if (slot_ == kMostGuards) return;
  g_slots[slot_].is_lost = false;
  g_slots[slot_].size = size.count();
  g_slots[slot_].begin = reinterpret_cast<std::uintptr_t>(at);
}

LossGuard::LossGuard(LossGuard&& other) noexcept : slot_(std::exchange(other.slot_, kMostGuards)) {}

LossGuard::~LossGuard() {
  if (slot_ == kMostGuards) return;
  g_slots[slot_].begin = 0;
  g_slots[slot_].is_taken = false;
}

bool LossGuard::is_lost() const {
  return slot_ != kMostGuards && g_slots[slot_].is_lost;
}

}  // namespace carveout::probe
