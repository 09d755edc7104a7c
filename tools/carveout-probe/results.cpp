#include "results.hpp"

#include <algorithm>
#include <array>

namespace carveout::probe {
namespace {

constexpr const char* kOnce = "each byte once";
constexpr const char* kOneWay = "one-way: each byte copied once, though it is read and written";

constexpr std::array<RowFacts, 12> kRows{{
    {Row::kReread, "reread", "reread", Unit::kGbPerSecond, "each byte at each reading"},
    {Row::kRead, "read", "read, one pass", Unit::kGbPerSecond, kOnce},
    {Row::kWrite, "write", "write, one pass", Unit::kGbPerSecond, kOnce},
    {Row::kWritePastCaches, "write_past_caches", "write past the caches", Unit::kGbPerSecond,
     kOnce},
    {Row::kDriverCopyInto, "driver_copy_into", "cuMemcpyDtoD into", Unit::kGbPerSecond, kOneWay},
    {Row::kDriverCopyOutOf, "driver_copy_out_of", "cuMemcpyDtoD out of", Unit::kGbPerSecond,
     kOneWay},
    {Row::kCopyInto, "copy_into", "copy into", Unit::kGbPerSecond, kOneWay},
    {Row::kCopyOutOf, "copy_out_of", "copy out of", Unit::kGbPerSecond, kOneWay},
    {Row::kGather, "gather", "gather of 64 KiB spans", Unit::kGbPerSecond, kOnce},
    {Row::kLoad, "load", "dependent load", Unit::kNanoseconds, ""},
    {Row::kClaim, "claim", "claim and map", Unit::kMilliseconds, ""},
    {Row::kGiveBack, "give_back", "unmap and give back", Unit::kMilliseconds, ""},
}};

}  // namespace

const RowFacts& facts(Row row) {
  return *std::find_if(kRows.begin(), kRows.end(),
                       [row](const RowFacts& one) { return one.row == row; });
}

std::optional<Row> row_named(std::string_view name) {
  for (const RowFacts& one : kRows) {
    if (one.name == name) return one.row;
  }
  return std::nullopt;
}

const char* name_of(Unit unit) {
  switch (unit) {
    case Unit::kGbPerSecond:
      break;
    case Unit::kNanoseconds:
      return "ns";
    case Unit::kMilliseconds:
      return "ms";
  }
  return "GB/s";
}

const char* field_suffix_of(Unit unit) {
  return unit == Unit::kGbPerSecond ? "gb_per_s" : name_of(unit);
}

Bytes judged_cache(EngineKind engine, const std::vector<std::uint64_t>& cache_bytes) {
  if (cache_bytes.empty()) return {};
  const std::size_t last = cache_bytes.size() - 1;
  return Bytes(cache_bytes[engine == EngineKind::kGpu ? 0 : std::min<std::size_t>(1, last)]);
}

const Series* find(const Report& report, std::size_t arm, Row row, Bytes size) {
  for (const Series& one : report.series) {
    if (one.arm == arm && one.row == row && one.size == size) return &one;
  }
  return nullptr;
}

}  // namespace carveout::probe
