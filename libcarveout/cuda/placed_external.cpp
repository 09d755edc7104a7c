// NVIDIA files and dma-bufs as external memory.

#include <sys/stat.h>

#include <utility>

#include "base/file.hpp"
#include "cuda/placed.hpp"

namespace carveout::cuda {
namespace {

// A descriptor given away to CUDA. Of an NVIDIA file it is CUDA's once the import has succeeded, as
// documented. Of a dma-buf nothing is documented: whoever is left with it closes it, lest the
// memory stay lent. (Where CUDA has closed it at once, the number may since be another descriptor
// of the very same dma-buf, and only of that: a program that opens one memory twice.)
class GivenAway {
 public:
  GivenAway() = default;
  GivenAway(int descriptor, DescriptorKind kind) : descriptor_(descriptor), kind_(kind) {
    known_ = ::fstat(descriptor, &status_) == 0;
  }
  // After the memory was destroyed.
  void close_if_left() const {
    if (kind_ != DescriptorKind::kDmaBuf || !known_) return;
    struct stat now {};
    if (::fstat(descriptor_, &now) != 0) return;
    if (now.st_dev == status_.st_dev && now.st_ino == status_.st_ino) UniqueFd left(descriptor_);
  }

 private:
  int descriptor_ = -1;
  DescriptorKind kind_ = DescriptorKind::kNvidiaFile;
  bool known_ = false;
  struct stat status_ {};
};

class External final : public Mapping::Placed {
 public:
  explicit External(Context context) : context_(std::move(context)) { device = context_.device(); }

  Result<void> place(const File& file, const std::string& what);

  void unmap(Undone& undone) override {
    undo_in(context_, undone, [&] { give_back(undone); });
  }

 private:
  Result<void> import(const File& file, decltype(kImportExternalMemory)::Type* call,
                      decltype(kDestroyExternalMemory)::Type* destroy, const std::string& what);
  void give_back(Undone& undone) {
    buffer_.give_back(undone);
    const bool imported = static_cast<bool>(memory_);
    Undone destroying;
    memory_.give_back(destroying);
    undone.note(destroying);
    // What the driver has not let go of may still be its own.
    const bool destroyed = !destroying.failed() && context_.driver()->usable();
    // In a forked child the driver has nothing.
    if (imported && (destroyed || context_.driver()->is_forked())) given_.close_if_left();
  }

  Context context_;
  GivenAway given_;
  Held<CUexternalMemory> memory_;
  Held<CUdeviceptr> buffer_;
};

Result<void> External::import(const File& file, decltype(kImportExternalMemory)::Type* call,
                              decltype(kDestroyExternalMemory)::Type* destroy,
                              const std::string& what) {
  auto copy = duplicate(file.descriptor, what);
  if (!copy) return std::move(copy).error();
  ExternalMemoryHandleDesc handle;
  handle.type = file.kind == DescriptorKind::kDmaBuf ? kExternalDmaBufFd : kExternalOpaqueFd;
  handle.handle.fd = copy->get();
  handle.size = file.size.count();
  const GivenAway given(copy->get(), file.kind);
  CUexternalMemory memory = nullptr;
  if (const CUresult answer = call(&memory, &handle); answer != kSuccess) {
    return context_.driver()->failed(kImportExternalMemory.name, answer, what);
  }
  (void)copy->release();
  given_ = given;
  memory_ = {context_.driver(), kDestroyExternalMemory.name, destroy, memory};
  return {};
}

Result<void> External::place(const File& file, const std::string& what) {
  const Driver& driver = *context_.driver();
  Finder find(driver);
  auto* const import_memory = find(kImportExternalMemory);
  auto* const get_buffer = find(kExternalMemoryGetMappedBuffer);
  auto* const destroy = find(kDestroyExternalMemory);
  auto* const free = find(kMemFree);
  if (find.missing()) return *find.missing();
  const Entered entered(context_);
  if (!entered) return entered.error(what);
  auto imported = import(file, import_memory, destroy, what);
  if (!imported) return imported;
  ExternalMemoryBufferDesc buffer;
  buffer.size = file.size.count();
  const CUresult answer = get_buffer(&device_pointer, memory_.get<0>(), &buffer);
  if (answer != kSuccess) {
    Undone ignored;
    give_back(ignored);
    return driver.failed(kExternalMemoryGetMappedBuffer.name, answer, what);
  }
  buffer_ = {context_.driver(), kMemFree.name, free, device_pointer};
  return {};
}

}  // namespace

PlacedOrError place_external(const Order& order) {
  auto context = open_context(order.settings);
  if (!context) return std::move(context).error();
  auto external = std::make_unique<External>(*std::move(context));
  if (auto placed = external->place(order.files.front(), order.what); !placed) {
    return std::move(placed).error();
  }
  return std::unique_ptr<Mapping::Placed>(std::move(external));
}

}  // namespace carveout::cuda
