#include "engines/gpu_bench.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <utility>

#include "base/text.hpp"

namespace carveout::probe {
namespace {

using cuda::CUdeviceptr;

constexpr std::uint64_t kPage = 4096;  // what sizes are multiples of
constexpr std::uint64_t kWord = sizeof(std::uint64_t);
constexpr std::uint64_t kNone = ~std::uint64_t{0};
// What a repetition of rereading reads: 8 MiB 200 times.
constexpr std::uint64_t kRereadBytes = 200 * mib(8).count();
// Of a repetition: some milliseconds of them.
constexpr std::uint64_t kLoads = 16384;
// Seeds that far from each other have no word in common.
constexpr std::uint64_t kSeedStep = std::uint64_t{1} << 44U;
constexpr std::uint64_t kScratchSeed = kSeedStep / 2;
constexpr std::uint64_t kWriteSeed = kNone / 2;
constexpr std::uint64_t kLinkSeed = 0x4C696E6B;

constexpr const char* kAdvice = ": the memory or the driver does not keep what it is given";

std::string hexadecimal(std::uint64_t number) {
  std::array<char, 24> text{};
  (void)std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(number));
  return text.data();
}

Error wrong(CUdeviceptr where, const std::string& message) {
  return {Code::kInvalid, 0, cat("GPU memory at ", hexadecimal(where)), message + kAdvice};
}

std::uint64_t passes_of_reread(Bytes size) {
  return std::max<std::uint64_t>(kRereadBytes / size.count(), 2);
}

double rate(std::uint64_t bytes, double nanoseconds) {
  return static_cast<double>(bytes) / nanoseconds;
}

}  // namespace

GpuBench::GpuBench(std::shared_ptr<Gpu> gpu, CUdeviceptr start, Bytes size, std::uint64_t number)
    : gpu_(std::move(gpu)), start_(start), size_(size), seed_(number * kSeedStep) {}

Result<double> GpuBench::repeat(Row row, Bytes size) {
  if (size.count() == 0 || size.count() % kPage != 0 || size > size_) {
    return Error{Code::kInvalid, 0, facts(row).title,
                 cat(format_bytes(size), " of a memory of ", format_bytes(size_),
                     ": it has to be a part of it, and a multiple of 4 KiB")};
  }
  const cuda::Entered entered(gpu_->context());
  if (!entered) return entered.error(facts(row).title);
  auto measured = measure(row, size);
  // What was queued may still be at the memory, which the caller may give back now.
  if (!measured) gpu_->settle();
  return measured;
}

Result<double> GpuBench::measure(Row row, Bytes size) {
  switch (row) {
    case Row::kReread:
      return read(size, passes_of_reread(size));
    case Row::kRead:
      return read(size, 1);
    case Row::kWrite:
      return write(size);
    case Row::kDriverCopyInto:
      return copy_into(size, By::kDriver);
    case Row::kDriverCopyOutOf:
      return copy_out_of(size, By::kDriver);
    case Row::kCopyInto:
      return copy_into(size, By::kKernel);
    case Row::kCopyOutOf:
      return copy_out_of(size, By::kKernel);
    case Row::kGather:
      return gather(size);
    case Row::kLoad:
      return load(size);
    case Row::kWritePastCaches:
    case Row::kClaim:
    case Row::kGiveBack:
      break;
  }
  return Error{Code::kInvalid, 0, facts(row).title, "is nothing that the GPU engine measures"};
}

Result<double> GpuBench::read(Bytes size, std::uint64_t passes) {
  if (auto random = randomize(size); !random) return std::move(random).error();
  if (auto set = gpu_->set_word(0); !set) return std::move(set).error();
  auto time = gpu_->time([&] { return gpu_->kernels().read(start_, size, passes, gpu_->word()); });
  if (!time) return time;
  const std::string how =
      cat("the sum of ", format_bytes(size), " read ", passes, passes == 1 ? " time" : " times");
  auto same = check_sum(passes * expected_sum(size), size, how);
  if (!same) return std::move(same).error();
  return rate(passes * size.count(), *time);
}

Result<double> GpuBench::gather(Bytes size) {
  const std::uint64_t count = size.count() / cuda::kGatherSpan;
  if (count == 0) {
    return Error{Code::kInvalid, 0, facts(Row::kGather).title,
                 cat(format_bytes(size), " hold no span of 64 KiB: take more")};
  }
  const Bytes whole(count * cuda::kGatherSpan);
  if (auto random = randomize(whole); !random) return std::move(random).error();
  auto list = gpu_->shuffled_spans(count);
  if (!list) return std::move(list).error();
  if (auto set = gpu_->set_word(0); !set) return std::move(set).error();
  auto time =
      gpu_->time([&] { return gpu_->kernels().gather(start_, *list, count, gpu_->word()); });
  if (!time) return time;
  auto same = check_sum(expected_sum(whole), whole, cat("the sum of ", count, " spans gathered"));
  if (!same) return std::move(same).error();
  return rate(whole.count(), *time);
}

Result<double> GpuBench::write(Bytes size) {
  // Another word each time, so that a write that is not made is noticed.
  const std::uint64_t seed = kWriteSeed + seed_ + ++writes_;
  content_ = {};
  lines_ = 0;
  auto time =
      gpu_->time([&] { return gpu_->kernels().write(start_, size, cuda::random_word(seed, 0)); });
  if (!time) return time;
  auto same =
      check_words(start_, size, seed, 0, cat("after ", format_bytes(size), " were written"));
  if (!same) return std::move(same).error();
  return rate(size.count(), *time);
}

Result<double> GpuBench::copy_into(Bytes size, By by) {
  const Bytes whole = size + Bytes(kPage);
  auto scratch = gpu_->scratch(whole);
  if (!scratch) return std::move(scratch).error();
  const std::uint64_t seed = kScratchSeed + seed_;
  RandomContent& content = gpu_->scratch_content();
  if (!content.holds(seed, whole)) {
    content = {};
    if (auto filled = gpu_->kernels().fill(*scratch, whole, seed); !filled) {
      return std::move(filled).error();
    }
    content = {seed, whole};
  }
  const Bytes shift = next_shift();
  content_ = {};
  lines_ = 0;
  auto time = copy(start_, *scratch + shift.count(), size, by);
  if (!time) return time;
  auto same = check_words(start_, size, seed + shift.count() / kWord, 1,
                          cat("after ", format_bytes(size), " were copied into it"));
  if (!same) return std::move(same).error();
  return rate(size.count(), *time);
}

Result<double> GpuBench::copy_out_of(Bytes size, By by) {
  if (auto random = randomize(size); !random) return std::move(random).error();
  auto scratch = gpu_->scratch(size + Bytes(kPage));
  if (!scratch) return std::move(scratch).error();
  gpu_->scratch_content() = {};
  const CUdeviceptr to = *scratch + next_shift().count();
  // The copy before this one has gone to another place, and not to all of this one.
  auto spoilt = gpu_->kernels().fill(to, Bytes(kPage), kWriteSeed);
  if (!spoilt) return std::move(spoilt).error();
  auto time = copy(to, start_, size, by);
  if (!time) return time;
  auto same = check_words(
      to, size, seed_, 1,
      cat("after ", format_bytes(size), " were copied there out of ", hexadecimal(start_)));
  if (!same) return std::move(same).error();
  return rate(size.count(), *time);
}

Result<double> GpuBench::copy(CUdeviceptr to, CUdeviceptr from, Bytes size, By by) const {
  return gpu_->time([&] {
    return by == By::kDriver ? gpu_->copy_by_driver(to, from, size)
                             : gpu_->kernels().copy(to, from, size);
  });
}

Bytes GpuBench::next_shift() {
  shifted_ = !shifted_;
  return Bytes(shifted_ ? kPage : 0);
}

// Each repetition goes on where the last one ended: in memory larger than the caches it is always
// at lines that were not loaded lately.
Result<double> GpuBench::load(Bytes size) {
  if (auto linked = link(size); !linked) return std::move(linked).error();
  const auto line = [this](std::uint64_t position) {
    return start_ + cuda::kChaseLine * cuda::shuffled(position % lines_, lines_, kLinkSeed);
  };
  if (auto set = gpu_->set_word(0); !set) return std::move(set).error();
  auto time =
      gpu_->time([&] { return gpu_->kernels().chase(line(position_), kLoads, gpu_->word()); });
  if (!time) return time;
  const auto end = gpu_->fetch_word();
  if (!end) return end.error();
  const CUdeviceptr expected = line(position_ + kLoads);
  if (*end != expected) {
    lines_ = 0;
    return wrong(start_, cat(kLoads,
                             " loads, each from the address that the one before has found, "
                             "ended at ",
                             hexadecimal(*end), ", not at ", hexadecimal(expected)));
  }
  position_ = (position_ + kLoads) % lines_;
  return *time / static_cast<double>(kLoads);
}

Result<void> GpuBench::randomize(Bytes size) {
  if (content_.holds(seed_, size)) return {};
  content_ = {};
  lines_ = 0;
  auto filled = gpu_->kernels().fill(start_, size, seed_);
  if (filled) content_ = {seed_, size};
  return filled;
}

Result<void> GpuBench::link(Bytes size) {
  const std::uint64_t lines = size.count() / cuda::kChaseLine;
  if (lines_ == lines) return {};
  // Beside the addresses is random data, too.
  if (auto random = randomize(size); !random) return random;
  content_ = {};
  position_ = 0;
  auto linked = gpu_->kernels().link(start_, lines, kLinkSeed);
  if (linked) lines_ = lines;
  return linked;
}

std::uint64_t GpuBench::expected_sum(Bytes size) {
  const auto known = sums_.find(size);
  if (known != sums_.end()) return known->second;
  // On from the next smaller one.
  const auto larger = sums_.upper_bound(size);
  const bool first = larger == sums_.begin();
  std::uint64_t sum = first ? 0 : std::prev(larger)->second;
  std::uint64_t at = first ? 0 : std::prev(larger)->first.count() / kWord;
  for (; at < size.count() / kWord; ++at)
    sum += cuda::random_word(seed_, at);
  sums_[size] = sum;
  return sum;
}

Result<void> GpuBench::check_sum(std::uint64_t expected, Bytes size, const std::string& how) const {
  const auto sum = gpu_->fetch_word();
  if (!sum) return sum.error();
  if (*sum == expected) return {};
  // Perhaps there is more to be said.
  const std::string text = cat(how, " is ", hexadecimal(*sum), ", not ", hexadecimal(expected));
  if (auto words = check_words(start_, size, seed_, 1, text); !words) return words;
  return wrong(start_, text);
}

Result<void> GpuBench::check_words(CUdeviceptr from, Bytes size, std::uint64_t seed,
                                   std::uint64_t stride, const std::string& how) const {
  if (auto set = gpu_->set_word(0xFF); !set) return set;
  auto compared = gpu_->kernels().compare(from, size, seed, stride, gpu_->word());
  if (!compared) return compared;
  const auto first = gpu_->fetch_word();
  if (!first) return first.error();
  if (*first == kNone) return {};
  const auto is = gpu_->fetch(from + *first * kWord);
  if (!is) return is.error();
  return wrong(from, cat(how, ", the word at byte ", *first * kWord, " is ", hexadecimal(*is),
                         ", not ", hexadecimal(cuda::random_word(seed, stride * *first))));
}

}  // namespace carveout::probe
