// The public interface, as a program uses it.

#include <carveout/carveout.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string_view>

#include "base/text.hpp"
#include "gpu/gpu.hpp"
#include "gpu/parts.hpp"

namespace carveout::test {
namespace {

constexpr Pattern kFirst(11), kSecond(12);

Error failure(std::string message) {
  return Error{Code::kProtocol, 0, "", std::move(message)};
}

std::string_view name_of(std::int32_t kind) {
  constexpr std::array<std::string_view, 3> kNames{"memfd", "dma-buf", "NVIDIA file"};
  return kNames.at(static_cast<std::size_t>(kind));
}

// The memory by the GPU or by the processor.
class Hand {
 public:
  Hand(const Gpu* gpu, const carveout_info_t& info) : gpu_(gpu), info_(info) {}

  [[nodiscard]] Result<void> write(Pattern pattern) const {
    if (gpu_ != nullptr) return gpu_->write(info_.device_pointer, Bytes(info_.bytes), pattern);
    write_by_processor(info_.host_pointer, Bytes(info_.bytes), pattern);
    return {};
  }
  [[nodiscard]] Result<void> expect(Pattern pattern) const {
    auto other = look(pattern);
    if (!other) return std::move(other).error();
    if (!*other) return {};
    return failure(cat("for the ", gpu_ != nullptr ? "GPU " : "processor ", **other));
  }

 private:
  [[nodiscard]] Result<std::optional<std::string>> look(Pattern pattern) const {
    const Bytes size(info_.bytes);
    if (gpu_ != nullptr) return gpu_->compare(info_.device_pointer, size, pattern);
    return compare_by_processor(info_.host_pointer, size, pattern);
  }

  const Gpu* gpu_;
  const carveout_info_t& info_;
};

Result<void> use(const Hand& writer, const Hand& reader) {
  for (const Pattern pattern : {kFirst, kSecond}) {
    if (auto written = writer.write(pattern); !written) return written;
    if (auto same = reader.expect(pattern); !same) return same;
  }
  return {};
}

// By all the pointers that there are: each writes, and the other reads.
Result<std::string> use_all(const carveout_info_t& info) {
  const Hand processor(nullptr, info);
  if (info.device_pointer == 0) {
    if (auto zero = processor.expect(Pattern::zero()); !zero) return std::move(zero).error();
    if (auto used = use(processor, processor); !used) return std::move(used).error();
    return std::string("zero, written and read by the processor");
  }
  const auto gpu = Gpu::open();
  if (!gpu) return gpu.error();
  const Hand device(&*gpu, info);
  if (auto zero = device.expect(Pattern::zero()); !zero) return std::move(zero).error();
  if (auto used = use(device, device); !used) return std::move(used).error();
  if (info.host_pointer == nullptr) return std::string("zero, written and read by the GPU");
  if (auto used = use(device, processor); !used) return std::move(used).error();
  if (auto used = use(processor, device); !used) return std::move(used).error();
  return std::string("zero, written and read by the GPU and the processor");
}

}  // namespace

Result<void> open_and_use(const std::string& kind) {
  carveout_t* memory = nullptr;
  carveout_error_t error;
  error.struct_size = sizeof error;
  const carveout_status_t status = carveout_open(nullptr, &memory, &error);
  if (status == CARVEOUT_OFF) return failure("CARVEOUT is not 1");
  if (status != CARVEOUT_OK) return Error{Code::kRefused, 0, "", error.message};
  std::unique_ptr<carveout_t, void (*)(carveout_t*)> owner(
      memory, [](carveout_t* handle) { carveout_close(handle, nullptr); });
  carveout_info_t info;
  info.struct_size = sizeof info;
  carveout_get_info(memory, &info);
  const auto used = use_all(info);
  if (!used) return used.error();
  if (name_of(info.kind) != kind) {
    return failure(cat("a ", name_of(info.kind), " instead of a ", kind));
  }
  const std::string why_not = *info.why_not != '\0' ? cat(" (", info.why_not, ")") : "";
  std::printf("worked by %s: %s%s\n", info.map_name, used->c_str(), why_not.c_str());
  if (carveout_close(owner.release(), &error) != CARVEOUT_OK) {
    return failure(cat("it could not be closed: ", error.message));
  }
  return {};
}

}  // namespace carveout::test
