#include "source/available_memory.hpp"

#include <charconv>
#include <limits>
#include <string_view>

#include "base/file.hpp"
#include "base/text.hpp"

namespace carveout {

Result<Bytes> read_mem_available(const std::string& path) {
  const auto text = read_text(path, 8192);
  if (!text) return text.error();
  static constexpr std::string_view kLabel = "MemAvailable:";
  const std::size_t at = text->find(kLabel);
  if (at != std::string::npos) {
    std::string_view rest = std::string_view(*text).substr(at + kLabel.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    std::uint64_t kilobytes = 0;
    const auto [end, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), kilobytes);
    if (problem == std::errc{} && kilobytes <= (std::numeric_limits<std::uint64_t>::max() >> 10)) {
      return kib(kilobytes);
    }
  }
  return Error{Code::kSystem, 0, path, "has no MemAvailable: is /proc mounted whole?"};
}

Result<void> AvailableMemory::take(Bytes ask) {
  const auto now = std::chrono::steady_clock::now();
  const bool old = now - read_at_ > std::chrono::seconds(1);
  if (old || ask.count() > left_.count() / 8) {
    auto available = read_mem_available(meminfo_);
    if (!available) return available.error();
    left_ = *available > kMargin ? *available - kMargin : Bytes(0);
    read_at_ = now;
  }
  if (ask > left_) {
    return Error{Code::kExhausted, 0, cat("allocating ", format_bytes(ask)),
                 cat("the host has only ", left_.count() >> 20, " MiB to spare (MemAvailable less ",
                     format_bytes(kMargin), ")")};
  }
  left_ = left_ - ask;
  return {};
}

}  // namespace carveout
