#pragma once

#include <cstddef>
#include <string>

namespace carveout::probe {

// A bar of `columns` for a terminal: "[#####     ] 37 %, about 40 s left"; "37 %" where there is no
// room for one. Pure.
[[nodiscard]] std::string progress_line(std::size_t done, std::size_t all, double seconds,
                                        std::size_t columns);

// Draws it on standard error, if that is a terminal (and no dumb one), and takes it away again.
class ProgressBar {
 public:
  ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ProgressBar(ProgressBar&&) = delete;
  ProgressBar& operator=(ProgressBar&&) = delete;
  ~ProgressBar() { clear(); }

  // What there is to be seen before the first batch is done.
  void say(const std::string& what);
  void show(std::size_t done, std::size_t all);
  void clear();

 private:
  bool terminal_;
  bool drawn_ = false;
  double begun_ = 0;
};

// Of a terminal; 80 where that is not known.
[[nodiscard]] std::size_t columns_of(int descriptor);

}  // namespace carveout::probe
