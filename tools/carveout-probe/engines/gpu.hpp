#pragma once

// A GPU at work for the GPU engine: its context, the kernels in it, the events that time them, and
// memory of its own to check and to copy with. One for all memories that are compared.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "cuda/driver.hpp"
#include "cuda/kernels.hpp"

namespace carveout::probe {

// What memory holds from its beginning on: the words that `seed` gives, so far. Unknown where the
// size is 0.
struct RandomContent {
  std::uint64_t seed = 0;
  Bytes size = {};
  [[nodiscard]] bool holds(std::uint64_t wanted, Bytes least) const {
    return seed == wanted && size >= least;
  }
};

// From one thread at a time. Whatever is not open() is called with its context entered. Errors: as
// the driver says, naming the call.
class Gpu {
 public:
  static Result<std::shared_ptr<Gpu>> open(int device, const std::string& library);

  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  Gpu(Gpu&&) = delete;
  Gpu& operator=(Gpu&&) = delete;
  ~Gpu();

  [[nodiscard]] const cuda::Context& context() const { return context_; }
  [[nodiscard]] const cuda::Kernels& kernels() const { return *kernels_; }

  // Of the host, where the GPU has no memory of its own.
  [[nodiscard]] Result<void> check_room(Bytes size) const;
  // Memory of the driver's own, for `what`. To be given back with the context entered.
  Result<cuda::Held<cuda::CUdeviceptr>> allocate(Bytes size, std::string what) const;

  // How long what `queue` queues takes, by events, in nanoseconds. Waits for it.
  Result<double> time(const std::function<Result<void>()>& queue);
  // A word for kernels to put something into: each of its bytes becomes `byte`.
  Result<void> set_word(unsigned char byte) const;
  [[nodiscard]] cuda::CUdeviceptr word() const { return own_.get<0>(); }
  // Waits for what was queued before.
  Result<std::uint64_t> fetch(cuda::CUdeviceptr word) const;
  Result<std::uint64_t> fetch_word() const { return fetch(word()); }
  Result<void> copy_by_driver(cuda::CUdeviceptr to, cuda::CUdeviceptr from, Bytes size) const;
  // After an error: nothing that was queued is at anybody's memory any longer.
  void settle() const { (void)synchronize_(); }

  // Ordinary memory to copy from and to, of at least that size.
  Result<cuda::CUdeviceptr> scratch(Bytes size);
  // What is in it. Whoever writes into it says so here.
  [[nodiscard]] RandomContent& scratch_content() { return scratch_content_; }
  // Where a list is of the offsets of so many spans of kGatherSpan, one behind the other, shuffled.
  Result<cuda::CUdeviceptr> shuffled_spans(std::uint64_t count);

 private:
  explicit Gpu(cuda::Context context) : context_(std::move(context)) {}
  Result<void> start();
  Result<void> find_calls();
  Result<void> make_own();
  Result<void> warm_up() const;
  Result<void> done(const char* call, cuda::CUresult answer) const;
  Result<void> allow_for_queueing();

  cuda::Context context_;
  std::optional<cuda::Kernels> kernels_;
  bool is_integrated_ = false;  // its memory is the host's
  decltype(cuda::kDeviceGetAttribute)::Type* ask_ = nullptr;
  decltype(cuda::kMemAlloc)::Type* allocate_ = nullptr;
  decltype(cuda::kMemFree)::Type* free_ = nullptr;
  decltype(cuda::kMemsetD8)::Type* set_ = nullptr;
  decltype(cuda::kMemcpyHtoD)::Type* copy_in_ = nullptr;
  decltype(cuda::kMemcpyDtoH)::Type* copy_out_ = nullptr;
  decltype(cuda::kMemcpyDtoDAsync)::Type* copy_inside_ = nullptr;
  decltype(cuda::kEventCreate)::Type* create_event_ = nullptr;
  decltype(cuda::kEventDestroy)::Type* destroy_event_ = nullptr;
  decltype(cuda::kEventRecord)::Type* record_ = nullptr;
  decltype(cuda::kEventSynchronize)::Type* wait_for_ = nullptr;
  decltype(cuda::kEventQuery)::Type* has_passed_ = nullptr;
  decltype(cuda::kEventElapsedTime)::Type* elapsed_ = nullptr;
  decltype(cuda::kCtxSynchronize)::Type* synchronize_ = nullptr;
  cuda::Held<cuda::CUevent> begin_, end_;
  cuda::Held<cuda::CUdeviceptr> own_, scratch_, spans_;
  std::uint64_t queueing_ns_ = 100'000;
  Bytes scratch_size_;
  RandomContent scratch_content_;
  std::uint64_t span_count_ = 0;
};

}  // namespace carveout::probe
