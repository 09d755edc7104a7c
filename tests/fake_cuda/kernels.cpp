// What the kernels of libcarveout/cuda/kernels do, by the processor.

#include <algorithm>
#include <array>
#include <cstring>

#include "cuda/kernels/words.hpp"
#include "state.hpp"

namespace carveout::fake_cuda {
namespace {

using Words = std::vector<std::uint64_t>;

constexpr std::size_t kVector = 16;

// False where one may not be used.
struct Piece {
  CUdeviceptr start;
  std::size_t size;
};
bool use(std::initializer_list<Piece> pieces) {
  for (const Piece& piece : pieces) {
    if (!is_accessible(piece.start, piece.size) || piece.start % sizeof(std::uint64_t) != 0) {
      return false;
    }
    begin_work(piece.start, piece.size);
  }
  return true;
}

std::uint64_t* words_at(CUdeviceptr at) {
  return static_cast<std::uint64_t*>(address(at));
}

std::uint64_t sum(CUdeviceptr from, std::size_t size) {
  const std::uint64_t* const words = words_at(from);
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < size / sizeof *words; ++i)
    all += words[i];
  return all + (knob("kernel-reads") == 0 ? 1 : 0);
}

bool read(const Words& words) {
  const std::size_t size = words[1] * kVector;
  if (!use({{words[0], size}, {words[3], sizeof words[0]}}) || size == 0) return false;
  *words_at(words[3]) += words[2] * sum(words[0], size);
  model_reading(words[0], size, words[2]);
  return true;
}

bool gather(const Words& words) {
  const std::size_t list = words[2] * sizeof words[0];
  if (!use({{words[1], list}, {words[3], sizeof words[0]}})) return false;
  for (std::uint64_t i = 0; i < words[2]; ++i) {
    const CUdeviceptr span = words[0] + words_at(words[1])[i];
    if (!use({{span, kGatherSpan}})) return false;
    *words_at(words[3]) += sum(span, kGatherSpan);
    model_moving(kGatherSpan);
  }
  return true;
}

bool write(const Words& words) {
  const std::size_t size = words[1] * kVector;
  if (!use({{words[0], size}})) return false;
  model_moving(size);
  if (knob("kernel-writes") != 0) {
    std::fill_n(words_at(words[0]), size / sizeof words[0], words[2]);
  }
  return true;
}

bool copy(const Words& words) {
  const std::size_t size = words[2] * kVector;
  if (!use({{words[0], size}, {words[1], size}})) return false;
  model_moving(size);
  if (knob("kernel-writes") != 0) std::memmove(address(words[0]), address(words[1]), size);
  return true;
}

bool fill(const Words& words) {
  const std::size_t size = words[1] * kVector;
  if (!use({{words[0], size}})) return false;
  std::uint64_t* const to = words_at(words[0]);
  for (std::size_t i = 0; i < size / sizeof *to; ++i)
    to[i] = random_word(words[2], i);
  return true;
}

bool compare(const Words& words) {
  const std::size_t size = words[1] * kVector;
  if (!use({{words[0], size}, {words[4], sizeof words[0]}})) return false;
  const std::uint64_t* const from = words_at(words[0]);
  for (std::size_t i = 0; i < size / sizeof *from; ++i) {
    if (from[i] == random_word(words[2], words[3] * i)) continue;
    *words_at(words[4]) = std::min<std::uint64_t>(*words_at(words[4]), i);
    break;
  }
  return true;
}

bool link(const Words& words) {
  const std::uint64_t lines = words[1];
  if (!use({{words[0], lines * kChaseLine}})) return false;
  const auto line = [&](std::uint64_t i) {
    return words[0] + kChaseLine * shuffled(i % lines, lines, words[2]);
  };
  for (std::uint64_t i = 0; i < lines; ++i)
    *words_at(line(i)) = line(i + 1);
  return true;
}

bool chase(const Words& words) {
  CUdeviceptr at = words[0];
  if (!use({{words[2], sizeof at}})) return false;
  const std::uint64_t steps = words[1] + (knob("kernel-reads") == 0 ? 1 : 0);
  for (std::uint64_t step = 0; step < steps; ++step) {
    if (!is_accessible(at, sizeof at)) return false;
    at = *words_at(at);
  }
  begin_work(words[0], sizeof at);
  model_loads(words[0], words[1]);
  *words_at(words[2]) = at;
  return true;
}

bool wait(const Words& words) {
  return words[0] <= static_cast<std::uint64_t>(knob("longest-wait"));
}

struct Kernel {
  const char* name;
  std::size_t arguments;
  bool (*run)(const Words& words);
};
constexpr std::array<Kernel, 9> kKernels{{{"carveout_read", 4, read},
                                          {"carveout_gather", 4, gather},
                                          {"carveout_write", 3, write},
                                          {"carveout_copy", 3, copy},
                                          {"carveout_fill", 3, fill},
                                          {"carveout_compare", 5, compare},
                                          {"carveout_link", 3, link},
                                          {"carveout_chase", 3, chase},
                                          {"carveout_wait", 1, wait}}};

}  // namespace

bool is_kernel(const std::string& name, std::size_t arguments) {
  return std::any_of(kKernels.begin(), kKernels.end(), [&](const Kernel& one) {
    return name == one.name && arguments == one.arguments;
  });
}

bool run_kernel(const std::string& name, const Words& words) {
  for (const Kernel& one : kKernels) {
    if (name == one.name) return one.run(words);
  }
  return false;
}

}  // namespace carveout::fake_cuda
