// A plugin with the archive linked in. Its static object holds the memory, and is destroyed when
// the plugin is unloaded or the process ends.
#include <carveout/carveout.hpp>
#include <iostream>
#include <optional>

namespace {
std::optional<carveout::Carveout> held;
}  // namespace

extern "C" {
__attribute__((visibility("default"))) void* plugin_open() {
  try {
    held = carveout::Carveout::open_from_environment();
  } catch (const carveout::Failure& failure) {
    std::cout << failure.what() << '\n';
  }
  if (!held || held->device_pointer() == 0) return nullptr;
  return held->host_pointer();
}
__attribute__((visibility("default"))) void plugin_close() {
  held.reset();
}
}
