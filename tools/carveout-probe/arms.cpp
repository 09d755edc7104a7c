#include "arms.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.hpp"
#include "host.hpp"

namespace carveout::probe {
namespace {

constexpr const char* kOrdinary = "ordinary";

struct SourceName {
  const char* name;
  carveout_source_t source;
};
constexpr std::array<SourceName, 5> kSources{{{"daemon", CARVEOUT_SOURCE_DAEMON},
                                              {"drm", CARVEOUT_SOURCE_DRM},
                                              {"dma-heap", CARVEOUT_SOURCE_DMA_HEAP},
                                              {"memfd", CARVEOUT_SOURCE_MEMFD},
                                              {"cuda", CARVEOUT_SOURCE_CUDA}}};

struct MapName {
  const char* name;
  carveout_map_t map;
};
constexpr std::array<MapName, 4> kMaps{{{"vmm", CARVEOUT_MAP_VMM},
                                        {"external", CARVEOUT_MAP_EXTERNAL},
                                        {"register", CARVEOUT_MAP_REGISTER},
                                        {"host", CARVEOUT_MAP_HOST}}};

// All that may work under "auto". The daemon may lend any kind of memory: what it does not lend is
// refused, and the row says so.
std::vector<std::string> maps_of(EngineKind engine, const std::string& source) {
  if (engine == EngineKind::kCpu) return {"host"};
  if (source == "cuda") return {"vmm"};
  if (source == "memfd") return {"register"};
  if (source == "dma-heap") return {"external", "register"};
  return {"vmm", "external", "register"};
}

template <typename Names>
auto named(const Names& names, const std::string& name) {
  return std::find_if(names.begin(), names.end(),
                      [&name](const auto& one) { return name == one.name; });
}

struct RowName {
  std::string_view row;
  std::string_view option;
};
// A row that begins like another comes before it.
constexpr std::array<RowName, 9> kOptions{{{"CARVEOUT_KEY_FILE", "--key-file"},
                                           {"CARVEOUT_KEY", "--key-file"},
                                           {"CARVEOUT_SOCKET", "--socket"},
                                           {"CARVEOUT_SOURCE", "--source"},
                                           {"CARVEOUT_MAP", "--map"},
                                           {"CARVEOUT_MIB", "--size"},
                                           {"CARVEOUT_DRM_CARD", "--card"},
                                           {"CARVEOUT_HEAP", "--heap"},
                                           {"CARVEOUT_TIMEOUT_MS", "the time limit"}}};

// The library names rows of the environment, which are not read here.
Error unavailable(const carveout::Failure& failure) {
  std::string message = failure.what();
  for (const auto& [row, option] : kOptions) {
    for (auto at = message.find(row); at != std::string::npos; at = message.find(row, at))
      message.replace(at, row.size(), option);
  }
  return Error{Code::kSystem, 0, "", std::move(message), failure.cuda_result()};
}

Result<Memory> take_ordinary(Engine& engine, const ArmPlan& plan, Bytes size,
                             std::uint64_t like_pages_of) {
  auto taken = engine.ordinary(size, like_pages_of);
  if (!taken) return std::move(taken).error();
  ArmRecord record{plan.name, plan.source, plan.map, taken->memory, taken->page_bytes, "", ""};
  return Memory(std::move(record), taken->place, std::move(taken->owner), std::nullopt);
}

}  // namespace

std::vector<std::string> default_sources(EngineKind engine) {
  if (engine == EngineKind::kGpu) return {"cuda", "daemon"};
  return {"daemon"};
}

std::vector<ArmPlan> plan_arms(EngineKind engine, const std::vector<std::string>& sources,
                               const std::vector<std::string>& maps) {
  std::vector<ArmPlan> plans{{kOrdinary, kOrdinary, ""}};
  const bool all = std::find(maps.begin(), maps.end(), "auto") != maps.end() || maps.empty();
  const auto add = [&plans](ArmPlan plan) {
    if (std::find(plans.begin(), plans.end(), plan) == plans.end())
      plans.push_back(std::move(plan));
  };
  for (const std::string& source : sources) {
    if (source == kOrdinary) {
      add({"ordinary#2", kOrdinary, ""});
      continue;
    }
    for (const std::string& map : all ? maps_of(engine, source) : maps)
      add({cat(source, "/", map), source, map});
  }
  return plans;
}

void touch(const Place& place) {
  if (place.host == nullptr) return;
  const auto* const bytes = static_cast<const volatile char*>(place.host);
  for (std::uint64_t at = 0; at < place.size.count(); at += 4096)
    (void)bytes[at];
}

Result<void> Memory::check_lender() const {
  if (guard_.is_lost()) {
    return Error{Code::kClosed, 0, "",
                 "the memory was taken away while it was measured: its lender has cut it short, or "
                 "it is faulty (journalctl -k tells of that)"};
  }
  if (!opened_ || !opened_->is_lender_gone()) return {};
  return Error{Code::kClosed, 0, "",
               "the lender has closed the connection or was killed: is carveoutd running "
               "(systemctl status carveoutd)? Measure again once it is"};
}

Result<Memory> take_arm(Engine& engine, const ArmPlan& plan, const ArmSettings& settings,
                        std::uint64_t like_pages_of) {
  if (plan.source == kOrdinary) return take_ordinary(engine, plan, settings.size, like_pages_of);
  const auto source = named(kSources, plan.source);
  const auto map = named(kMaps, plan.map);
  if (source == kSources.end() || map == kMaps.end()) {
    return Error{Code::kInvalid, 0, plan.name, "there is no such source or map"};
  }
  if (source->source == CARVEOUT_SOURCE_CUDA) {
    if (auto room = engine.check_room(settings.size); !room) return std::move(room).error();
  }
  carveout::Options options;
  options.source = source->source;
  options.map = map->map;
  const bool by_gpu = engine.kind() == EngineKind::kGpu;
  options.device = by_gpu ? settings.device : -1;
  options.bytes = settings.size.count();
  options.timeout_ms = settings.timeout_ms;
  options.socket_path = settings.socket;
  options.key_file = settings.key_file;
  options.drm_card = settings.card;
  options.heap = settings.heap;
  try {
    auto opened = carveout::Carveout::open(options);
    const carveout_info_t& info = opened.info();
    const Place place{info.host_pointer, info.device_pointer, settings.size};
    if ((by_gpu && place.device == 0) || (!by_gpu && place.host == nullptr)) {
      return Error{Code::kInvalid, 0, "",
                   cat("mapped by ", plan.map, " it is not seen by the ", name_of(engine.kind()),
                       " engine")};
    }
    ArmRecord record{plan.name, plan.source, plan.map, printable(info.description, 1000),
                     0,         "",          ""};
    return Memory(std::move(record), place, nullptr, std::move(opened));
  } catch (const carveout::Failure& failure) {
    return unavailable(failure);
  }
}

namespace {

// Why it cannot be had: what is no way to map that memory is not for want of it, however much of it
// others hold.
Error why_not(Engine& engine, const ArmPlan& plan, ArmSettings settings, Error whole) {
  if (plan.source == kOrdinary || settings.size <= kSliceBytes) return whole;
  settings.size = kSliceBytes;
  auto slice = take_arm(engine, plan, settings);
  return slice ? whole : std::move(slice).error();
}

}  // namespace

TakenArms take_arms(Engine& engine, const std::vector<ArmPlan>& plans,
                    const ArmSettings& settings) {
  TakenArms taken;
  taken.arms.resize(plans.size());
  for (const ArmPlan& plan : plans)
    taken.records.push_back({plan.name, plan.source, plan.map, "", 0, "", ""});
  std::uint64_t pages = 0;
  for (const bool ordinary : {false, true}) {
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if ((plans[i].source == kOrdinary) != ordinary) continue;
      auto arm = take_arm(engine, plans[i], settings, pages);
      if (!arm) {
        const Error why = why_not(engine, plans[i], settings, std::move(arm).error());
        taken.records[i].unavailable = printable(why.describe(), 1000);
        continue;
      }
      taken.records[i] = arm->record();
      if (arm->place().host != nullptr) {
        touch(arm->place());
        taken.records[i].page_bytes = page_bytes_at(arm->place().host);
        if (!ordinary && pages == 0) pages = taken.records[i].page_bytes;
      }
      taken.arms[i] = std::make_unique<Memory>(std::move(*arm));
    }
  }
  return taken;
}

}  // namespace carveout::probe
