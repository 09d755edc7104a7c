#pragma once

// The kernels of kernels/probe.cu, in a context. Their PTX is part of this library: the driver
// makes code for its GPU of it when they are loaded.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "cuda/driver.hpp"
#include "cuda/kernels/words.hpp"

namespace carveout::cuda {

// Each call queues one launch in the default stream and returns before it is done: what goes wrong
// on the GPU is told by whatever waits for it. The context must have been entered. Addresses are
// the device's, sizes multiples of 4 KiB unless it is said. Errors: as the driver says.
class Kernels {
 public:
  // Blocks as long as the driver takes to make code of them, up to seconds. kNotFound where it
  // lacks a call.
  static Result<Kernels> load(const Context& context);

  // Adds to the word at `sum` the sum of all 64-bit words, `passes` times, modulo 2^64.
  Result<void> read(CUdeviceptr from, Bytes size, std::uint64_t passes, CUdeviceptr sum) const;
  // The same, once, of the spans of kGatherSpan bytes at `count` offsets, which lie at `offsets`.
  Result<void> gather(CUdeviceptr from, CUdeviceptr offsets, std::uint64_t count,
                      CUdeviceptr sum) const;
  // Every 64-bit word becomes `word`.
  Result<void> write(CUdeviceptr to, Bytes size, std::uint64_t word) const;
  Result<void> copy(CUdeviceptr to, CUdeviceptr from, Bytes size) const;
  // The i-th word becomes random_word(seed, i).
  Result<void> fill(CUdeviceptr to, Bytes size, std::uint64_t seed) const;
  // The word at `first` becomes the number of the first word that is not random_word(seed, stride *
  // its number), where that is lower.
  Result<void> compare(CUdeviceptr from, Bytes size, std::uint64_t seed, std::uint64_t stride,
                       CUdeviceptr first) const;
  // The lines of kChaseLine bytes become one cycle: the first word of line shuffled(i, lines, seed)
  // is the address of line shuffled(i + 1, lines, seed).
  Result<void> link(CUdeviceptr to, std::uint64_t lines, std::uint64_t seed) const;
  // Goes on by the address that lies at `from`, so many times, and puts where it ends at `end`.
  Result<void> chase(CUdeviceptr from, std::uint64_t steps, CUdeviceptr end) const;
  // Keeps the GPU busy, so that what is queued behind it begins together.
  Result<void> wait(std::uint64_t nanoseconds) const;

  [[nodiscard]] unsigned multiprocessors() const { return multiprocessors_; }

  // Unloads them, as the destructor does, saying how it went.
  void unload(Undone& undone) { module_.give_back(undone); }

 private:
  enum Which : std::size_t {
    kRead,
    kGather,
    kWrite,
    kCopy,
    kFill,
    kCompare,
    kLink,
    kChase,
    kWait,
    kCount
  };
  static const std::array<const char*, kCount> kNames;

  Kernels(DriverPointer driver, decltype(kLaunchKernel)::Type* call)
      : driver_(std::move(driver)), launch_(call) {}

  // A kernel's arguments are 64-bit words, all of them.
  template <typename... Words>
  Result<void> launch(Which which, unsigned blocks, unsigned threads, Words... words) const {
    std::array<std::uint64_t, sizeof...(Words)> arguments{words...};
    return launch_words(which, blocks, threads, arguments.data(), arguments.size());
  }
  Result<void> launch_words(Which which, unsigned blocks, unsigned threads, std::uint64_t* words,
                            std::size_t count) const;
  // As many blocks as run at once.
  [[nodiscard]] unsigned grid() const;

  DriverPointer driver_;
  decltype(kLaunchKernel)::Type* launch_;
  Held<CUmodule> module_;
  std::array<CUfunction, kCount> functions_{};
  unsigned multiprocessors_ = 1;
};

}  // namespace carveout::cuda
