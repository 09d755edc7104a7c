#include "well_formed.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "base/text.hpp"

namespace carveout {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kEntities{
    {{"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}}};
const std::set<std::string, std::less<>> kWithoutEnd{"meta", "br", "hr", "img", "link", "input"};
// Those of SVG that may close themselves.
const std::set<std::string, std::less<>> kDrawn{"path",   "rect",    "line",
                                                "circle", "polygon", "polyline"};

struct Tag : HtmlElement {
  bool is_end = false, closes_itself = false;
};

class Reader {
 public:
  explicit Reader(std::string_view html) : rest_(html) {}

  std::string read() {
    constexpr std::string_view kBegin = "<!DOCTYPE html>";
    if (rest_.starts_with(kBegin)) rest_.remove_prefix(kBegin.size());
    while (fault_.empty() && !rest_.empty()) {
      if (rest_[0] == '<')
        element();
      else
        text();
    }
    if (fault_.empty() && !open_.empty()) fail(cat("<", open_.back(), "> is not closed"));
    for (const std::string& id : wanted_)
      if (fault_.empty() && !ids_.contains(id)) fail(cat("there is no id ", id));
    return fault_;
  }
  [[nodiscard]] const std::string& plain() const { return plain_; }
  [[nodiscard]] const std::vector<HtmlElement>& elements() const { return elements_; }

 private:
  void fail(std::string what) {
    if (fault_.empty()) fault_ = std::move(what);
  }
  bool take(std::string_view what) {
    if (!rest_.starts_with(what)) return false;
    rest_.remove_prefix(what.size());
    return true;
  }
  void skip_spaces() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0])) != 0)
      rest_.remove_prefix(1);
  }
  std::string name() {
    std::string name;
    while (!rest_.empty() &&
           (std::isalnum(static_cast<unsigned char>(rest_[0])) != 0 || rest_[0] == '-')) {
      name += rest_[0];
      rest_.remove_prefix(1);
    }
    return name;
  }
  std::optional<std::string_view> entity() {
    for (const auto& [written, meant] : kEntities)
      if (take(written)) return meant;
    fail(cat("an & that begins nothing: ", rest_.substr(0, 20)));
    return std::nullopt;
  }
  void text() {
    if (rest_[0] == '>') return fail(cat("a > in text: ", rest_.substr(0, 20)));
    std::string_view meant = rest_.substr(0, 1);
    if (rest_[0] == '&')
      meant = entity().value_or("");
    else
      rest_.remove_prefix(1);
    plain_ += meant;
    if (!is_after_end_ && !elements_.empty()) elements_.back().text += meant;
  }
  std::string value() {
    std::string value;
    while (fault_.empty() && !rest_.empty() && rest_[0] != '"') {
      if (rest_[0] == '<') fail("a < in an attribute");
      if (rest_[0] == '&') {
        if (const auto meant = entity()) value += *meant;
      } else {
        value += rest_[0];
        rest_.remove_prefix(1);
      }
    }
    if (!take("\"")) fail("an attribute's quote is not closed");
    return value;
  }
  Tag tag() {
    take("<");
    Tag tag;
    tag.is_end = take("/");
    tag.name = name();
    if (tag.name.empty()) fail(cat("a < that begins no element: ", rest_.substr(0, 20)));
    while (fault_.empty()) {
      skip_spaces();
      if (take(">")) break;
      if (take("/>")) {
        tag.closes_itself = true;
        break;
      }
      const std::string attribute = name();
      if (attribute.empty()) fail(cat("no attribute in <", tag.name, ">: ", rest_.substr(0, 20)));
      const std::string given = take("=\"") ? value() : "";
      if (!tag.attributes.emplace(attribute, given).second)
        fail(cat(attribute, " twice in <", tag.name, ">"));
    }
    return tag;
  }
  void note(const Tag& tag) {
    if (const auto id = tag.attributes.find("id"); id != tag.attributes.end()) {
      if (!ids_.insert(id->second).second) fail(cat("the id ", id->second, " comes twice"));
    }
    if (const auto by = tag.attributes.find("aria-labelledby"); by != tag.attributes.end()) {
      std::istringstream names(by->second);
      for (std::string one; names >> one;)
        wanted_.push_back(one);
    }
  }
  void element() {
    const Tag tag = this->tag();
    if (!fault_.empty()) return;
    note(tag);
    plain_ += ' ';
    is_after_end_ = tag.is_end || tag.closes_itself;
    if (!tag.is_end) elements_.push_back(tag);
    if (tag.is_end) {
      if (open_.empty() || open_.back() != tag.name) {
        return fail(cat("</", tag.name, "> closes <", open_.empty() ? "" : open_.back(), ">"));
      }
      open_.pop_back();
      return;
    }
    if (tag.closes_itself) {
      if (!kDrawn.contains(tag.name)) fail(cat("<", tag.name, "/> does not close itself"));
      return;
    }
    if (kWithoutEnd.contains(tag.name)) return;
    open_.push_back(tag.name);
    if (tag.name == "style" || tag.name == "script") {
      const std::size_t end = rest_.find(cat("</", tag.name, ">"));
      rest_.remove_prefix(std::min(end, rest_.size()));
    }
  }

  std::string_view rest_;
  std::string fault_, plain_;
  std::vector<std::string> open_, wanted_;
  std::set<std::string> ids_;
  std::vector<HtmlElement> elements_;
  bool is_after_end_ = false;
};

}  // namespace

std::string fault_of_html(std::string_view html) {
  if (!is_utf8(html)) return "not UTF-8";
  return Reader(html).read();
}

std::string text_of_html(std::string_view html) {
  Reader reader(html);
  static_cast<void>(reader.read());
  std::istringstream words(reader.plain());
  std::string text, word;
  while (words >> word)
    text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<HtmlElement> elements_of_html(std::string_view html) {
  Reader reader(html);
  static_cast<void>(reader.read());
  return reader.elements();
}

}  // namespace carveout
