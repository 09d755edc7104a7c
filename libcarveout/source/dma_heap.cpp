#include "source/dma_heap.hpp"

#include <fcntl.h>
#include <linux/dma-heap.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "source/available_memory.hpp"
#include "source/dma_buf.hpp"

namespace carveout {
namespace {

// The heaps that there are, for whoever has named one that there is not.
std::string names_of_heaps(const std::string& directory) {
  std::string text;
  for (const std::string& name : names_in(directory))
    text += cat(text.empty() ? "" : ", ", printable(name, 64));
  return text;
}

Error no_such_heap(const DmaHeapSettings& settings, const std::string& context) {
  const std::string names = names_of_heaps(settings.directory);
  if (names.empty()) {
    return {
        Code::kNotFound, ENOENT, context,
        "there are no dma-heaps on this machine: the kernel needs CONFIG_DMABUF_HEAPS, and a CMA "
        "or reserved region to make a heap of"};
  }
  return {Code::kNotFound, ENOENT, context, cat("no such heap; there are: ", names, " (--heap)")};
}

class DmaHeapSource final : public Source {
 public:
  DmaHeapSource(const DmaHeapSettings& settings, UniqueFd heap)
      : name_(settings.heap), heap_(std::move(heap)) {
    if (name_ == "system" || name_.starts_with("system-")) available_.emplace(settings.meminfo);
  }

  [[nodiscard]] Description describe() const override {
    return {.name = "dma-heap",
            .kind = DescriptorKind::kDmaBuf,
            .kernel_zeroes = true,
            .limit = std::nullopt,
            .ordinary_memory = available_.has_value(),
            .detail = cat("dma-bufs of the heap ", printable(name_, 64))};
  }

  Result<Buffer> allocate(Bytes size) override {
    const std::string context =
        cat("allocating ", format_bytes(size), " of the heap ", printable(name_, 64));
    if (size == Bytes(0) || Slices::holding(size).bytes() != size) {
      return Error{Code::kInvalid, 0, context,
                   "a slice is 2 MiB, and this is not a whole number of them"};
    }
    if (available_) {
      if (auto spared = available_->take(size); !spared) return spared.error();
    }
    dma_heap_allocation_data ask{};
    ask.len = size.count();
    ask.fd_flags = O_RDWR | O_CLOEXEC;
    int answer = -1;
    do {
      answer = ::ioctl(heap_.get(), DMA_HEAP_IOCTL_ALLOC, &ask);
    } while (answer != 0 && errno == EINTR);
    if (answer != 0) {
      if (errno == ENOMEM)
        return Error{Code::kExhausted, ENOMEM, context, "the heap has not enough"};
      return system_error(errno, context, "the heap refused (DMA_HEAP_IOCTL_ALLOC)");
    }
    UniqueFd buffer(static_cast<int>(ask.fd));
    const auto length = dma_buf::length(buffer.get());
    if (!length) return length.error();
    if (*length != size) {
      return Error{Code::kSystem, 0, context, cat("the heap gave ", length->count(), " bytes")};
    }
    dma_buf::name(buffer.get(), "carveout");
    return Buffer{std::move(buffer), size};
  }

  Result<UniqueFd> share(const Buffer& buffer) override {
    return duplicate(buffer.descriptor.get(), "dma-buf");
  }

  Result<void> scrub(Buffer& buffer) override {
    return dma_buf::zero(buffer.descriptor.get(), buffer.size);
  }

  std::optional<std::string> take_warning() override { return std::nullopt; }

 private:
  const std::string name_;
  UniqueFd heap_;
  std::optional<AvailableMemory> available_;  // for heaps without memory of their own
};

}  // namespace

Result<std::unique_ptr<Source>> open_dma_heap_source(const DmaHeapSettings& settings) {
  const std::string path = cat(settings.directory, "/", settings.heap);
  if (settings.heap.empty() || settings.heap.find('/') != std::string::npos) {
    return Error{Code::kInvalid, 0, cat("heap \"", printable(settings.heap, 64), "\""),
                 "is not the name of a heap (--heap)"};
  }
  const std::string context = printable(path, 200);
  UniqueFd heap(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!heap) {
    if (errno == ENOENT) return no_such_heap(settings, context);
    const bool denied = errno == EACCES || errno == EPERM;
    return system_error(errno, context,
                        denied ? "the heap may not be opened: run as root, or give the daemon's "
                                 "user the device"
                               : "the heap cannot be opened");
  }
  struct stat status {};
  if (::fstat(heap.get(), &status) != 0 || !S_ISCHR(status.st_mode)) {
    return Error{Code::kInvalid, 0, context, "is not a device"};
  }
  return std::unique_ptr<Source>(std::make_unique<DmaHeapSource>(settings, std::move(heap)));
}

}  // namespace carveout
