#include "engines/gpu_engine.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "engines/gpu.hpp"
#include "engines/gpu_bench.hpp"

namespace carveout::probe {
namespace {

constexpr int kNameLength = 128;
constexpr int kBusIdLength = 32;

// Of a call that fills in text; "" where it fails.
template <typename Function>
std::string text_of(const cuda::Context& context, const cuda::Entry<Function>& entry, int length) {
  std::array<char, kNameLength + 1> text{};
  auto* const get = context.driver()->find(entry);
  if (get == nullptr || get(text.data(), length, context.device()) != cuda::kSuccess) return "";
  return printable(text.data(), kNameLength);
}

// Of the loaded kernel module.
std::string module_version() {
  const auto text = read_text("/sys/module/nvidia/version", kNameLength);
  return text ? printable(text->substr(0, text->find('\n')), kNameLength) : "";
}

// What was allocated, until it is destroyed.
class Owner {
 public:
  Owner(std::shared_ptr<Gpu> gpu, cuda::Held<cuda::CUdeviceptr> memory)
      : gpu_(std::move(gpu)), memory_(std::move(memory)) {}
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  Owner(Owner&&) = delete;
  Owner& operator=(Owner&&) = delete;
  ~Owner() {
    cuda::Undone ignored;
    const cuda::Entered entered(gpu_->context(), ignored);
    memory_.give_back(ignored);
  }

 private:
  const std::shared_ptr<Gpu> gpu_;
  cuda::Held<cuda::CUdeviceptr> memory_;
};

class GpuEngine final : public Engine {
 public:
  GpuEngine(std::shared_ptr<Gpu> gpu, const std::string& nvml)
      : gpu_(std::move(gpu)),
        name_(text_of(gpu_->context(), cuda::kDeviceGetName, kNameLength)),
        nvml_(text_of(gpu_->context(), cuda::kDeviceGetPciBusId, kBusIdLength), nvml) {}

  [[nodiscard]] EngineKind kind() const override { return EngineKind::kGpu; }
  [[nodiscard]] std::string describe() const override {
    return cat(name_.empty() ? "a GPU" : name_, ", ", gpu_->kernels().multiprocessors(),
               " multiprocessors");
  }
  [[nodiscard]] std::vector<Row> rows() const override {
    return {Row::kReread,
            Row::kRead,
            Row::kWrite,
            Row::kDriverCopyInto,
            Row::kDriverCopyOutOf,
            Row::kCopyInto,
            Row::kCopyOutOf,
            Row::kGather,
            Row::kLoad};
  }
  void describe(Machine& machine) const override;
  [[nodiscard]] Bytes cache() const override;
  void note(Moment& moment) const override { nvml_.note(moment); }
  Result<Ordinary> ordinary(Bytes size, std::uint64_t like_pages_of) override;
  [[nodiscard]] Result<void> check_room(Bytes size) const override {
    return gpu_->check_room(size);
  }
  Result<std::unique_ptr<Bench>> bench(const Place& place) override;

 private:
  const std::shared_ptr<Gpu> gpu_;
  const std::string name_;
  const Nvml nvml_;
  std::uint64_t benches_ = 0;
};

void GpuEngine::describe(Machine& machine) const {
  const int version = gpu_->context().driver()->version();
  machine.gpu = name_;
  machine.driver = nvml_.driver_version();
  if (machine.driver.empty()) machine.driver = module_version();
  machine.cuda = cat(version / 1000, ".", version % 1000 / 10);
  if (cache().count() != 0) machine.cache_bytes = {cache().count()};
}

Bytes GpuEngine::cache() const {
  const cuda::Context& context = gpu_->context();
  auto* const get = context.driver()->find(cuda::kDeviceGetAttribute);
  int bytes = 0;
  if (get == nullptr || get(&bytes, cuda::kAttributeL2Bytes, context.device()) != cuda::kSuccess) {
    return {};
  }
  return Bytes(static_cast<std::uint64_t>(std::max(bytes, 0)));
}

Result<Engine::Ordinary> GpuEngine::ordinary(Bytes size, std::uint64_t) {
  const cuda::Entered entered(gpu_->context());
  if (!entered) return entered.error("ordinary memory of the GPU's");
  auto memory = gpu_->allocate(size, "ordinary memory of the GPU's");
  if (!memory) return std::move(memory).error();
  Ordinary ordinary;
  ordinary.place = {nullptr, memory->get<0>(), size};
  ordinary.owner = std::make_shared<Owner>(gpu_, *std::move(memory));
  ordinary.memory = "device memory by cuMemAlloc";
  return ordinary;
}

Result<std::unique_ptr<Bench>> GpuEngine::bench(const Place& place) {
  if (place.device == 0) {
    return Error{
        Code::kInvalid, 0, "the memory",
        "is not mapped for the GPU: map it in another way, or measure it with --engine cpu"};
  }
  if (place.device % cuda::kChaseLine != 0) {
    return Error{Code::kInvalid, 0, "the memory", "does not begin at a line of the GPU's caches"};
  }
  return std::unique_ptr<Bench>(
      std::make_unique<GpuBench>(gpu_, place.device, place.size, ++benches_));
}

}  // namespace

Result<std::unique_ptr<Engine>> open_gpu_engine(int device, const std::string& driver,
                                                const std::string& nvml) {
  auto gpu = Gpu::open(device, driver);
  if (!gpu) return std::move(gpu).error();
  return std::unique_ptr<Engine>(std::make_unique<GpuEngine>(*std::move(gpu), nvml));
}

}  // namespace carveout::probe
