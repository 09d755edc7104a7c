#pragma once

// How figures and text are written: alike in tables, curves and pages.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "results.hpp"

namespace carveout::probe {

// Three significant digits, never with an exponent: "1230", "245", "98.1", "0.0123"; "?" for what
// is not finite.
[[nodiscard]] std::string figure(double value);

// `value` with that many digits behind the point.
[[nodiscard]] std::string fixed(double value, int digits);

// A part as a change: "+12 %", "-5.3 %", "+0.04 %"; from twice as much on "x2.50", "x12.8", and
// below a tenth "x0.05", "x0.00325".
[[nodiscard]] std::string change(double part);

// A change with a page's characters: "−5.3 %", "×25.0".
[[nodiscard]] std::string typographic(std::string change);

// "1 block", "8 blocks": of a word that takes an s.
[[nodiscard]] std::string how_many(std::uint64_t many, std::string_view one);

// "2026-10-05T14:44:50Z"
[[nodiscard]] std::string utc(double unix_s);

// Of the cache at that place in Machine::cache_bytes: "L2".
[[nodiscard]] std::string cache_name(EngineKind engine, std::size_t index);
// "L1 48 KiB, L2 2 MiB"; "" where none is known.
[[nodiscard]] std::string caches(const Report& report);

// What the engine keeps memory in: "the GPU's L2", "the processor's caches".
[[nodiscard]] const char* cache_of(EngineKind engine);

// That of them which the verdict on residency is about: "the GPU's L2", "the processor's L2".
struct NamedCache {
  std::string name;
  Bytes size;  // 0: not known, and the name is "the processor's cache" or "the GPU's L2"
};
[[nodiscard]] NamedCache judged_cache(const Report& report);
// With its size, if that is known: "the GPU's L2 (24 MiB)".
[[nodiscard]] std::string with_size(const NamedCache& cache);

// One row at one size.
struct RowAt {
  Row row = Row::kRead;
  Bytes size;
  friend bool operator==(const RowAt&, const RowAt&) = default;
};
// Those of the report's series that have a batch, in their order, each once.
[[nodiscard]] std::vector<RowAt> rows_at(const Report& report);
// The same without the curve of a report on residency: of rereading, the judged size alone.
[[nodiscard]] std::vector<RowAt> table_rows(const Report& report);
// The row's title, with the size where it is not the report's: "reread 8 MiB".
[[nodiscard]] std::string label(const Report& report, const RowAt& row);

// The median of the batches' first repetitions.
[[nodiscard]] double cold_median(const Series& series);

// Of that arm, safe to print, and cut to what a column can bear.
[[nodiscard]] std::string arm_name(const Report& report, std::size_t arm);

// How many characters a terminal shows for `text`, each taken for one column wide.
[[nodiscard]] std::size_t width(std::string_view text);

// `text` in lines of at most `columns`, broken at spaces (and within a word that is longer), the
// first line after `first` and the others after as many spaces. Each ends with a newline.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t columns,
                                  std::string_view first = "");

}  // namespace carveout::probe
