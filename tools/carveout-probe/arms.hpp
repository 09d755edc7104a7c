#pragma once

// The memories that are compared: ordinary memory, and what the library opens.

#include <carveout/carveout.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engines/engine.hpp"
#include "engines/loss_guard.hpp"
#include "results.hpp"

namespace carveout::probe {

// What --source and --map may say, and where that is found. Defaults are the library's.
struct ArmSettings {
  std::vector<std::string> sources;  // daemon drm dma-heap memfd cuda ordinary
  std::vector<std::string> maps;     // auto vmm external register host
  Bytes size;
  int device = 0;  // of the GPU engine
  std::optional<std::string> socket, key_file, card, heap;
  unsigned timeout_ms = 10000;
};

// What is compared with ordinary memory unless something is said.
[[nodiscard]] std::vector<std::string> default_sources(EngineKind engine);

// One to be tried: what ArmRecord has of it.
struct ArmPlan {
  std::string name, source, map;
  bool operator==(const ArmPlan&) const = default;
};

// Ordinary memory first, then each source by each map that can be for this engine; under "auto", by
// all of them. A second "ordinary" is an arm of its own: one against itself. Pure.
[[nodiscard]] std::vector<ArmPlan> plan_arms(EngineKind engine,
                                             const std::vector<std::string>& sources,
                                             const std::vector<std::string>& maps);

// Memory that was taken, and the right to it.
class Memory {
 public:
  Memory(ArmRecord record, Place place, std::shared_ptr<void> owner,
         std::optional<carveout::Carveout> opened)
      : record_(std::move(record)),
        owner_(std::move(owner)),
        opened_(std::move(opened)),
        place_(place),
        guard_(opened_ ? LossGuard(place.host, place.size) : LossGuard()) {}

  [[nodiscard]] const ArmRecord& record() const { return record_; }
  [[nodiscard]] const Place& place() const { return place_; }
  // kClosed, and what that means, once the lender is gone or has taken the memory away.
  [[nodiscard]] Result<void> check_lender() const;

 private:
  ArmRecord record_;
  std::shared_ptr<void> owner_;
  std::optional<carveout::Carveout> opened_;
  Place place_;
  LossGuard guard_;  // goes before the memory
};

// Takes one. `like_pages_of`: see Engine::ordinary(). The error is why it cannot be had.
[[nodiscard]] Result<Memory> take_arm(Engine& engine, const ArmPlan& plan,
                                      const ArmSettings& settings, std::uint64_t like_pages_of = 0);

// Brings in every page that the processor sees.
void touch(const Place& place);

// Takes all. Ordinary memory is taken last, of pages like those of the first that was lent.
// Where one cannot be had, its place in the list is the record that says why.
struct TakenArms {
  std::vector<ArmRecord> records;             // as planned
  std::vector<std::unique_ptr<Memory>> arms;  // null where unavailable
};
[[nodiscard]] TakenArms take_arms(Engine& engine, const std::vector<ArmPlan>& plans,
                                  const ArmSettings& settings);

}  // namespace carveout::probe
