#include "lender_facts.hpp"

#include "base/text.hpp"
#include "control_client.hpp"
#include "lender_text.hpp"
#include "results.hpp"

namespace carveout::probe {

std::string lender_facts(const std::string& control) {
  const auto status = ctl::ask(control, "status");
  if (!status) return cat(kLenderNotKnown, printable(status.error().describe(), 500));
  const std::string lender = ctl::lender_text(*status);
  return lender.empty() ? cat(kLenderNotKnown, "its status names no backend") : lender;
}

}  // namespace carveout::probe
