#include "show/curve.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "show/reread_curve.hpp"
#include "writing.hpp"

namespace carveout::probe {
namespace {

constexpr std::size_t kRows = 16;
constexpr std::size_t kMostColumns = 120;
constexpr std::size_t kGutter = 7;  // the rates and the axis
constexpr int kTicks = 4;
constexpr std::array<std::string_view, 8> kMarks{"●", "○", "▲", "△", "■", "□", "◆", "◇"};
// Where no place is left beside an arm's mark.
constexpr std::string_view kSeveral = "✳";
constexpr std::string_view kCacheEnd = "┊";

std::size_t rounded(double value) {
  return static_cast<std::size_t>(std::llround(std::max(0.0, value)));
}

// A braille character of a cell whose dots `bits` are.
std::string braille(unsigned bits) {
  const unsigned code = 0x2800U + bits;
  return {static_cast<char>(0xE0U | (code >> 12U)),
          static_cast<char>(0x80U | ((code >> 6U) & 0x3FU)),
          static_cast<char>(0x80U | (code & 0x3FU))};
}

// Cells of characters over a finer raster of dots, two by four a cell.
class Canvas {
 public:
  explicit Canvas(std::size_t columns) : columns_(columns), cells_(columns * kRows) {}

  void line(double x0, double y0, double x1, double y1) {
    const auto steps =
        std::max<std::size_t>(rounded(std::max(std::abs(x1 - x0), std::abs(y1 - y0))), 1);
    for (std::size_t i = 0; i <= steps; ++i) {
      const double part = static_cast<double>(i) / static_cast<double>(steps);
      dot(x0 + (x1 - x0) * part, y0 + (y1 - y0) * part);
    }
  }
  void upright(std::size_t column) {
    for (std::size_t row = 0; row < kRows; ++row)
      cell(column, row).has_cache_end = true;
  }
  // There, or beside it where another mark is. False where it is not quite there.
  bool mark(std::size_t column, std::size_t row, std::string_view mark) {
    for (const int aside : {0, 1, -1, 2, -2}) {
      const auto at = static_cast<std::ptrdiff_t>(column) + aside;
      if (at < 0 || at >= static_cast<std::ptrdiff_t>(columns_)) continue;
      std::string_view& here = cell(static_cast<std::size_t>(at), row).mark;
      if (!here.empty()) continue;
      here = mark;
      return aside == 0;
    }
    cell(column, row).mark = kSeveral;
    return false;
  }
  [[nodiscard]] std::string text(std::size_t row) const {
    std::string line;
    for (std::size_t column = 0; column < columns_; ++column) {
      const Cell& here = cells_[row * columns_ + column];
      if (!here.mark.empty())
        line += here.mark;
      else if (here.dots != 0)
        line += braille(here.dots);
      else
        line += here.has_cache_end ? kCacheEnd : " ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  }

 private:
  struct Cell {
    std::string_view mark;
    unsigned dots = 0;
    bool has_cache_end = false;
  };
  Cell& cell(std::size_t column, std::size_t row) { return cells_[row * columns_ + column]; }
  void dot(double x, double y) {
    // By column and row within a cell, as Unicode numbers the dots of a braille character.
    static constexpr std::array<std::array<unsigned, 4>, 2> kDots{
        {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
    const std::size_t column = std::min(rounded(x), columns_ * 2 - 1);
    const std::size_t row = std::min(rounded(y), kRows * 4 - 1);
    cell(column / 2, row / 4).dots |= kDots[column % 2][row % 4];
  }

  std::size_t columns_;
  std::vector<Cell> cells_;
};

// Labels in one line, each about its column, none upon another.
class LabelLine {
 public:
  explicit LabelLine(std::size_t columns) : columns_(columns) {}
  // False where there is no room for it.
  bool put(std::string_view label, std::size_t middle) {
    const std::size_t half = label.size() / 2;
    std::size_t start = middle > half ? middle - half : 0;
    if (start + label.size() > columns_) start = columns_ - std::min(columns_, label.size());
    if (start < used_ || start + label.size() > columns_) return false;
    line_.append(start - line_.size(), ' ');
    line_ += label;
    used_ = line_.size() + 2;
    return true;
  }
  [[nodiscard]] const std::string& text() const { return line_; }

 private:
  std::size_t columns_;
  std::size_t used_ = 0;  // to where nothing may begin
  std::string line_;
};

// The curve's places in cells.
struct Frame {
  const RereadCurve& curve;
  std::size_t columns;  // of the chart alone

  [[nodiscard]] std::size_t column(Bytes size) const {
    return rounded(curve.place(size) * static_cast<double>(columns - 1));
  }
  // 0 at the top, where the largest is.
  [[nodiscard]] std::size_t row(double rate) const {
    return rounded((1 - rate / curve.most) * static_cast<double>(kRows - 1));
  }
};

// False where marks stand beside their places.
bool draw(Canvas& canvas, const Frame& frame) {
  for (const CacheEnd& end : frame.curve.ends)
    canvas.upright(frame.column(end.size));
  bool in_place = true;
  for (const ArmCurve& arm : frame.curve.arms) {
    const CurvePoint* before = nullptr;
    for (const CurvePoint& point : arm.points) {
      const auto x = [&frame](const CurvePoint& one) {
        return static_cast<double>(frame.column(one.size)) * 2;
      };
      const auto y = [&frame](const CurvePoint& one) {
        return (1 - one.rate.median / frame.curve.most) * static_cast<double>(kRows - 1) * 4 + 1.5;
      };
      if (before != nullptr) canvas.line(x(*before), y(*before), x(point), y(point));
      before = &point;
      in_place &= canvas.mark(frame.column(point.size), frame.row(point.rate.median),
                              kMarks[arm.arm % kMarks.size()]);
    }
  }
  return in_place;
}

// Each row with its rate where one is written, and the axis.
std::string rows(const Canvas& canvas, const Frame& frame) {
  std::array<std::string, kRows> rates;
  const double step = round_step(frame.curve.most, kTicks);
  for (int i = 0; i * step <= frame.curve.most * 1.0000001; ++i)
    rates[frame.row(i * step)] = tick_label(i * step, step);
  std::string text;
  for (std::size_t row = 0; row < kRows; ++row) {
    const std::string& rate = rates[row];
    const std::size_t room = kGutter - 2;
    text += std::string(room - std::min(room, rate.size()), ' ') + rate;
    text += cat(rate.empty() ? " │" : " ┤", canvas.text(row), "\n");
  }
  return text;
}

// The axis of sizes, and as many of them as there is room for.
std::string size_axis(const Frame& frame) {
  const std::vector<Bytes> sizes = sizes_to_label(frame.curve, Bytes(0));
  std::vector<double> places;
  std::size_t widest = 0;
  for (const Bytes size : sizes)
    widest = std::max(widest, format_bytes(size).size());
  places.reserve(sizes.size());
  for (const Bytes size : sizes) {
    places.push_back(static_cast<double>(frame.column(size)) / static_cast<double>(widest + 2));
  }
  const std::size_t stride = label_stride(places);
  LabelLine labels(kGutter + frame.columns);
  std::vector<bool> ticks(frame.columns);
  for (std::size_t i = 0; i < sizes.size(); i += stride) {
    const Bytes size = sizes[i];
    ticks[frame.column(size)] = labels.put(format_bytes(size), kGutter + frame.column(size));
  }
  std::string axis = std::string(kGutter - 1, ' ') + "└";
  for (const bool tick : ticks)
    axis += tick ? "┬" : "─";
  return cat(axis, "\n", labels.text(), "\n");
}

// Which cache ends at which upright line; one that has no room is named below the chart all the
// same.
std::string cache_line(const Frame& frame) {
  LabelLine labels(kGutter + frame.columns);
  for (const CacheEnd& end : frame.curve.ends) {
    if (!labels.put(cat(end.name, " ", format_bytes(end.size)), kGutter + frame.column(end.size))) {
      labels.put(end.name, kGutter + frame.column(end.size));
    }
  }
  return labels.text().empty() ? "" : labels.text() + '\n';
}

std::string legend(const Report& report, const Frame& frame, std::size_t columns, bool in_place) {
  std::string text, line;
  const auto add = [&](const std::string& item) {
    if (!line.empty() && width(line) + 3 + width(item) > columns) {
      text += line + '\n';
      line.clear();
    }
    line += (line.empty() ? "  " : "   ") + item;
  };
  for (const ArmCurve& arm : frame.curve.arms)
    add(cat(kMarks[arm.arm % kMarks.size()], " ", arm_name(report, arm.arm)));
  if (!frame.curve.ends.empty()) add(cat(kCacheEnd, " a cache ends"));
  text += line + '\n';
  if (!in_place) {
    text += wrapped(cat("Marks side by side are of one size and about one rate; ", kSeveral,
                        " is several of them."),
                    columns, "  ");
  }
  for (const std::string& likeness : likenesses(report, frame.curve))
    text += wrapped(likeness, columns, "  ");
  return text;
}

}  // namespace

std::string terminal_curve(const Report& report, unsigned columns) {
  const RereadCurve curve = reread_curve(report);
  if (curve.is_empty() || columns < kLeastCurveColumns) return {};
  const std::size_t all = std::min<std::size_t>(columns, kMostColumns);
  const Frame frame{curve, all - kGutter};
  Canvas canvas(frame.columns);
  const bool in_place = draw(canvas, frame);
  return cat(wrapped("Rereading: GB/s over the size of the working set (medians)", all),
             cache_line(frame), rows(canvas, frame), size_axis(frame),
             legend(report, frame, all, in_place));
}

}  // namespace carveout::probe
