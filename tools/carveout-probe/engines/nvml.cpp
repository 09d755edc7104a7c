#include "engines/nvml.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <set>
#include <vector>

#include "base/text.hpp"
#include "engines/nvml_abi.hpp"

namespace carveout::probe {
namespace {

constexpr std::size_t kProcesses = 64;  // at first

}  // namespace

struct Nvml::Library {
  explicit Library(const std::string& name) : file(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  Library(Library&&) = delete;
  Library& operator=(Library&&) = delete;
  ~Library() {
    auto* const shutdown = find(nvml::kShutdown);
    if (started && shutdown != nullptr) (void)shutdown();
    if (file != nullptr) ::dlclose(file);
  }

  template <typename Function>
  [[nodiscard]] Function* find(const nvml::Symbol<Function>& symbol) const {
    return file == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(file, symbol.name));
  }
  bool start(const std::string& pci_bus_id) {
    auto* const init = find(nvml::kInit);
    auto* const get_device = find(nvml::kDeviceByBusId);
    if (init == nullptr || get_device == nullptr) return false;
    started = init() == nvml::kSuccess;
    return started && get_device(pci_bus_id.c_str(), &device) == nvml::kSuccess;
  }
  template <typename Function>
  [[nodiscard]] std::optional<unsigned> ask(const nvml::Symbol<Function>& symbol, int which) const {
    auto* const get = find(symbol);
    unsigned value = 0;
    if (get == nullptr || get(device, which, &value) != nvml::kSuccess) return std::nullopt;
    return value;
  }
  [[nodiscard]] std::optional<std::set<unsigned>> pids(
      const nvml::Symbol<nvml::ListProcesses>& symbol) const {
    auto* const get = find(symbol);
    if (get == nullptr) return std::nullopt;
    std::vector<nvml::ProcessInfo> processes(kProcesses);
    auto count = static_cast<unsigned>(processes.size());
    nvml::Return answer = get(device, &count, processes.data());
    if (answer == nvml::kInsufficientSize) {
      processes.resize(count + kProcesses);  // with room for those that come meanwhile
      count = static_cast<unsigned>(processes.size());
      answer = get(device, &count, processes.data());
    }
    if (answer != nvml::kSuccess) return std::nullopt;
    processes.resize(count);
    std::set<unsigned> all;
    for (const nvml::ProcessInfo& process : processes)
      all.insert(process.pid);
    return all;
  }
  [[nodiscard]] std::optional<unsigned> other_processes() const {
    std::optional<std::set<unsigned>> all = pids(nvml::kComputing);
    if (!all) return std::nullopt;
    // A desktop draws. Not every driver and GPU tells of that.
    if (auto drawing = pids(nvml::kDrawing)) all->merge(*drawing);
    all->erase(static_cast<unsigned>(::getpid()));
    return static_cast<unsigned>(all->size());
  }

  void* const file;
  bool started = false;
  nvml::Device device = nullptr;
};

Nvml::Nvml(const std::string& pci_bus_id, const std::string& library)
    : library_(std::make_unique<Library>(library)) {
  if (!library_->start(pci_bus_id)) library_.reset();
}

Nvml::~Nvml() = default;

std::string Nvml::driver_version() const {
  std::array<char, nvml::kVersionLength + 1> text{};
  auto* const get = library_ ? library_->find(nvml::kDriverVersion) : nullptr;
  if (get == nullptr || get(text.data(), nvml::kVersionLength) != nvml::kSuccess) return "";
  return printable(text.data(), nvml::kVersionLength);
}

void Nvml::note(Moment& moment) const {
  if (!library_) return;
  moment.sm_mhz = library_->ask(nvml::kClock, nvml::kClockSm);
  moment.memory_mhz = library_->ask(nvml::kClock, nvml::kClockMemory);
  moment.celsius = library_->ask(nvml::kTemperature, nvml::kTemperatureGpu);
  moment.other_processes = library_->other_processes();
}

}  // namespace carveout::probe
