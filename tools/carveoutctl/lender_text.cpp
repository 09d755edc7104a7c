#include "lender_text.hpp"

#include "base/json.hpp"
#include "base/text.hpp"

namespace carveout::ctl {
namespace {

constexpr std::string_view kDaemon = "carveoutd ";
constexpr std::string_view kBackend = "backend ";
constexpr std::size_t kMaxText = 200;

std::string text(const rapidjson::Value& object, const char* name) {
  const auto* value = find_member(object, name);
  return value != nullptr && value->IsString() ? printable(value->GetString(), kMaxText) : "";
}

std::string_view or_unknown(std::string_view text) {
  return text.empty() ? "?" : text;
}

}  // namespace

std::string lender_text(const rapidjson::Value& status) {
  const std::string backend = text(status, "backend");
  if (backend.empty()) return {};
  const std::string descriptor = text(status, "descriptor");
  return cat(kDaemon, or_unknown(text(status, "version")), ", ", kBackend, backend, " (",
             or_unknown(text(status, "backend_detail")), ")",
             descriptor.empty() ? "" : ", lent as ", descriptor);
}

std::string_view backend_in(std::string_view lender) {
  const auto comma = lender.find(", ");
  if (!lender.starts_with(kDaemon) || comma == std::string_view::npos) return {};
  const std::string_view rest = lender.substr(comma + 2);
  return rest.starts_with(kBackend) ? rest : std::string_view();
}

}  // namespace carveout::ctl
