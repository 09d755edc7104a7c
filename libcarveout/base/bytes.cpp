#include "base/bytes.hpp"

#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "base/text.hpp"

namespace carveout {
namespace {

constexpr std::array<std::pair<std::string_view, unsigned>, 3> kUnits{
    {{"GiB", 30}, {"MiB", 20}, {"KiB", 10}}};

Error bad_size(std::string_view text) {
  return Error{Code::kInvalid, 0, cat("size \"", printable(text, 64), "\""),
               "write a whole number of bytes, or one followed by KiB, MiB or GiB (2046MiB)"};
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc{}) return bad_size(text);

  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  if (unit.empty()) return Bytes(number);
  if (unit.front() == ' ') unit.remove_prefix(1);
  for (const auto& [name, shift] : kUnits) {
    if (!equal_ignoring_case(unit, name)) continue;
    if (number > (std::numeric_limits<std::uint64_t>::max() >> shift)) return bad_size(text);
    return Bytes(number << shift);
  }
  return bad_size(text);
}

std::string format_bytes(Bytes size) {
  const std::uint64_t count = size.count();
  if (count == 0) return "0 B";
  for (const auto& [name, shift] : kUnits) {
    if ((count & ((std::uint64_t{1} << shift) - 1)) == 0) return cat(count >> shift, " ", name);
  }
  return cat(count, " B");
}

}  // namespace carveout
