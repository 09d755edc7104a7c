#pragma once

// How the fuzzers of the ledger get their mutations past what a line holds against itself.

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/crc32c.hpp"
#include "base/text.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace carveout::fuzz {

inline std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;  // each with its '\n', but perhaps the last
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end == std::string_view::npos ? end : end + 1));
    text.remove_prefix(lines.back().size());
  }
  return lines;
}

// One record, without '\n', behind the seal that fits it.
inline std::string reseal_line(std::string_view line) {
  const std::size_t seal = line.rfind(R"(,"crc32c":")");
  const std::string_view body =
      line.substr(0, seal != std::string_view::npos ? seal : line.find_last_not_of('}') + 1);
  std::string sealed = cat(body, R"(,"crc32c":")");
  const std::uint32_t crc = crc32c(body);
  for (unsigned shift = 32; shift != 0;) {
    shift -= 4;
    sealed += "0123456789abcdef"[(crc >> shift) & 0xFU];
  }
  return sealed + "\"}";
}

// Every whole line with the seal that fits it; if `renumber`, they count from the first one's on.
inline std::string reseal(std::string_view text, bool renumber) {
  constexpr std::string_view kNumber = R"({"seq":)";
  std::string sealed;
  std::uint64_t next = 0;
  for (std::string_view line : lines_of(text)) {
    if (!line.ends_with('\n')) return sealed.append(line);
    line.remove_suffix(1);
    std::uint64_t number = 0;
    if (renumber && line.starts_with(kNumber)) {
      const char* digits = line.data() + kNumber.size();
      const auto [end, problem] = std::from_chars(digits, line.data() + line.size(), number);
      if (problem == std::errc{}) {
        if (next == 0) next = number;
        const std::string_view rest(end, static_cast<std::size_t>(line.data() + line.size() - end));
        sealed += reseal_line(cat(kNumber, next++, rest)) + '\n';
        continue;
      }
    }
    sealed += reseal_line(line) + '\n';
  }
  return sealed;
}

// As libFuzzer mutates, or a line goes, comes twice or changes its place.
inline std::size_t mutate_lines(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                unsigned seed) {
  std::minstd_rand random(seed);
  auto lines = lines_of({reinterpret_cast<const char*>(data), size});
  if (random() % 3 != 0 || lines.size() < 2) return LLVMFuzzerMutate(data, size, max_size);
  const auto any = [&] { return lines.begin() + static_cast<int>(random() % lines.size()); };
  const auto from = any();
  switch (random() % 3) {
    case 0:
      lines.erase(from);
      break;
    case 1:
      lines.insert(any(), std::string_view(*from));
      break;
    default:
      std::iter_swap(from, any());
  }
  std::string text;
  for (const std::string_view line : lines)
    text += line;
  text.resize(std::min(text.size(), max_size));
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

}  // namespace carveout::fuzz
