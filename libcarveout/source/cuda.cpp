#include "source/cuda.hpp"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"

namespace carveout {
namespace {

using cuda::CUresult;
using Allocation = cuda::Held<cuda::CUmemGenericAllocationHandle>;

struct Calls {
  decltype(cuda::kMemCreate)::Type* create;
  decltype(cuda::kMemRelease)::Type* release;
  decltype(cuda::kMemExport)::Type* export_memory;
  decltype(cuda::kMemsetD8)::Type* set;
  decltype(cuda::kCtxSynchronize)::Type* synchronize;
};

class CudaSource final : public Source {
 public:
  CudaSource(cuda::Context context, const Calls& calls, std::string detail)
      : context_(std::move(context)), calls_(calls), detail_(std::move(detail)) {}

  [[nodiscard]] Description describe() const override {
    return {.name = "cuda",
            .kind = DescriptorKind::kNvidiaFile,
            .kernel_zeroes = false,
            .limit = std::nullopt,
            .detail = detail_};
  }

  Result<Buffer> allocate(Bytes size) override {
    const std::string what = cat("allocating ", format_bytes(size));
    if (size == Bytes(0) || Slices::holding(size).bytes() != size) {
      return Error{Code::kInvalid, 0, what,
                   "a slice is 2 MiB, and this is not a whole number of them"};
    }
    const cuda::Entered entered(context_);
    if (!entered) return entered.error(what);
    const auto properties = cuda::shareable_memory(context_.device());
    cuda::CUmemGenericAllocationHandle handle = 0;
    const CUresult answer = calls_.create(&handle, size.count(), &properties, 0);
    if (answer != cuda::kSuccess) return failed(cuda::kMemCreate.name, answer, what);
    auto file = export_memory(hold(handle), what);
    if (!file) return std::move(file).error();
    return Buffer{*std::move(file), size};
  }

  // Whether the driver exports once more what it has imported is not documented.
  Result<UniqueFd> share(const Buffer& buffer) override {
    return duplicate(buffer.descriptor.get(), cat("sharing ", format_bytes(buffer.size)));
  }

  Result<void> scrub(Buffer& buffer) override {
    const std::string what = cat("scrubbing ", format_bytes(buffer.size));
    const cuda::Entered entered(context_);
    if (!entered) return entered.error(what);
    const cuda::VirtualRange::Piece piece{buffer.descriptor.get(), buffer.size};
    auto range = cuda::VirtualRange::map(context_, {&piece, 1}, what);
    if (!range) return std::move(range).error();
    CUresult answer = calls_.set(range->address(), 0, buffer.size.count());
    if (answer != cuda::kSuccess) return failed(cuda::kMemsetD8.name, answer, what);
    answer = calls_.synchronize();
    if (answer != cuda::kSuccess) return failed(cuda::kCtxSynchronize.name, answer, what);
    return {};
  }

  std::optional<std::string> take_warning() override { return std::nullopt; }

 private:
  Allocation hold(cuda::CUmemGenericAllocationHandle handle) const {
    return {context_.driver(), cuda::kMemRelease.name, calls_.release, handle};
  }

  Result<UniqueFd> export_memory(const Allocation& memory, const std::string& what) const {
    int descriptor = -1;
    const CUresult answer =
        calls_.export_memory(&descriptor, memory.get<0>(), cuda::kHandlePosixDescriptor, 0);
    if (answer != cuda::kSuccess) return failed(cuda::kMemExport.name, answer, what);
    UniqueFd file(descriptor);
    // Whether the driver does so is not documented.
    if (::fcntl(file.get(), F_SETFD, FD_CLOEXEC) != 0) {
      return system_error(errno, what, "the exported descriptor cannot be closed on exec");
    }
    return file;
  }

  [[nodiscard]] Error failed(const char* call, CUresult answer, const std::string& what) const {
    // The driver does not tell when it only lacked a descriptor.
    if (answer != cuda::kOutOfMemory) {
      const UniqueFd one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!one) return system_error(errno, what, cat(call, " failed: no descriptor can be opened"));
    }
    return context_.driver()->failed(call, answer, what);
  }

  cuda::Context context_;
  const Calls calls_;
  const std::string detail_;
};

// That the device makes memory of whole slices, and exports it.
Result<void> check(const cuda::Context& context, const std::string& what) {
  const cuda::Driver& driver = *context.driver();
  cuda::Finder find(driver);
  auto* const get = find(cuda::kDeviceGetAttribute);
  auto* const get_granularity = find(cuda::kMemGetGranularity);
  if (find.missing()) return *find.missing();
  for (const int attribute : {cuda::kAttributeVirtualMemory, cuda::kAttributePosixDescriptor}) {
    int has = 0;
    const CUresult answer = get(&has, attribute, context.device());
    if (answer != cuda::kSuccess) {
      return driver.failed(cuda::kDeviceGetAttribute.name, answer, what);
    }
    if (has == 0) {
      return Error{Code::kInvalid, 0, what,
                   attribute == cuda::kAttributeVirtualMemory
                       ? "the device has no virtual memory management"
                       : "the device's memory cannot be exported as a file"};
    }
  }
  const auto properties = cuda::shareable_memory(context.device());
  std::size_t granularity = 0;
  const CUresult answer = get_granularity(&granularity, &properties, cuda::kGranularityMinimum);
  if (answer != cuda::kSuccess) return driver.failed(cuda::kMemGetGranularity.name, answer, what);
  if (granularity == 0 || kSliceBytes.count() % granularity != 0) {
    return Error{Code::kInvalid, 0, what,
                 cat("memory comes in pages of ", format_bytes(Bytes(granularity)),
                     ", of which a slice (2 MiB) is no whole number")};
  }
  return {};
}

std::string name_of_device(const cuda::Context& context) {
  std::array<char, 128> name{};
  auto* const get = context.driver()->find(cuda::kDeviceGetName);
  constexpr int kRoom = 127;  // whatever the driver thinks of the last byte
  if (get == nullptr || get(name.data(), kRoom, context.device()) != cuda::kSuccess) {
    return "of no name";
  }
  return printable(name.data(), name.size());
}

}  // namespace

Result<std::unique_ptr<Source>> open_cuda_source(const CudaSettings& settings) {
  auto driver = cuda::Driver::load(settings.library);
  if (!driver) return std::move(driver).error();
  auto context = cuda::Context::primary(*driver, settings.device);
  if (!context) return std::move(context).error();
  const std::string what = cat("CUDA device ", settings.device);
  cuda::Finder find(**driver);
  const Calls calls{find(cuda::kMemCreate), find(cuda::kMemRelease), find(cuda::kMemExport),
                    find(cuda::kMemsetD8), find(cuda::kCtxSynchronize)};
  (void)find(cuda::kMemImport);  // what scrubbing begins with
  if (find.missing()) return *find.missing();
  if (auto checked = check(*context, what); !checked) return std::move(checked).error();
  std::string detail = cat("memory of ", what, " (", name_of_device(*context), ")");
  return std::unique_ptr<Source>(
      std::make_unique<CudaSource>(*std::move(context), calls, std::move(detail)));
}

}  // namespace carveout
