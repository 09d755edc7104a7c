#include "client/device_allocator.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace carveout::client {

struct DeviceAllocator::Carved {
  Carved(Carveout opened, int its_device)
      : carveout(std::move(opened)),
        device(its_device),
        start(carveout.mapping().device_pointer()),
        arena(start, carveout.size()) {}

  [[nodiscard]] bool holds(cuda::CUdeviceptr pointer) const {
    return pointer >= start && pointer - start < carveout.size().count();
  }

  Carveout carveout;
  const int device;
  const cuda::CUdeviceptr start;
  arena::BestFit arena;
};

namespace {

Result<void> wait_for_device(const cuda::Context& context) {
  const std::string what = cat("waiting for device ", context.device());
  cuda::Finder find(*context.driver());
  auto* const synchronize = find(cuda::kCtxSynchronize);
  if (find.missing()) return *find.missing();
  const cuda::Entered entered(context);
  if (!entered) return entered.error(what);
  const cuda::CUresult answer = synchronize();
  if (answer == cuda::kSuccess) return {};
  return context.driver()->failed(cuda::kCtxSynchronize.name, answer, what);
}

}  // namespace

DeviceAllocator::DeviceAllocator(Lookup lookup, Machine machine)
    : lookup_(std::move(lookup)), machine_(std::move(machine)), process_(::getpid()) {}

DeviceAllocator::~DeviceAllocator() = default;

bool DeviceAllocator::is_forked() const {
  return ::getpid() != process_;
}

Result<const cuda::Context*> DeviceAllocator::primary(int device) {
  auto known = primaries_.find(device);
  if (known == primaries_.end()) {
    auto driver = cuda::Driver::load(machine_.cuda_library);
    if (!driver) return std::move(driver).error();
    auto context = cuda::Context::primary(*std::move(driver), device);
    if (!context) return std::move(context).error();
    known = primaries_.emplace(device, *std::move(context)).first;
  }
  return &std::as_const(known->second);
}

Result<bool> DeviceAllocator::open(int device) {
  if (is_forked()) return cuda::Driver::unusable();
  const std::lock_guard<std::mutex> lock(mutex_);
  return open_now(device);
}

Result<bool> DeviceAllocator::open_now(int device) {
  if (owned_ != nullptr) {
    if (owned_->device == device) return true;
    return Error{Code::kInvalid, 0, "the allocator",
                 cat("it is open for device ", owned_->device, " already, not ", device)};
  }
  tried_ = true;
  const auto opened = [&]() -> Result<bool> {
    const auto on = is_on(lookup_);
    if (!on || !*on) return on;
    const auto context = primary(device);
    if (!context) return context.error();
    // It is mapped in this one, whichever the caller's is.
    const cuda::Entered entered(**context);
    if (!entered) return entered.error(cat("CUDA device ", device));
    auto carveout = Carveout::open_as_set(lookup_, {.device = device, .machine = machine_});
    if (!carveout) return std::move(carveout).error();
    if (!*carveout) return false;
    owned_ = std::make_unique<Carved>(**std::move(carveout), device);
    carved_ = owned_.get();
    return true;
  }();
  problem_ = opened ? std::nullopt : std::optional<Error>(opened.error());
  return opened;
}

cuda::CUdeviceptr DeviceAllocator::carve(Carved& carved, std::size_t bytes) {
  const auto take = [&]() -> std::optional<Bytes> {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.reserve(carved.arena.statistics().pieces + 1);
    return carved.arena.take(Bytes(bytes));
  };
  auto offset = take();
  if (!offset) {
    take_waiting(carved);
    offset = take();
  }
  return offset ? carved.start + offset->count() : 0;
}

cuda::CUdeviceptr DeviceAllocator::allocate(std::size_t bytes, int device) {
  if (bytes == 0 || is_forked()) return 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!tried_) (void)open_now(device);
  }
  Carved* const carved = carved_;
  cuda::CUdeviceptr pointer = 0;
  if (carved != nullptr && carved->device == device) pointer = carve(*carved, bytes);
  if (pointer != 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++counted_.carved;
    return pointer;
  }
  const auto allocated = allocate_by_driver(bytes, device);
  const std::lock_guard<std::mutex> lock(mutex_);
  ++(allocated ? counted_.fell_back : counted_.failed);
  return allocated ? *allocated : 0;
}

Result<cuda::CUdeviceptr> DeviceAllocator::allocate_by_driver(std::size_t bytes, int device) {
  const auto context = [&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    return primary(device);
  }();
  if (!context) return context.error();
  const cuda::Driver& driver = *(*context)->driver();
  const std::string what = cat("allocating ", format_bytes(Bytes(bytes)));
  cuda::Finder find(driver);
  auto* const call = find(cuda::kMemAlloc);
  if (find.missing()) return *find.missing();
  const cuda::Entered entered(**context);
  if (!entered) return entered.error(what);
  cuda::CUdeviceptr pointer = 0;
  const cuda::CUresult answer = call(&pointer, bytes);
  if (answer == cuda::kSuccess) return pointer;
  return driver.failed(cuda::kMemAlloc.name, answer, what);
}

void DeviceAllocator::free(cuda::CUdeviceptr pointer, int device) {
  if (pointer == 0 || is_forked()) return;
  Carved* const carved = carved_;
  if (carved == nullptr || !carved->holds(pointer)) {
    const auto freed = free_by_driver(pointer, device);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!freed) ++counted_.refused;
    return;
  }
  const Bytes offset(pointer - carved->start);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool is_waiting = std::find(waiting_.begin(), waiting_.end(), offset) != waiting_.end();
    if (is_waiting || waiting_.size() == waiting_.capacity()) {  // more than were ever taken
      ++counted_.refused;
      return;
    }
    waiting_.push_back(offset);
  }
  take_waiting(*carved);
}

// What is waiting can be had again once the device has been waited for.
void DeviceAllocator::take_waiting(Carved& carved) {
  const cuda::Context* context = nullptr;
  std::uint64_t end = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (waiting_.empty()) return;
    end = taken_back_ + waiting_.size();
    context = *primary(carved.device);  // there since it was opened
  }
  if (!wait_for_device(*context)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  // Others may have been here meanwhile.
  for (; taken_back_ < end; ++taken_back_) {
    if (!carved.arena.give_back(waiting_.front())) ++counted_.refused;
    waiting_.erase(waiting_.begin());
  }
}

Result<void> DeviceAllocator::free_by_driver(cuda::CUdeviceptr pointer, int device) {
  const auto context = [&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    return primary(device);
  }();
  if (!context) return context.error();
  const cuda::Driver& driver = *(*context)->driver();
  const std::string what = "freeing memory";
  cuda::Finder find(driver);
  auto* const call = find(cuda::kMemFree);
  if (find.missing()) return *find.missing();
  const cuda::Entered entered(**context);
  if (!entered) return entered.error(what);
  const cuda::CUresult answer = call(pointer);
  if (answer == cuda::kSuccess) return {};
  return driver.failed(cuda::kMemFree.name, answer, what);
}

DeviceAllocator::State DeviceAllocator::state() const {
  State now;
  if (is_forked()) return now;
  const std::lock_guard<std::mutex> lock(mutex_);
  now = counted_;
  now.tried = tried_;
  now.problem = problem_;
  now.waiting = waiting_.size();
  if (owned_ != nullptr) {
    now.device = owned_->device;
    now.opened = &owned_->carveout;
    now.carveout = owned_->arena.statistics();
  }
  return now;
}

void DeviceAllocator::abandon_in_child() noexcept {
  Carved* const carved = carved_;
  if (carved != nullptr) carved->carveout.abandon_in_child();
}

}  // namespace carveout::client
