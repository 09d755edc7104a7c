// As ../consumer.h, in C++.
#include <algorithm>
#include <carveout/carveout.hpp>
#include <iostream>

namespace {

int use_memory(carveout::Carveout memory) {
  auto* const bytes = static_cast<unsigned char*>(memory.host_pointer());
  const bool lent = memory.info().source == CARVEOUT_SOURCE_DAEMON;
  if (bytes == nullptr || (memory.watch_fd() >= 0) != lent || memory.is_lender_gone()) return 1;
  const bool zero = std::all_of(bytes, bytes + memory.bytes(), [](auto byte) { return byte == 0; });
  std::fill(bytes, bytes + memory.bytes(), static_cast<unsigned char>(1));
  std::cout << memory.bytes() << " bytes of " << memory.info().source_name << " by "
            << memory.info().map_name << (zero ? ", all zero\n" : ", not zero\n");
  memory.close();
  return memory.is_open() ? 1 : 0;
}

}  // namespace

int main() try {
  auto memory = carveout::Carveout::open_from_environment();
  if (memory) return use_memory(*std::move(memory));
  std::cout << "off\n";
  return 0;
} catch (const carveout::Failure& failure) {
  std::cout << "refused: " << carveout_status_name(failure.status()) << " (" << failure.setting()
            << ") " << failure.what() << '\n';
  return 0;
}
