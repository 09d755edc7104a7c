#include "engines/cpu_bench.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/text.hpp"
#include "engines/load_chain.hpp"
#include "engines/random_words.hpp"

namespace carveout::probe {
namespace {

constexpr std::uint64_t kWord = sizeof(std::uint64_t);
constexpr std::uint64_t kSpan = std::uint64_t{64} << 10;
// So much is read in a repetition at least, so that the clock is not what is measured.
constexpr std::uint64_t kLeastRead = std::uint64_t{128} << 20;
// The table's row of others' measurements: 8 MiB, 200 times.
constexpr std::uint64_t kTableBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kTablePasses = 200;
// Seconds of loads that miss every cache would be too many.
constexpr std::size_t kMostLoads = std::size_t{1} << 18;
// A word in each page is spoiled before a copy, so that one that was not made is noticed.
constexpr std::uint64_t kPage = 4096;

struct Part {
  std::uint64_t begin, size;
};

// The share of thread `number` of `count` in whole lines.
Part part_of(std::uint64_t size, std::size_t number, std::size_t count) {
  const std::uint64_t lines = size / kLine;
  const std::uint64_t begin = lines * number / count * kLine;
  return {begin, lines * (number + 1) / count * kLine - begin};
}

double gb_per_second(std::uint64_t bytes, double seconds) {
  return static_cast<double>(bytes) / seconds / 1e9;
}

void fill(Crew& crew, char* at, std::uint64_t size, std::uint64_t seed) {
  (void)crew.run([&](std::size_t number) {
    const Part part = part_of(size, number, crew.size());
    auto* const words = reinterpret_cast<std::uint64_t*>(at);
    for (std::uint64_t i = part.begin / kWord; i < (part.begin + part.size) / kWord; ++i)
      words[i] = random_word(seed, i);
  });
}

void scribble(char* at, std::uint64_t size) {
  for (std::uint64_t i = 0; i < size; i += kPage)
    *reinterpret_cast<std::uint64_t*>(at + i) ^= 0x5555555555555555U;
}

}  // namespace

Result<double> CpuBench::repeat(Row row, Bytes size) {
  switch (row) {
    case Row::kReread:
      return read(size, size.count() == kTableBytes
                            ? kTablePasses
                            : std::max<std::uint64_t>(1, kLeastRead / size.count()));
    case Row::kRead:
      return read(size, 1);
    case Row::kWrite:
      return write(size, false);
    case Row::kWritePastCaches:
      return write(size, true);
    case Row::kCopyInto:
      return copy_into(size);
    case Row::kCopyOutOf:
      return copy_out_of(size);
    case Row::kGather:
      return gather(size);
    case Row::kLoad:
      return load(size);
    default:
      return Error{Code::kInvalid, 0, facts(row).title, "is nothing that a processor does"};
  }
}

void CpuBench::restore() {
  fill(parts_.crew, at_, spoiled_, seed_);
  spoiled_ = 0;
  is_chained_ = false;
}

void CpuBench::spoil(Bytes size) {
  spoiled_ = std::max(spoiled_, size.count());
  is_chained_ = false;
}

Result<void> CpuBench::check_sum(const char* at, Bytes size, std::uint64_t expected,
                                 const char* what) {
  std::vector<std::uint64_t> sums(parts_.crew.size());
  (void)parts_.crew.run([&](std::size_t number) {
    const Part part = part_of(size.count(), number, sums.size());
    sums[number] = parts_.kernels->read(at + part.begin, part.size);
  });
  std::uint64_t sum = 0;
  for (const std::uint64_t one : sums)
    sum += one;
  if (sum == expected) return {};
  return Error{Code::kInvalid, 0, what,
               cat("the ", format_bytes(size),
                   " are not what they were to be: this memory does "
                   "not keep what it is given, or somebody else writes to it")};
}

Result<double> CpuBench::read(Bytes size, std::uint64_t passes) {
  restore();
  Crew& crew = parts_.crew;
  std::vector<std::uint64_t> sums(crew.size());
  const double seconds = crew.run([&](std::size_t number) {
    const Part part = part_of(size.count(), number, crew.size());
    std::uint64_t sum = 0;
    for (std::uint64_t pass = 0; pass < passes; ++pass)
      sum += parts_.kernels->read(at_ + part.begin, part.size);
    sums[number] = sum;
  });
  std::uint64_t sum = 0;
  for (const std::uint64_t one : sums)
    sum += one;
  if (sum != passes * parts_.sums.of(seed_, size)) {
    return Error{Code::kInvalid, 0, "reading",
                 cat("what was read of ", format_bytes(size),
                     " is not what was written there: this memory does not keep what it is given, "
                     "or somebody else writes to it")};
  }
  return gb_per_second(passes * size.count(), seconds);
}

Result<double> CpuBench::write(Bytes size, bool past_caches) {
  Crew& crew = parts_.crew;
  const std::uint64_t word = random_word(seed_ ^ ~std::uint64_t{0}, written_++) | 1;
  const auto store = past_caches ? parts_.kernels->write_past_caches : parts_.kernels->write;
  spoil(size);
  const double seconds = crew.run([&](std::size_t number) {
    const Part part = part_of(size.count(), number, crew.size());
    store(at_ + part.begin, part.size, word);
  });
  if (auto good = check_sum(at_, size, word * (size.count() / kWord), "writing"); !good) {
    return std::move(good).error();
  }
  return gb_per_second(size.count(), seconds);
}

namespace {

// Scratch memory of at least that size.
Result<char*> scratch(std::optional<Anonymous>& place, Bytes size) {
  if (!place || place->size() < size) {
    place.reset();
    auto mapped = Anonymous::map(size);
    if (!mapped) return std::move(mapped).error();
    place.emplace(std::move(*mapped));
  }
  return static_cast<char*>(place->address());
}

double timed_copy(CpuParts& parts, char* to, const char* from, Bytes size) {
  return parts.crew.run([&](std::size_t number) {
    const Part part = part_of(size.count(), number, parts.crew.size());
    parts.kernels->copy(to + part.begin, from + part.begin, part.size);
  });
}

// Of the scratch memory that is copied from; no bench has it.
constexpr std::uint64_t kSourceSeed = 0;

}  // namespace

Result<double> CpuBench::copy_into(Bytes size) {
  const bool is_new = !parts_.source || parts_.source->size() < size;
  const auto from = scratch(parts_.source, size);
  if (!from) return from.error();
  if (is_new) fill(parts_.crew, *from, size.count(), kSourceSeed);
  spoil(size);
  scribble(at_, size.count());
  const double seconds = timed_copy(parts_, at_, *from, size);
  auto good = check_sum(at_, size, parts_.sums.of(kSourceSeed, size), "copying into");
  if (!good) return std::move(good).error();
  return gb_per_second(size.count(), seconds);
}

Result<double> CpuBench::copy_out_of(Bytes size) {
  restore();
  const auto to = scratch(parts_.sink, size);
  if (!to) return to.error();
  scribble(*to, size.count());
  const double seconds = timed_copy(parts_, *to, at_, size);
  auto good = check_sum(*to, size, parts_.sums.of(seed_, size), "copying out of");
  if (!good) return std::move(good).error();
  return gb_per_second(size.count(), seconds);
}

Result<double> CpuBench::gather(Bytes size) {
  restore();
  const std::uint64_t span = std::min(kSpan, size.count());
  const std::vector<std::uint32_t> order = load_chain(size.count() / span, seed_);
  std::vector<std::uint64_t> offsets;
  offsets.reserve(order.size());
  for (const std::uint32_t block : order)
    offsets.push_back(block * span);
  Crew& crew = parts_.crew;
  std::vector<std::uint64_t> sums(crew.size());
  const double seconds = crew.run([&](std::size_t number) {
    const std::size_t begin = offsets.size() * number / crew.size();
    const std::size_t end = offsets.size() * (number + 1) / crew.size();
    sums[number] = parts_.kernels->gather(at_, offsets.data() + begin, end - begin, span);
  });
  std::uint64_t sum = 0;
  for (const std::uint64_t one : sums)
    sum += one;
  const Bytes read(offsets.size() * span);
  if (sum != parts_.sums.of(seed_, read)) {
    return Error{Code::kInvalid, 0, "gathering",
                 cat("what was read of ", format_bytes(read), " is not what was written there")};
  }
  return gb_per_second(read.count(), seconds);
}

Result<double> CpuBench::load(Bytes size) {
  const std::size_t lines = size.count() / kLine;
  const auto line_at = [this](std::uint32_t line) {
    return reinterpret_cast<const void**>(at_ + line * kLine);
  };
  if (!is_chained_ || chain_.size() != lines) {
    spoil(size);
    chain_ = load_chain(lines, seed_);
    line_ = 0;
    for (std::uint32_t line = 0; line < lines; ++line)
      *line_at(line) = line_at(chain_[line]);
    is_chained_ = true;
  }
  // Nothing is followed that was not just compared with what was meant.
  for (std::uint32_t line = 0; line < lines; ++line) {
    if (*line_at(line) != line_at(chain_[line])) {
      return Error{Code::kInvalid, 0, "loading",
                   cat("line ", line,
                       " is not what was written there: this memory does not keep "
                       "what it is given, or somebody else writes to it")};
    }
  }
  const std::size_t steps = std::min(lines, kMostLoads);
  const auto begun = std::chrono::steady_clock::now();
  const void* const came_to = chase(line_at(line_), steps);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  for (std::size_t step = 0; step < steps; ++step)
    line_ = chain_[line_];
  if (came_to != line_at(line_)) {
    return Error{Code::kInvalid, 0, "loading", "the loads did not come to where they were to end"};
  }
  return took.count() * 1e9 / static_cast<double>(steps);
}

}  // namespace carveout::probe
