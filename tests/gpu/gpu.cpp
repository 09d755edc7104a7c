#include "gpu/gpu.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/text.hpp"

namespace carveout::test {
namespace {

constexpr std::size_t kWordsOfChunk = Pattern::kChunk.count() / sizeof(std::uint32_t);
constexpr const char* kWhat = "the GPU's use of the memory";

std::string difference(std::uint64_t offset, std::uint32_t is, std::uint32_t should_be) {
  std::array<char, 80> text{};
  (void)std::snprintf(text.data(), text.size(), "the word at byte %llu is 0x%08x, not 0x%08x",
                      static_cast<unsigned long long>(offset), is, should_be);
  return text.data();
}

// Of the chunk with that number.
std::optional<std::string> compare_chunk(const std::uint32_t* words, std::uint64_t chunk,
                                         Pattern pattern) {
  const std::uint32_t wanted = pattern.word(chunk);
  const std::uint32_t* const end = words + kWordsOfChunk;
  const std::uint32_t* const other =
      std::find_if(words, end, [wanted](std::uint32_t word) { return word != wanted; });
  if (other == end) return std::nullopt;
  const auto at = static_cast<std::uint64_t>(other - words) * sizeof wanted;
  return difference(chunk * Pattern::kChunk.count() + at, *other, wanted);
}

std::uint64_t chunks_in(Bytes size) {
  return size.count() / Pattern::kChunk.count();
}

}  // namespace

Result<Gpu> Gpu::open() {
  auto driver = cuda::Driver::load();
  if (!driver) return std::move(driver).error();
  auto context = cuda::Context::primary(*driver, 0);
  if (!context) return std::move(context).error();
  cuda::Finder find(**driver);
  auto* const set = find(cuda::kMemsetD32);
  auto* const copy = find(cuda::kMemcpyDtoH);
  auto* const synchronize = find(cuda::kCtxSynchronize);
  if (find.missing()) return *find.missing();
  return Gpu(*std::move(context), set, copy, synchronize);
}

Result<void> Gpu::write(cuda::CUdeviceptr to, Bytes size, Pattern pattern) const {
  const cuda::Entered entered(context_);
  if (!entered) return entered.error(kWhat);
  for (std::uint64_t chunk = 0; chunk < chunks_in(size); ++chunk) {
    const cuda::CUresult answer =
        set_(to + chunk * Pattern::kChunk.count(), pattern.word(chunk), kWordsOfChunk);
    if (answer != cuda::kSuccess) {
      return context_.driver()->failed(cuda::kMemsetD32.name, answer, kWhat);
    }
  }
  const cuda::CUresult answer = synchronize_();
  if (answer == cuda::kSuccess) return {};
  return context_.driver()->failed(cuda::kCtxSynchronize.name, answer, kWhat);
}

Result<std::optional<std::string>> Gpu::compare(cuda::CUdeviceptr from, Bytes size,
                                                Pattern pattern) const {
  constexpr std::uint64_t kAtOnce = 32;  // a slice
  const cuda::Entered entered(context_);
  if (!entered) return entered.error(kWhat);
  std::vector<std::uint32_t> words(kAtOnce * kWordsOfChunk);
  for (std::uint64_t first = 0; first < chunks_in(size); first += kAtOnce) {
    // Neither zeros nor a pattern: a copy that was not made is noticed.
    std::fill(words.begin(), words.end(), 0xBAD0BAD0U);
    const cuda::CUresult answer =
        copy_(words.data(), from + first * Pattern::kChunk.count(), words.size() * sizeof words[0]);
    if (answer != cuda::kSuccess) {
      return context_.driver()->failed(cuda::kMemcpyDtoH.name, answer, kWhat);
    }
    for (std::uint64_t i = 0; i < kAtOnce; ++i) {
      auto other = compare_chunk(&words[i * kWordsOfChunk], first + i, pattern);
      if (other) return other;
    }
  }
  return std::optional<std::string>();
}

std::string Gpu::name() const {
  std::array<char, 128> name{};
  auto* const get = context_.driver()->find(cuda::kDeviceGetName);
  constexpr int kRoom = 127;
  if (get == nullptr || get(name.data(), kRoom, context_.device()) != cuda::kSuccess) return "?";
  return printable(name.data(), name.size());
}

std::optional<int> Gpu::attribute(int which) const {
  auto* const get = context_.driver()->find(cuda::kDeviceGetAttribute);
  int value = 0;
  if (get == nullptr || get(&value, which, context_.device()) != cuda::kSuccess) {
    return std::nullopt;
  }
  return value;
}

void write_by_processor(void* to, Bytes size, Pattern pattern) {
  auto* const words = static_cast<std::uint32_t*>(to);
  for (std::uint64_t chunk = 0; chunk < chunks_in(size); ++chunk)
    std::fill_n(words + chunk * kWordsOfChunk, kWordsOfChunk, pattern.word(chunk));
}

std::optional<std::string> compare_by_processor(const void* from, Bytes size, Pattern pattern) {
  const auto* const words = static_cast<const std::uint32_t*>(from);
  for (std::uint64_t chunk = 0; chunk < chunks_in(size); ++chunk) {
    auto other = compare_chunk(words + chunk * kWordsOfChunk, chunk, pattern);
    if (other) return other;
  }
  return std::nullopt;
}

}  // namespace carveout::test
