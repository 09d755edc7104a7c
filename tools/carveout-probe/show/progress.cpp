#include "show/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "base/text.hpp"

namespace carveout::probe {
namespace {

constexpr std::size_t kTextColumns = 34;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A terminal that takes a line away when it is told to.
bool can_redraw() {
  const char* const kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && (kind == nullptr || std::string_view(kind) != "dumb");
}

}  // namespace

std::string progress_line(std::size_t done, std::size_t all, double seconds, std::size_t columns) {
  const std::size_t width = std::clamp<std::size_t>(columns, kTextColumns + 10, 100) - kTextColumns;
  const std::size_t full = all == 0 ? width : std::min(done, all) * width / all;
  const std::string part = cat(all == 0 ? 100 : std::min(done, all) * 100 / all, " %");
  std::string line = cat("[", std::string(full, '#'), std::string(width - full, ' '), "] ", part);
  if (done != 0 && done < all) {
    const double left = seconds / static_cast<double>(done) * static_cast<double>(all - done);
    line += cat(", about ", static_cast<std::uint64_t>(left) + 1, " s left");
  }
  return line.size() <= columns ? line : part;
}

ProgressBar::ProgressBar() : terminal_(can_redraw()), begun_(now()) {}

void ProgressBar::say(const std::string& what) {
  if (!terminal_) return;
  // A line that goes on in the next one could not be taken away again.
  std::cerr << "\r\x1b[K" << what.substr(0, columns_of(STDERR_FILENO)) << std::flush;
  drawn_ = true;
}

void ProgressBar::show(std::size_t done, std::size_t all) {
  if (done <= 1) begun_ = now();
  say(progress_line(done, all, now() - begun_, columns_of(STDERR_FILENO)));
}

void ProgressBar::clear() {
  if (drawn_) std::cerr << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

std::size_t columns_of(int descriptor) {
  winsize size{};
  const bool known = ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col != 0;
  return known ? size.ws_col : 80;
}

}  // namespace carveout::probe
