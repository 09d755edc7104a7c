#include "lender_facts.hpp"

#include "base/json.hpp"
#include "base/text.hpp"
#include "control_client.hpp"

namespace carveout::probe {
namespace {

std::string text(const rapidjson::Value& object, const char* name) {
  const auto* value = find_member(object, name);
  return value != nullptr && value->IsString() ? printable(value->GetString(), 200) : "?";
}

}  // namespace

std::string lender_facts(const std::string& control) {
  const auto status = ctl::ask(control, "status");
  if (!status) return cat("not known: ", printable(status.error().describe(), 500));
  return cat("carveoutd ", text(*status, "version"), ", backend ", text(*status, "backend"), " (",
             text(*status, "backend_detail"), ")");
}

}  // namespace carveout::probe
