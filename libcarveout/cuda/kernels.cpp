#include "cuda/kernels.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace carveout::cuda {

// kernels/probe.ptx, put into a source file by the build.
extern const char* const kProbePtx;

namespace {

constexpr std::uint64_t kVector = 16;  // bytes that a thread loads at once
constexpr std::size_t kMostArguments = 5;

}  // namespace

const std::array<const char*, Kernels::kCount> Kernels::kNames{
    "carveout_read",    "carveout_gather", "carveout_write", "carveout_copy", "carveout_fill",
    "carveout_compare", "carveout_link",   "carveout_chase", "carveout_wait"};

Result<Kernels> Kernels::load(const Context& context) {
  const Driver& driver = *context.driver();
  Finder find(driver);
  auto* const load_data = find(kModuleLoadData);
  auto* const unload = find(kModuleUnload);
  auto* const get_function = find(kModuleGetFunction);
  auto* const get_attribute = find(kDeviceGetAttribute);
  Kernels kernels(context.driver(), find(kLaunchKernel));
  if (find.missing()) return *find.missing();
  CUmodule module = nullptr;
  if (const CUresult answer = load_data(&module, kProbePtx); answer != kSuccess) {
    return driver.failed(kModuleLoadData.name, answer, "the kernels that are measured with");
  }
  kernels.module_ = {context.driver(), kModuleUnload.name, unload, module};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const CUresult answer = get_function(&kernels.functions_[i], module, kNames[i]);
    if (answer != kSuccess) {
      return driver.failed(kModuleGetFunction.name, answer, cat("the kernel ", kNames[i]));
    }
  }
  int count = 0;
  const CUresult answer = get_attribute(&count, kAttributeMultiprocessors, context.device());
  if (answer != kSuccess) {
    return driver.failed(kDeviceGetAttribute.name, answer, "the number of multiprocessors");
  }
  kernels.multiprocessors_ = static_cast<unsigned>(std::max(count, 1));
  return kernels;
}

Result<void> Kernels::launch_words(Which which, unsigned blocks, unsigned threads,
                                   std::uint64_t* words, std::size_t count) const {
  std::array<void*, kMostArguments> places{};
  for (std::size_t i = 0; i < count; ++i)
    places[i] = &words[i];
  const CUresult answer =
      launch_(functions_[which], blocks, 1, 1, threads, 1, 1, 0, nullptr, places.data(), nullptr);
  if (answer == kSuccess) return {};
  return driver_->failed(kLaunchKernel.name, answer, cat("the kernel ", kNames[which]));
}

unsigned Kernels::grid() const {
  return multiprocessors_ * kBlocksAtOnce;
}

Result<void> Kernels::read(CUdeviceptr from, Bytes size, std::uint64_t passes,
                           CUdeviceptr sum) const {
  const std::uint64_t vectors = size.count() / kVector;
  // With whole passes a step, each thread would load one and the same vector all the time.
  unsigned blocks = grid();
  if (std::uint64_t{blocks} * kBlock % vectors == 0 && blocks > 1) --blocks;
  return launch(kRead, blocks, kBlock, from, vectors, passes, sum);
}

Result<void> Kernels::gather(CUdeviceptr from, CUdeviceptr offsets, std::uint64_t count,
                             CUdeviceptr sum) const {
  return launch(kGather, grid(), kBlock, from, offsets, count, sum);
}

Result<void> Kernels::write(CUdeviceptr to, Bytes size, std::uint64_t word) const {
  return launch(kWrite, grid(), kBlock, to, size.count() / kVector, word);
}

Result<void> Kernels::copy(CUdeviceptr to, CUdeviceptr from, Bytes size) const {
  return launch(kCopy, grid(), kBlock, to, from, size.count() / kVector);
}

Result<void> Kernels::fill(CUdeviceptr to, Bytes size, std::uint64_t seed) const {
  return launch(kFill, grid(), kBlock, to, size.count() / kVector, seed);
}

Result<void> Kernels::compare(CUdeviceptr from, Bytes size, std::uint64_t seed,
                              std::uint64_t stride, CUdeviceptr first) const {
  return launch(kCompare, grid(), kBlock, from, size.count() / kVector, seed, stride, first);
}

Result<void> Kernels::link(CUdeviceptr to, std::uint64_t lines, std::uint64_t seed) const {
  return launch(kLink, grid(), kBlock, to, lines, seed);
}

Result<void> Kernels::chase(CUdeviceptr from, std::uint64_t steps, CUdeviceptr end) const {
  return launch(kChase, 1, 1, from, steps, end);
}

Result<void> Kernels::wait(std::uint64_t nanoseconds) const {
  return launch(kWait, 1, 1, nanoseconds);
}

}  // namespace carveout::cuda
