#include "show/svg_curve.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "show/markup.hpp"
#include "show/reread_curve.hpp"
#include "writing.hpp"

namespace carveout::probe {
namespace {

constexpr double kFont = 13;
// About as wide as a character is, and one of a name, which is bold, in the wider of common fonts.
constexpr double kCharacter = kFont * 0.58;
constexpr double kBoldCharacter = kFont * 0.7;
constexpr double kNameLine = 18;
constexpr double kEndLine = 17;
constexpr int kTicks = 5;
constexpr std::size_t kStyles = 8;
// Ordinary memory is solid.
constexpr std::array<const char*, kStyles> kDashes{"none", "7 4", "2 4",         "10 3 2 3",
                                                   "12 4", "4 2", "6 2 2 2 2 2", "1 3"};

std::string at(double value) {
  return fixed(value, 1);
}

std::string point(double x, double y) {
  return cat(at(x), ",", at(y));
}

// A path about the origin; filled shapes and open ones by turns would be lost in print, so that all
// are filled and differ in outline.
std::string marker_path(std::size_t style) {
  static constexpr std::array<const char*, kStyles> kShapes{
      "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",               // circle
      "M-4.2 -4.2h8.4v8.4h-8.4z",                                    // square
      "M0 -5.4L5.2 4.2H-5.2z",                                       // triangle
      "M0 -5.8L5.8 0L0 5.8L-5.8 0z",                                 // diamond
      "M0 5.4L5.2 -4.2H-5.2z",                                       // triangle, upside down
      "M-1.6 -5h3.2v3.4h3.4v3.2h-3.4v3.4h-3.2v-3.4h-3.4v-3.2h3.4z",  // cross
      "M-5.2 -2.6h10.4v5.2h-10.4z",                                  // bar
      "M-2.6 -5.2h5.2v10.4h-5.2z",                                   // upright bar
  };
  return kShapes[style];
}

// A label that wants to be at `y` beside its line.
struct Name {
  std::size_t arm = 0;
  double wanted = 0, y = 0;
};

// Moved apart to a line's distance, in their order, and kept within the chart.
void move_apart(std::vector<Name>& names, double top, double bottom) {
  std::sort(names.begin(), names.end(),
            [](const Name& a, const Name& b) { return a.wanted < b.wanted; });
  double least = top;
  for (Name& name : names) {
    name.y = std::max(name.wanted, least);
    least = name.y + kNameLine;
  }
  double most = bottom;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    name->y = std::min(name->y, most);
    most = name->y - kNameLine;
  }
}

class Drawing {
 public:
  Drawing(const Report& report, const RereadCurve& curve, SvgShape shape)
      : report_(report),
        curve_(curve),
        is_wide_(shape == SvgShape::kWide),
        id_(is_wide_ ? "wide" : "narrow"),
        step_(round_step(curve.most_of_all, kTicks)),
        most_(step_ * std::ceil(curve.most_of_all / step_ * 0.9999999)) {
    place_frame();
  }

  [[nodiscard]] std::string svg() const {
    return cat("<svg class=\"curve\" viewBox=\"0 0 ", at(width_), " ", at(height_),
               "\" role=\"img\" aria-labelledby=\"", id_, "-title ", id_, "-desc\" font-size=\"",
               at(kFont), "\" fill=\"currentColor\">\n", description(), grid(), size_axis(),
               cache_ends(), arms(), is_wide_ ? names_beside() : names_above(), "</svg>\n");
  }

 private:
  [[nodiscard]] std::string name(std::size_t arm) const { return arm_name(report_, arm); }
  [[nodiscard]] static std::size_t style(std::size_t arm) { return arm % kStyles; }
  [[nodiscard]] double x(Bytes size) const { return left_ + curve_.place(size) * (right_ - left_); }
  [[nodiscard]] double y(double rate) const { return bottom_ - rate / most_ * (bottom_ - top_); }

  void place_frame() {
    std::size_t longest = 0;
    for (const ArmCurve& arm : curve_.arms)
      longest = std::max(longest, probe::width(name(arm.arm)));
    width_ = is_wide_ ? 820 : 360;
    left_ = is_wide_ ? 58 : 44;
    right_ = width_ - (is_wide_ ? 44 + static_cast<double>(longest) * kBoldCharacter : 18);
    place_ends();
    const auto lines = static_cast<double>(std::max<std::size_t>(end_lines_.size(), 1));
    const double names = is_wide_ ? 0 : kNameLine * static_cast<double>(curve_.arms.size()) + 6;
    top_ = 26 + names + lines * kEndLine;
    bottom_ = top_ + (is_wide_ ? 310 : 230);
    height_ = bottom_ + 52;
  }

  // Labels of caches in as many lines as they need not to meet.
  void place_ends() {
    for (const CacheEnd& end : curve_.ends) {
      const std::string text = cat(end.name, " ends: ", format_bytes(end.size));
      const double half = static_cast<double>(text.size()) * kCharacter / 2;
      const double middle = std::clamp(x(end.size), left_ + half - 8, right_ - half + 8);
      std::size_t line = 0;
      while (line < end_lines_.size() && end_lines_[line] > middle - half)
        ++line;
      if (line == end_lines_.size()) end_lines_.push_back(0);
      end_lines_[line] = middle + half + 8;
      ends_.push_back({text, x(end.size), middle, line});
    }
  }

  [[nodiscard]] std::string description() const {
    std::string text;
    for (const ArmCurve& arm : curve_.arms) {
      const CurvePoint &first = arm.points.front(), &last = arm.points.back();
      text +=
          cat(name(arm.arm), ": ", figure(first.rate.median), " GB/s at ", format_bytes(first.size),
              ", ", figure(last.rate.median), " GB/s at ", format_bytes(last.size), ". ");
    }
    for (const CacheEnd& end : curve_.ends)
      text += cat(end.name, " ends at ", format_bytes(end.size), ". ");
    text += "The figures are in the table below.";
    return cat("<title id=\"", id_, "-title\">Rate of rereading over the size of the working set",
               "</title>\n<desc id=\"", id_, "-desc\">", escaped(text), "</desc>\n");
  }

  [[nodiscard]] std::string grid() const {
    std::string text = cat("<text class=\"tick\" x=\"", at(is_wide_ ? left_ - 44 : 4), "\" y=\"",
                           at(top_ - 12), "\">GB/s</text>\n");
    for (int i = 0; i * step_ <= most_ * 1.0000001; ++i) {
      const std::string here = at(y(i * step_));
      text += cat("<path class=\"", i == 0 ? "axis" : "grid", "\" d=\"M", at(left_), " ", here, "H",
                  at(right_), "\" fill=\"none\" stroke=\"currentColor\" stroke-opacity=\"",
                  i == 0 ? "0.7" : "0.15", "\"/>\n");
      text += cat("<text class=\"tick\" x=\"", at(left_ - 8), "\" y=\"", at(y(i * step_) + 4.5),
                  "\" text-anchor=\"end\">", tick_label(i * step_, step_), "</text>\n");
    }
    return text;
  }

  [[nodiscard]] std::string size_axis() const {
    const std::vector<Bytes> labelled = labelled_sizes();
    std::string text;
    for (const Bytes size : curve_.sizes) {
      const bool has_label = std::find(labelled.begin(), labelled.end(), size) != labelled.end();
      text += cat("<path class=\"axis\" d=\"M", at(x(size)), " ", at(bottom_), "v",
                  has_label ? "6" : "3",
                  "\" fill=\"none\" stroke=\"currentColor\" stroke-opacity=\"0.7\"/>\n");
    }
    for (const Bytes size : labelled) {
      const bool is_judged = size == report_.reread_size;
      text += cat("<text class=\"", is_judged ? "judged" : "tick", "\" x=\"", at(x(size)),
                  "\" y=\"", at(bottom_ + 21), "\" text-anchor=\"middle\"",
                  is_judged ? " font-weight=\"700\"" : "", ">", format_bytes(size), "</text>\n");
    }
    return text + cat("<text class=\"tick\" x=\"", at((left_ + right_) / 2), "\" y=\"",
                      at(bottom_ + 42), "\" text-anchor=\"middle\">size of the working set ",
                      "(logarithmic)</text>\n");
  }

  // As many as there is room for, the judged size in any case.
  [[nodiscard]] std::vector<Bytes> labelled_sizes() const {
    const std::vector<Bytes> sizes = sizes_to_label(curve_, report_.reread_size);
    std::size_t widest = 0;
    for (const Bytes size : sizes)
      widest = std::max(widest, format_bytes(size).size());
    std::vector<double> places;
    places.reserve(sizes.size());
    for (const Bytes size : sizes)
      places.push_back(x(size) / (static_cast<double>(widest) * kCharacter + 8));
    const std::size_t stride = label_stride(places);
    const auto judged = std::find(sizes.begin(), sizes.end(), report_.reread_size);
    const std::size_t first =
        judged == sizes.end() ? 0 : static_cast<std::size_t>(judged - sizes.begin()) % stride;
    std::vector<Bytes> labelled;
    for (std::size_t i = first; i < sizes.size(); i += stride)
      labelled.push_back(sizes[i]);
    return labelled;
  }

  [[nodiscard]] std::string cache_ends() const {
    std::string text;
    for (const End& end : ends_) {
      const double y = top_ - 12 - static_cast<double>(end.line) * kEndLine;
      text += cat("<path class=\"end\" d=\"M", at(end.x), " ", at(y + 5), "V", at(bottom_),
                  "\" fill=\"none\" stroke=\"currentColor\" stroke-opacity=\"0.6\" "
                  "stroke-dasharray=\"3 3\"/>\n<text class=\"tick\" x=\"",
                  at(end.middle), "\" y=\"", at(y), "\" text-anchor=\"middle\">", end.text,
                  "</text>\n");
    }
    return text;
  }

  // The bands of all lie beneath the lines of all.
  [[nodiscard]] std::string arms() const {
    std::string bands, lines;
    for (const ArmCurve& arm : curve_.arms) {
      bands += band(arm);
      lines += line(arm);
    }
    return bands + lines;
  }

  [[nodiscard]] std::string band(const ArmCurve& arm) const {
    std::string there, back;
    for (const CurvePoint& one : arm.points) {
      there += point(x(one.size), y(one.rate.most)) + ' ';
      back.insert(0, point(x(one.size), y(one.rate.least)) + ' ');
    }
    back.pop_back();
    return cat("<polygon class=\"band a", style(arm.arm), "\" points=\"", there, back,
               "\" fill=\"currentColor\" fill-opacity=\"0.18\"/>\n");
  }

  [[nodiscard]] std::string marker(std::size_t arm, double x, double y,
                                   const std::string& title) const {
    return cat("<path class=\"mark a", style(arm), "\" transform=\"translate(", at(x), " ", at(y),
               ")\" d=\"", marker_path(style(arm)), "\">", title, "</path>\n");
  }

  [[nodiscard]] static std::string dashes(std::size_t arm) {
    return cat("fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\" stroke-dasharray=\"",
               kDashes[style(arm)], "\"");
  }

  [[nodiscard]] std::string line(const ArmCurve& arm) const {
    std::string points, marks;
    for (const CurvePoint& one : arm.points) {
      points += (points.empty() ? "" : " ") + point(x(one.size), y(one.rate.median));
      marks += marker(arm.arm, x(one.size), y(one.rate.median),
                      cat("<title>", escaped(name(arm.arm)), ", ", format_bytes(one.size), ": ",
                          figure(one.rate.median), " GB/s (", figure(one.rate.least), "–",
                          figure(one.rate.most), ")</title>"));
    }
    return cat("<g><polyline class=\"line a", style(arm.arm), "\" points=\"", points, "\" ",
               dashes(arm.arm), "/>\n", marks, "</g>\n");
  }

  [[nodiscard]] std::string names_beside() const {
    std::vector<Name> names;
    for (const ArmCurve& arm : curve_.arms)
      names.push_back({arm.arm, y(arm.points.back().rate.median), 0});
    move_apart(names, top_, bottom_);
    std::string text;
    for (const Name& one : names) {
      // From the last point, which may be short of the right edge.
      const auto& points =
          std::find_if(curve_.arms.begin(), curve_.arms.end(), [&one](const ArmCurve& arm) {
            return arm.arm == one.arm;
          })->points;
      text += cat("<path class=\"leader a", style(one.arm), "\" d=\"M",
                  at(x(points.back().size) + 8), " ", at(one.wanted), "L", at(right_ + 22), " ",
                  at(one.y), "\" fill=\"none\" stroke=\"currentColor\" stroke-opacity=\"0.6\"/>\n");
      text += marker(one.arm, right_ + 28, one.y, "");
      text += cat("<text class=\"name a", style(one.arm), "\" x=\"", at(right_ + 38), "\" y=\"",
                  at(one.y + 4.5), "\">", escaped(name(one.arm)), "</text>\n");
    }
    return text;
  }

  [[nodiscard]] std::string names_above() const {
    std::string text;
    double y = 14;
    for (const ArmCurve& arm : curve_.arms) {
      text += cat("<path class=\"line a", style(arm.arm), "\" d=\"M4 ", at(y), "H48\" ",
                  dashes(arm.arm), "/>\n", marker(arm.arm, 26, y, ""), "<text class=\"name a",
                  style(arm.arm), "\" x=\"56\" y=\"", at(y + 4.5), "\">", escaped(name(arm.arm)),
                  "</text>\n");
      y += kNameLine;
    }
    return text;
  }

  struct End {
    std::string text;
    double x = 0, middle = 0;
    std::size_t line = 0;  // from below
  };

  const Report& report_;
  const RereadCurve& curve_;
  bool is_wide_;
  std::string_view id_;
  double step_, most_;
  double width_ = 0, height_ = 0, left_ = 0, right_ = 0, top_ = 0, bottom_ = 0;
  std::vector<double> end_lines_;  // to where each line of them is used
  std::vector<End> ends_;
};

}  // namespace

std::string svg_curve(const Report& report, SvgShape shape) {
  const RereadCurve curve = reread_curve(report);
  return curve.is_empty() ? std::string() : Drawing(report, curve, shape).svg();
}

std::string svg_swatch(std::size_t arm) {
  return cat(
      "<svg class=\"swatch\" viewBox=\"-6 -6 12 12\" width=\"12\" height=\"12\" "
      "fill=\"currentColor\" aria-hidden=\"true\"><path class=\"mark a",
      arm % kStyles, "\" d=\"", marker_path(arm % kStyles), "\"/></svg>");
}

}  // namespace carveout::probe
