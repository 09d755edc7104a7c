#include "progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "base/text.hpp"

namespace carveout::probe {
namespace {

constexpr std::size_t kTextColumns = 34;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string progress_line(std::size_t done, std::size_t all, double seconds, std::size_t columns) {
  const std::size_t width = std::clamp<std::size_t>(columns, kTextColumns + 10, 100) - kTextColumns;
  const std::size_t full = all == 0 ? width : std::min(done, all) * width / all;
  std::string line = cat("[", std::string(full, '#'), std::string(width - full, ' '), "] ",
                         all == 0 ? 100 : std::min(done, all) * 100 / all, " %");
  if (done != 0 && done < all) {
    const double left = seconds / static_cast<double>(done) * static_cast<double>(all - done);
    line += cat(", about ", static_cast<std::uint64_t>(left) + 1, " s left");
  }
  return line;
}

ProgressBar::ProgressBar() : terminal_(::isatty(STDERR_FILENO) == 1), begun_(now()) {}

void ProgressBar::say(const std::string& what) {
  if (!terminal_) return;
  std::cerr << "\r\x1b[K" << what << std::flush;
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
