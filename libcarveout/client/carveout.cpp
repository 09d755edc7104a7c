#include "client/carveout.hpp"

#include <utility>

#include "base/text.hpp"
#include "client/supply.hpp"

namespace carveout::client {

Result<Carveout> Carveout::open(const Settings& settings, const Opening& opening) {
  auto completed = complete(settings, opening.machine.default_key_file);
  if (!completed) return std::move(completed).error();
  return open_completed(*completed, opening);
}

Result<Carveout> Carveout::open_completed(const Settings& settings, const Opening& opening) {
  auto supply = Supply::open(settings, opening);
  if (!supply) return std::move(supply).error();
  auto piece = supply->take(settings.size);
  if (!piece) return std::move(piece).error();
  std::string description = cat(format_bytes(piece->size), " ", supply->origin());
  say(opening, LogLevel::kInfo, description);
  const cuda::File file{piece->kind, piece->memory.get(), piece->size};
  cuda::MapSettings how{settings.map, opening.device, opening.machine.cuda_library};
  if (settings.source == SourceKind::kCuda) how.device = device_of(opening);
  auto mapping = cuda::map(file, how);
  if (!mapping) {
    Error problem = std::move(mapping).error();
    // Asked for by name, and none for this kind of memory or on this machine.
    const bool wrong =
        !cuda::is_allowed(settings.map, piece->kind, how.device) ||
        (settings.map != MapStrategy::kAuto && problem.code == Code::kNotFound && !opening.device);
    return wrong ? blame_in_full("CARVEOUT_MAP", std::move(problem)) : problem;
  }
  piece->memory.reset();  // whatever comes now: before the lease ends
  Carveout carveout(*std::move(mapping));
  carveout.lender_ = supply->take_lender();
  carveout.source_ = settings.source;
  carveout.kind_ = piece->kind;
  carveout.lender_base_ = supply->lender_base();
  carveout.description_ = std::move(description);
  carveout.why_not_ = cuda::describe(carveout.mapping_.why_not());
  if (!carveout.why_not_.empty()) {
    const bool gpu = carveout.mapping_.device_pointer() != 0;
    say(opening, gpu ? LogLevel::kInfo : LogLevel::kWarning,
        cat("mapped by ", name_of(carveout.mapping_.strategy()),
            ", since others failed: ", carveout.why_not_));
  }
  return carveout;
}

Result<void> Carveout::close() {
  auto unmapped = mapping_.unmap();
  lender_.reset();
  return unmapped;
}

Result<std::optional<Carveout>> Carveout::open_as_set(const Lookup& lookup, const Opening& opening,
                                                      const Settings& unset) {
  auto settings = settings_from(lookup, opening.machine.default_key_file, unset);
  if (!settings) return std::move(settings).error();
  if (!*settings) return std::optional<Carveout>();
  auto carveout = open_completed(**settings, opening);
  if (!carveout) return std::move(carveout).error();
  return std::optional<Carveout>(*std::move(carveout));
}

}  // namespace carveout::client
