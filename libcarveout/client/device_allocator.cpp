#include "client/device_allocator.hpp"

#include <unistd.h>

#include <algorithm>
#include <new>
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

// In that context; false where the driver has no such call, or it fails. Needs no memory.
template <typename Function, typename... Arguments>
bool call_in(const cuda::Context& context, const cuda::Entry<Function>& entry,
             Arguments... arguments) {
  auto* const call = context.driver()->find(entry);
  if (call == nullptr) return false;
  const cuda::Entered entered(context);
  return entered && call(arguments...) == cuda::kSuccess;
}

}  // namespace

DeviceAllocator::DeviceAllocator(const Lookup& lookup, const Machine& machine)
    : library_(machine.cuda_library),
      way_{[lookup] { return carveout::client::is_on(lookup); },
           [lookup, machine](int device) {
             return Carveout::open_as_set(lookup, {.device = device, .machine = machine});
           }},
      process_(::getpid()) {}

DeviceAllocator::~DeviceAllocator() = default;

bool DeviceAllocator::is_forked() const {
  return forked_ || ::getpid() != process_;
}

Result<const cuda::Context*> DeviceAllocator::primary(int device) {
  if (const cuda::Context* const known = known_primary(device)) return known;
  auto driver = cuda::Driver::load(library_);
  if (!driver) return std::move(driver).error();
  auto context = cuda::Context::primary(*std::move(driver), device);
  if (!context) return std::move(context).error();
  return &std::as_const(primaries_.emplace(device, *std::move(context)).first->second);
}

const cuda::Context* DeviceAllocator::known_primary(int device) const noexcept {
  const auto known = primaries_.find(device);
  return known != primaries_.end() && known->second.driver()->usable() ? &known->second : nullptr;
}

Result<bool> DeviceAllocator::open(int device) {
  return open(device, way_);
}

Result<bool> DeviceAllocator::open(int device, const Way& way) {
  if (is_forked()) return cuda::Driver::unusable();
  const std::lock_guard<std::mutex> lock(mutex_);
  return open_now(device, way);
}

Result<bool> DeviceAllocator::open_now(int device, const Way& way) {
  const std::string what = cat("CUDA device ", device);
  if (device < 0) return Error{Code::kInvalid, 0, what, "is none: they are numbered from 0"};
  if (owned_ != nullptr) {
    if (owned_->device == device) return true;
    return Error{Code::kInvalid, 0, what,
                 cat("the carveout is open for device ", owned_->device, " already")};
  }
  bool tried = true;
  auto opened = [&]() -> Result<bool> {
    auto on = way.is_on();
    if (!on || !*on) return on;
    const auto context = primary(device);
    tried = static_cast<bool>(context);
    if (!context) return context.error();
    // It is mapped in this one, whichever the caller's is.
    const cuda::Entered entered(**context);
    if (!entered) return entered.error(what);
    auto carveout = way.open(device);
    if (!carveout) return std::move(carveout).error();
    if (!*carveout) return false;
    owned_ = std::make_unique<Carved>(**std::move(carveout), device);
    carved_ = owned_.get();
    return true;
  }();
  problem_ = opened ? std::nullopt : std::optional<Error>(opened.error());
  tried_ = tried_ || tried;  // at last: without memory for that it was not
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
  cuda::CUdeviceptr pointer = 0;
  std::uint64_t State::*outcome = &State::failed;
  try {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!tried_) (void)open_now(device, way_);
    }
    Carved* const carved = carved_;
    if (carved != nullptr && carved->device == device) pointer = carve(*carved, bytes);
    if (pointer != 0) {
      outcome = &State::carved;
    } else {
      pointer = allocate_by_driver(bytes, device);
      if (pointer != 0) outcome = &State::fell_back;
    }
  } catch (const std::bad_alloc&) {  // of this process's heap: nothing was taken
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  ++(counted_.*outcome);
  return pointer;
}

cuda::CUdeviceptr DeviceAllocator::allocate_by_driver(std::size_t bytes, int device) {
  std::map<cuda::CUdeviceptr, int> given{{0, device}};  // so that nothing fails once it is given
  const auto context = [&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    return primary(device);
  }();
  cuda::CUdeviceptr pointer = 0;
  if (!context || !call_in(**context, cuda::kMemAlloc, &pointer, bytes)) return 0;
  auto entry = given.extract(given.begin());
  entry.key() = pointer;
  const std::lock_guard<std::mutex> lock(mutex_);
  // Somebody else may have freed it, past us.
  const auto entered = by_driver_.insert(std::move(entry));
  entered.position->second = device;
  return pointer;
}

void DeviceAllocator::free(cuda::CUdeviceptr pointer) noexcept {
  if (pointer == 0 || is_forked()) return;
  Carved* const carved = carved_;
  if (carved == nullptr || !carved->holds(pointer)) {
    const bool freed = free_by_driver(pointer);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!freed) ++counted_.refused;
    return;
  }
  const Bytes offset(pointer - carved->start);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // What is no piece now may be one, and another's, when the device has been waited for.
    const bool is_waiting = std::find(waiting_.begin(), waiting_.end(), offset) != waiting_.end();
    if (is_waiting || !carved->arena.is_taken(offset)) {
      ++counted_.refused;
      return;
    }
    waiting_.push_back(offset);  // there is room: see carve()
  }
  take_waiting(*carved);
}

// What is waiting can be had again once the device has been waited for.
void DeviceAllocator::take_waiting(Carved& carved) noexcept {
  const cuda::Context* context = nullptr;
  std::uint64_t end = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (waiting_.empty()) return;
    end = taken_back_ + waiting_.size();
    context = known_primary(carved.device);
  }
  if (context == nullptr || !call_in(*context, cuda::kCtxSynchronize)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  // Others may have been here meanwhile.
  for (; taken_back_ < end; ++taken_back_) {
    carved.arena.give_back(waiting_.front());
    waiting_.erase(waiting_.begin());
  }
}

bool DeviceAllocator::free_by_driver(cuda::CUdeviceptr pointer) noexcept {
  const cuda::Context* context = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto given = by_driver_.find(pointer);
    if (given == by_driver_.end()) return false;
    context = known_primary(given->second);
    by_driver_.erase(given);
  }
  return context != nullptr && call_in(*context, cuda::kMemFree, pointer);
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

void DeviceAllocator::start_in_child() noexcept {
  forked_ = true;
  Carved* const carved = carved_;
  if (carved != nullptr) carved->carveout.abandon_in_child();
  // Locked: by a thread that is not here.
  if (mutex_.try_lock()) {
    if (primaries_.empty()) {
      process_ = ::getpid();
      forked_ = false;
      tried_ = false;
      problem_.reset();
      counted_ = {};
    }
    mutex_.unlock();
  }
}

}  // namespace carveout::client
