#include "l2.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <ctime>
#include <string_view>
#include <utility>

#include "base/json.hpp"
#include "base/text.hpp"
#include "lender_text.hpp"

namespace carveout::ctl {
namespace {

constexpr std::size_t kMaxText = 1024;
// What `status` has room for; the rest is in its JSON.
constexpr std::size_t kMaxArms = 8;
constexpr const char* kNothingLent = "no lent memory was measured";

using Allocator = rapidjson::Document::AllocatorType;

rapidjson::Value text_value(std::string_view text, Allocator& allocator) {
  const std::string safe = printable(text, kMaxText);
  return {safe.data(), static_cast<rapidjson::SizeType>(safe.size()), allocator};
}

// As far as it is known.
void add_text(rapidjson::Value& object, const char* name, std::string_view text,
              Allocator& allocator) {
  if (text.empty()) return;
  object.AddMember(rapidjson::StringRef(name), text_value(text, allocator), allocator);
}

rapidjson::Value arms_value(const client::L2Class& found, Allocator& allocator) {
  rapidjson::Value arms(rapidjson::kArrayType);
  for (const client::L2Class::Arm& arm : found.arms) {
    rapidjson::Value object(rapidjson::kObjectType);
    add_text(object, "arm", arm.name, allocator);
    add_text(object, "source", arm.source, allocator);
    add_text(object, "map", arm.map, allocator);
    add_text(object, "residency", arm.residency, allocator);
    add_text(object, "why", arm.why, allocator);
    arms.PushBack(std::move(object), allocator);
  }
  return arms;
}

std::string text(const rapidjson::Value& object, const char* name) {
  const auto* value = object.IsObject() ? find_member(object, name) : nullptr;
  return value != nullptr && value->IsString() ? value->GetString() : "";
}

// "2026-11-30", in UTC: the same for everybody who looks at the file.
std::string day(const rapidjson::Value& l2) {
  const auto* value = find_member(l2, "measured_unix_s");
  if (value == nullptr || !value->IsNumber()) return {};
  // Up to the year 9999: what is beyond is nobody's clock.
  const auto seconds =
      static_cast<std::time_t>(std::clamp(value->GetDouble(), 0.0, 253402300799.0));
  std::tm parts{};
  std::array<char, 32> buffer{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return {};
  return {buffer.data(), std::strftime(buffer.data(), buffer.size(), "%Y-%m-%d", &parts)};
}

std::string verdicts(const rapidjson::Value& l2) {
  const auto* arms = find_member(l2, "arms");
  if (arms == nullptr || !arms->IsArray()) return kNothingLent;
  std::string all;
  std::size_t lent = 0;
  for (const rapidjson::Value& arm : arms->GetArray()) {
    if (!client::is_lent(text(arm, "source")) || ++lent > kMaxArms) continue;
    std::string word = text(arm, "residency");
    std::replace(word.begin(), word.end(), '_', ' ');
    all += cat(lent == 1 ? "" : ", ", text(arm, "arm"), " ", word);
  }
  if (lent > kMaxArms) all += cat(" and ", lent - kMaxArms, " more");
  return lent == 0 ? kNothingLent : all;
}

// Whether it is about memory that a daemon has lent.
bool has_daemons(const rapidjson::Value& l2) {
  const auto* arms = find_member(l2, "arms");
  if (arms == nullptr || !arms->IsArray()) return false;
  return std::any_of(arms->Begin(), arms->End(),
                     [](const rapidjson::Value& arm) { return text(arm, "source") == "daemon"; });
}

// In what this is not as it was measured, and what to do; empty where it is, as far as is known.
std::string unlike(const rapidjson::Value& l2) {
  std::string all;
  const auto add = [&all](const std::string& what) {
    all += cat(all.empty() ? "; measured " : ", and ", what);
  };
  const auto differ = [&add](const char* what, std::string_view then, std::string_view now) {
    if (!then.empty() && !now.empty() && then != now) add(cat(what, " ", then, ", now ", now));
  };
  differ("on", text(l2, "host"), text(l2, "host_now"));
  differ("with driver", text(l2, "driver"), text(l2, "driver_now"));
  differ("with", text(l2, "kernel"), text(l2, "kernel_now"));
  if (has_daemons(l2)) {
    const std::string lender = text(l2, "lender"), lender_now = text(l2, "lender_now");
    differ("with", backend_in(lender), backend_in(lender_now));
    if (backend_in(lender).empty() && !backend_in(lender_now).empty()) {
      add("with a backend that the result does not know (as root the probe asks for it)");
    }
  }
  return all.empty() ? all : cat(all, ": measure again");
}

}  // namespace

void add_l2(rapidjson::Document& status, const std::string& file, const client::Here& here) {
  Allocator& allocator = status.GetAllocator();
  rapidjson::Value l2(rapidjson::kObjectType);
  add_text(l2, "file", file, allocator);
  const auto found = client::read_l2_class(file);
  const bool measured = found && found->has_value();
  l2.AddMember("measured", measured, allocator);
  if (!found) add_text(l2, "problem", found.error().describe(), allocator);
  if (measured) {
    const client::L2Class& l2_class = **found;
    add_text(l2, "engine", l2_class.engine, allocator);
    add_text(l2, "gpu", l2_class.gpu, allocator);
    add_text(l2, "driver", l2_class.driver, allocator);
    add_text(l2, "lender", l2_class.lender, allocator);
    add_text(l2, "host", l2_class.host, allocator);
    add_text(l2, "kernel", l2_class.kernel, allocator);
    l2.AddMember("measured_unix_s", l2_class.measured_unix_s, allocator);
    l2.AddMember("arms", arms_value(l2_class, allocator), allocator);
  }
  add_text(l2, "driver_now", here.driver, allocator);
  add_text(l2, "host_now", here.host, allocator);
  add_text(l2, "kernel_now", here.kernel, allocator);
  add_text(l2, "lender_now", lender_text(status), allocator);
  status.AddMember("l2", std::move(l2), allocator);
}

std::string l2_line(const rapidjson::Value& status) {
  const auto* l2 = find_member(status, "l2");
  if (l2 == nullptr || !l2->IsObject()) return {};
  if (const std::string problem = text(*l2, "problem"); !problem.empty()) {
    return cat("not known: ", problem);
  }
  const auto* measured = find_member(*l2, "measured");
  if (measured == nullptr || !measured->IsTrue()) {
    return cat("not measured: carveout-probe residency --engine gpu --json ", text(*l2, "file"));
  }
  const std::string line = verdicts(*l2);
  if (text(*l2, "engine") == "cpu") {
    return cat("not measured: ", text(*l2, "file"), " is about the processor's caches (", line,
               "; ", day(*l2), "), not the L2: --engine gpu");
  }
  const std::string gpu = text(*l2, "gpu");
  const std::string driver = text(*l2, "driver");
  return cat(line, " (", gpu, gpu.empty() ? "" : ", ",
             driver.empty() ? "" : cat("driver ", driver, ", "), "measured ", day(*l2),
             "; carveout-probe)", unlike(*l2));
}

}  // namespace carveout::ctl
