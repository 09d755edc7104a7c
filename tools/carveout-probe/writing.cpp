#include "writing.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>

#include "base/text.hpp"

namespace carveout::probe {
namespace {

constexpr std::size_t kLongestName = 28;
// From which on a factor says more than a percentage.
// (A little below twice as much it would be "+100 %".)
constexpr double kManyTimes = 0.995;
// As a part of the whole: below it, too. (A little below a tenth it would be "x0.1".)
constexpr double kFewTimes = 0.09995;

int exponent_of(double value) {
  return static_cast<int>(std::floor(std::log10(std::abs(value))));
}

// How many bytes of `text` its first `columns` characters are.
std::size_t bytes_of(std::string_view text, std::size_t columns) {
  std::size_t at = 0;
  for (; at < text.size() && columns > 0; --columns)
    at += std::max<std::size_t>(utf8_sequence(text.substr(at)), 1);
  return std::min(at, text.size());
}

}  // namespace

std::string fixed(double value, int digits) {
  if (!std::isfinite(value)) return "?";
  // Of a double near the largest there are more than 300 digits.
  std::array<char, 400> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits)
          .ptr;
  return {text.data(), end};
}

std::string figure(double value) {
  if (!std::isfinite(value)) return "?";
  if (std::abs(value) < 1e-9) return "0";
  const double unit = std::pow(10, exponent_of(value) - 2);
  const double rounded = std::round(value / unit) * unit;
  // Rounding may have carried: 9.996 is 10.0.
  return fixed(rounded, std::max(0, 2 - exponent_of(rounded * (1 + 1e-12))));
}

std::string change(double part) {
  if (part >= kManyTimes) return cat("x", figure(1 + part));
  if (1 + part >= 0 && 1 + part < kFewTimes) {
    std::string times = figure(1 + part);
    if (times.find('.') != std::string::npos) times.erase(times.find_last_not_of('0') + 1);
    return cat("x", times);
  }
  const double size = std::abs(part);
  const int digits = size >= 0.0995 ? 0 : size >= 0.00995 ? 1 : 2;
  return cat(part < 0 ? "" : "+", fixed(part * 100, digits), " %");
}

std::string typographic(std::string change) {
  if (change.starts_with('-')) return change.replace(0, 1, "−");
  if (change.starts_with('x')) return change.replace(0, 1, "×");
  return change;
}

std::string how_many(std::uint64_t many, std::string_view one) {
  return cat(many, " ", one, many == 1 ? "" : "s");
}

std::string utc(double unix_s) {
  // Beyond this the year has no four digits.
  if (!(unix_s >= 0 && unix_s < 253402300800.0)) return "?";
  const auto seconds = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return "?";
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string cache_name(EngineKind engine, std::size_t index) {
  return cat("L", engine == EngineKind::kGpu ? index + 2 : index + 1);
}

std::string caches(const Report& report) {
  std::string all;
  for (std::size_t i = 0; i < report.machine.cache_bytes.size(); ++i) {
    all += cat(i == 0 ? "" : ", ", cache_name(report.engine, i), " ",
               format_bytes(Bytes(report.machine.cache_bytes[i])));
  }
  return all;
}

const char* cache_of(EngineKind engine) {
  return engine == EngineKind::kGpu ? "the GPU's L2" : "the processor's caches";
}

NamedCache judged_cache(const Report& report) {
  const auto& caches = report.machine.cache_bytes;
  const Bytes size = judged_cache(report.engine, caches);
  if (report.engine == EngineKind::kGpu) return {cache_of(report.engine), size};
  if (size == Bytes(0)) return {"the processor's cache", size};
  const auto place = std::find(caches.begin(), caches.end(), size.count()) - caches.begin();
  return {cat("the processor's ", cache_name(report.engine, static_cast<std::size_t>(place))),
          size};
}

std::string with_size(const NamedCache& cache) {
  return cache.size == Bytes(0) ? cache.name : cat(cache.name, " (", format_bytes(cache.size), ")");
}

std::vector<RowAt> rows_at(const Report& report) {
  std::vector<RowAt> rows;
  for (const Series& series : report.series) {
    const RowAt row{series.row, series.size};
    if (!series.batches.empty() && std::find(rows.begin(), rows.end(), row) == rows.end()) {
      rows.push_back(row);
    }
  }
  return rows;
}

std::vector<RowAt> table_rows(const Report& report) {
  std::vector<RowAt> rows = rows_at(report);
  if (report.command == "residency") {
    std::erase_if(rows, [&report](const RowAt& row) {
      return row.row == Row::kReread && row.size != report.reread_size;
    });
  }
  return rows;
}

std::string label(const Report& report, const RowAt& row) {
  const char* title = facts(row.row).title;
  return row.size == report.size ? title : cat(title, " ", format_bytes(row.size));
}

double cold_median(const Series& series) {
  std::vector<double> cold;
  for (const Batch& batch : series.batches)
    cold.push_back(batch.cold);
  return median(cold);
}

std::string arm_name(const Report& report, std::size_t arm) {
  return arm < report.arms.size() ? printable(report.arms[arm].name, kLongestName) : "?";
}

std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string wrapped(std::string_view text, std::size_t columns, std::string_view first) {
  const std::size_t indent = width(first);
  const std::size_t room = columns > indent ? columns - indent : 1;
  std::string lines;
  std::string line(first);
  std::size_t used = 0;
  const auto next_line = [&] {
    lines += line + '\n';
    line.assign(indent, ' ');
    used = 0;
  };
  while (!text.empty()) {
    std::size_t space = std::min(text.find(' '), text.size());
    // A percentage stays whole.
    while (text.substr(space).starts_with(" %"))
      space = std::min(text.find(' ', space + 1), text.size());
    std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (used > 0 && used + 1 + width(word) > room) next_line();
    if (used > 0) line += ' ', ++used;
    while (width(word) > room - used) {
      const std::size_t head = bytes_of(word, room - used);
      line += word.substr(0, head);
      word.remove_prefix(head);
      next_line();
    }
    line += word;
    used += width(word);
  }
  return lines + line + '\n';
}

}  // namespace carveout::probe
