#include "engines/gpu.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/text.hpp"
#include "engines/room.hpp"

namespace carveout::probe {
namespace {

using cuda::CUdeviceptr;
using cuda::CUresult;
using cuda::kSuccess;

// Of our own: the word, and two pieces that the kernels are tried on.
constexpr Bytes kPiece = kib(4);
constexpr Bytes kOwn = kib(12);
// What is waited at most for what is timed to be queued.
constexpr std::uint64_t kMostQueueingNs = 10'000'000;
constexpr double kNsOfMs = 1e6;
constexpr std::uint64_t kSpanSeed = 0x5370616E;

}  // namespace

Result<std::shared_ptr<Gpu>> Gpu::open(int device, const std::string& library) {
  auto driver = cuda::Driver::load(library);
  if (!driver) return std::move(driver).error();
  auto context = cuda::Context::primary(*driver, device);
  if (!context) return std::move(context).error();
  std::shared_ptr<Gpu> gpu(new Gpu(*std::move(context)));
  const cuda::Entered entered(gpu->context_);
  if (!entered) return entered.error(cat("CUDA device ", device));
  if (auto started = gpu->start(); !started) return std::move(started).error();
  return gpu;
}

Gpu::~Gpu() {
  cuda::Undone ignored;
  {
    const cuda::Entered entered(context_, ignored);
    for (auto* const memory : {&spans_, &scratch_, &own_})
      memory->give_back(ignored);
    for (auto* const event : {&end_, &begin_})
      event->give_back(ignored);
    if (kernels_) kernels_->unload(ignored);
  }
  context_.give_back(ignored);
}

Result<void> Gpu::start() {
  if (auto found = find_calls(); !found) return found;
  int integrated = 0;
  auto told = done(cuda::kDeviceGetAttribute.name,
                   ask_(&integrated, cuda::kAttributeIntegrated, context_.device()));
  if (!told) return told;
  is_integrated_ = integrated != 0;
  auto kernels = cuda::Kernels::load(context_);
  if (!kernels) return std::move(kernels).error();
  kernels_.emplace(*std::move(kernels));
  if (auto made = make_own(); !made) return made;
  auto warm = warm_up();
  if (!warm) settle();
  return warm;
}

Result<void> Gpu::find_calls() {
  cuda::Finder find(*context_.driver());
  ask_ = find(cuda::kDeviceGetAttribute);
  allocate_ = find(cuda::kMemAlloc);
  free_ = find(cuda::kMemFree);
  set_ = find(cuda::kMemsetD8);
  copy_in_ = find(cuda::kMemcpyHtoD);
  copy_out_ = find(cuda::kMemcpyDtoH);
  copy_inside_ = find(cuda::kMemcpyDtoDAsync);
  create_event_ = find(cuda::kEventCreate);
  destroy_event_ = find(cuda::kEventDestroy);
  record_ = find(cuda::kEventRecord);
  wait_for_ = find(cuda::kEventSynchronize);
  has_passed_ = find(cuda::kEventQuery);
  elapsed_ = find(cuda::kEventElapsedTime);
  synchronize_ = find(cuda::kCtxSynchronize);
  if (find.missing()) return *find.missing();
  return {};
}

Result<void> Gpu::make_own() {
  auto own = allocate(kOwn, "memory to check with");
  if (!own) return std::move(own).error();
  own_ = *std::move(own);
  for (auto* const event : {&begin_, &end_}) {
    cuda::CUevent made = nullptr;
    if (auto created = done(cuda::kEventCreate.name, create_event_(&made, 0)); !created) {
      return created;
    }
    *event = {context_.driver(), cuda::kEventDestroy.name, destroy_event_, made};
  }
  return {};
}

// Each kernel once: drivers may not bring one to the GPU before it is launched.
Result<void> Gpu::warm_up() const {
  const CUdeviceptr one = word() + kPiece.count();
  const CUdeviceptr other = one + kPiece.count();
  if (auto set = set_word(0); !set) return set;
  const Result<void> launched[] = {kernels_->fill(one, kPiece, 0),
                                   kernels_->read(one, kPiece, 1, word()),
                                   kernels_->write(other, kPiece, 1),
                                   kernels_->copy(other, one, kPiece),
                                   kernels_->gather(one, other, 0, word()),
                                   kernels_->compare(one, kPiece, 0, 1, word()),
                                   kernels_->link(one, 1, 0),
                                   kernels_->chase(one, 1, word()),
                                   kernels_->wait(0)};
  for (const Result<void>& one_launch : launched) {
    if (!one_launch) return one_launch;
  }
  return done(cuda::kCtxSynchronize.name, synchronize_());
}

Result<void> Gpu::done(const char* call, CUresult answer) const {
  if (answer == kSuccess) return {};
  return context_.driver()->failed(call, answer, "the GPU's work");
}

Result<void> Gpu::check_room(Bytes size) const {
  return is_integrated_ ? probe::check_room(size) : Result<void>();
}

Result<cuda::Held<CUdeviceptr>> Gpu::allocate(Bytes size, std::string what) const {
  if (auto room = check_room(size); !room) return std::move(room).error();
  CUdeviceptr start = 0;
  const CUresult answer = allocate_(&start, size.count());
  if (answer != kSuccess) {
    what += cat(" (", format_bytes(size), ")");
    return context_.driver()->failed(cuda::kMemAlloc.name, answer, std::move(what));
  }
  return cuda::Held<CUdeviceptr>(context_.driver(), cuda::kMemFree.name, free_, start);
}

Result<double> Gpu::time(const std::function<Result<void>()>& queue) {
  // While the GPU waits, all of it is queued: nothing of the processor's is in the time.
  if (auto waits = kernels_->wait(queueing_ns_); !waits) return std::move(waits).error();
  const auto record = [this](const cuda::Held<cuda::CUevent>& event) {
    return done(cuda::kEventRecord.name, record_(event.get<0>(), nullptr));
  };
  if (auto begun = record(begin_); !begun) return std::move(begun).error();
  if (auto queued = queue(); !queued) return std::move(queued).error();
  if (auto ended = record(end_); !ended) return std::move(ended).error();
  if (auto allowed = allow_for_queueing(); !allowed) return std::move(allowed).error();
  auto waited = done(cuda::kEventSynchronize.name, wait_for_(end_.get<0>()));
  if (!waited) return std::move(waited).error();
  float milliseconds = 0;
  const CUresult answer = elapsed_(&milliseconds, begin_.get<0>(), end_.get<0>());
  if (auto told = done(cuda::kEventElapsedTime.name, answer); !told) {
    return std::move(told).error();
  }
  if (!(milliseconds > 0)) {
    return Error{Code::kSystem, 0, "the GPU's work",
                 "took no time by the driver's events: it cannot be measured with this driver"};
  }
  return static_cast<double>(milliseconds) * kNsOfMs;
}

// Where the GPU has begun before all was queued, a part of the time may be the processor's. A
// median bears that once; a host or a driver that is always so late is waited for longer.
Result<void> Gpu::allow_for_queueing() {
  const CUresult answer = has_passed_(begin_.get<0>());
  if (answer == cuda::kNotReady) return {};
  if (answer == kSuccess) queueing_ns_ = std::min(2 * queueing_ns_, kMostQueueingNs);
  return done(cuda::kEventQuery.name, answer);
}

Result<void> Gpu::set_word(unsigned char byte) const {
  return done(cuda::kMemsetD8.name, set_(word(), byte, sizeof(std::uint64_t)));
}

Result<std::uint64_t> Gpu::fetch(CUdeviceptr from) const {
  std::uint64_t value = 0;
  auto copied = done(cuda::kMemcpyDtoH.name, copy_out_(&value, from, sizeof value));
  if (!copied) return std::move(copied).error();
  return value;
}

Result<void> Gpu::copy_by_driver(CUdeviceptr to, CUdeviceptr from, Bytes size) const {
  return done(cuda::kMemcpyDtoDAsync.name, copy_inside_(to, from, size.count(), nullptr));
}

Result<CUdeviceptr> Gpu::scratch(Bytes size) {
  if (scratch_size_ >= size) return scratch_.get<0>();
  scratch_content_ = {};
  scratch_size_ = {};
  // The smaller one first, so that there is room.
  cuda::Undone undone;
  scratch_.give_back(undone);
  if (undone.failed()) return undone.error("memory to copy from and to");
  auto memory = allocate(size, "memory to copy from and to");
  if (!memory) return std::move(memory).error();
  scratch_ = *std::move(memory);
  scratch_size_ = size;
  return scratch_.get<0>();
}

Result<CUdeviceptr> Gpu::shuffled_spans(std::uint64_t count) {
  if (span_count_ == count) return spans_.get<0>();
  span_count_ = 0;
  cuda::Undone undone;
  spans_.give_back(undone);
  if (undone.failed()) return undone.error("the list of what is gathered");
  std::vector<std::uint64_t> offsets(count);
  for (std::uint64_t i = 0; i < count; ++i)
    offsets[i] = cuda::shuffled(i, count, kSpanSeed) * cuda::kGatherSpan;
  const std::size_t bytes = count * sizeof offsets[0];
  auto list = allocate(Bytes(bytes), "the list of what is gathered");
  if (!list) return std::move(list).error();
  spans_ = *std::move(list);
  const CUresult answer = copy_in_(spans_.get<0>(), offsets.data(), bytes);
  if (auto copied = done(cuda::kMemcpyHtoD.name, answer); !copied) {
    return std::move(copied).error();
  }
  span_count_ = count;
  return spans_.get<0>();
}

}  // namespace carveout::probe
