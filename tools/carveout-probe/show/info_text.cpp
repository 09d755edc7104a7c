#include "show/info_text.hpp"

#include <string_view>

#include "base/text.hpp"
#include "writing.hpp"

namespace carveout::probe {
namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kLongest = 1000;

std::string row(std::string_view name, std::string_view value) {
  if (value.empty()) return {};
  std::string first(name);
  first.resize(12, ' ');
  return wrapped(printable(value, kLongest), kColumns, first);
}

}  // namespace

std::string info_text(const Report& report) {
  const Machine& machine = report.machine;
  std::string text =
      row("engine", cat(name_of(report.engine), ": ", report.engine_detail)) +
      row("caches", caches(report)) + row("GPU", machine.gpu) + row("driver", machine.driver) +
      row("CUDA", machine.cuda) + row("host", machine.host) + row("kernel", machine.kernel) +
      row("processor", machine.processor) +
      row("pages", machine.page_bytes == 0 ? "" : format_bytes(Bytes(machine.page_bytes))) +
      row("lender", machine.lender);
  text += "\nWhat can be measured, tried with 2 MiB of each:\n";
  for (std::size_t arm = 0; arm < report.arms.size(); ++arm) {
    const ArmRecord& record = report.arms[arm];
    const bool had = record.unavailable.empty();
    text += wrapped(cat(arm_name(report, arm), had ? ": " : ": not to be had: ",
                        printable(had ? record.memory : record.unavailable, kLongest)),
                    kColumns, "  ");
  }
  return text;
}

}  // namespace carveout::probe
