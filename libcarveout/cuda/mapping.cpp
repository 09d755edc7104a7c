#include "cuda/mapping.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/text.hpp"
#include "cuda/placed.hpp"

namespace carveout::cuda {
namespace {

struct Known {
  MapStrategy strategy;
  PlacedOrError (*place)(const Order&);
};
// In the order of preference.
constexpr std::array<Known, 4> kKnown{{{MapStrategy::kVmm, place_vmm},
                                       {MapStrategy::kExternal, place_external},
                                       {MapStrategy::kRegister, place_registered},
                                       {MapStrategy::kHost, place_on_host}}};

PlacedOrError place(const Known& known, const Order& order) {
  if (order.files.size() > 1 && known.strategy != MapStrategy::kVmm) {
    return Error{Code::kInvalid, 0, order.what,
                 cat("several files make no one range of addresses by ", name_of(known.strategy))};
  }
  return known.place(order);
}

// The size of all files; of one kind, and of sizes that can be.
Result<Bytes> whole_size(std::span<const File> files) {
  Bytes whole;
  for (const File& file : files) {
    const std::uint64_t left = std::numeric_limits<std::ptrdiff_t>::max() - whole.count();
    if (file.size == Bytes(0) || file.size.count() > left || file.kind != files.front().kind) {
      return Error{Code::kInvalid, 0, "mapping memory",
                   cat("a file of ", format_bytes(file.size),
                       file.size == Bytes(0)             ? " cannot be mapped"
                       : file.kind != files.front().kind ? " is of another kind than the first"
                                                         : " makes the range too long")};
    }
    whole = whole + file.size;
  }
  if (files.empty()) return Error{Code::kInvalid, 0, "mapping memory", "no file was given"};
  return whole;
}

Error not_allowed(MapStrategy strategy, const Order& order) {
  const DescriptorKind kind = order.files.front().kind;
  const std::optional<int> device = order.settings.device;
  std::string others;
  for (const Known& known : kKnown) {
    if (!is_allowed(known.strategy, kind, device)) continue;
    others += cat(others.empty() ? "" : " or ", name_of(known.strategy));
  }
  const bool but_for_the_device = is_allowed(strategy, kind, std::nullopt);
  return {Code::kInvalid, 0, order.what,
          cat("cannot be done by ", name_of(strategy),
              but_for_the_device ? cat(" for device ", *device) : "", ", but by ", others)};
}

// As the first one failed that did so for another reason than that there is no such thing here.
Error none_worked(const std::vector<Attempt>& failed, const Order& order) {
  std::vector<Attempt> told = failed;
  auto found = std::find_if(told.begin(), told.end(), [](const Attempt& attempt) {
    return attempt.reason.code != Code::kNotFound;
  });
  if (found == told.end()) found = told.begin();
  Error error = found->reason;
  found->reason.number = 0;  // at the end
  error.context = order.what;
  // What it would have come to otherwise.
  const bool host = is_allowed(MapStrategy::kHost, order.files.front().kind, std::nullopt);
  const char* const but =
      host && order.settings.device ? "; host is not tried, since a device was asked for" : "";
  error.message = cat("no way works: ", describe(told), but);
  return error;
}

}  // namespace

bool is_allowed(MapStrategy strategy, DescriptorKind kind, std::optional<int> device) {
  switch (strategy) {
    case MapStrategy::kVmm:
      return kind == DescriptorKind::kNvidiaFile;  // CUDA imports only what is its own
    case MapStrategy::kExternal:
      return kind != DescriptorKind::kMemfd;
    case MapStrategy::kHost:
      if (device) return false;  // it gives no pointer there
      [[fallthrough]];
    case MapStrategy::kRegister:
      return kind != DescriptorKind::kNvidiaFile;  // an NVIDIA file cannot be mapped by mmap()
    case MapStrategy::kAuto:
      break;
  }
  return true;
}

std::string describe(const std::vector<Attempt>& failed) {
  std::string reasons;
  for (const Attempt& attempt : failed) {
    reasons += cat(reasons.empty() ? "" : "; ", name_of(attempt.strategy), ": ",
                   attempt.reason.describe());
  }
  return reasons;
}

Mapping::Mapping(MapStrategy strategy, Bytes size, std::unique_ptr<Placed> placed,
                 std::vector<Attempt> failed)
    : strategy_(strategy), size_(size), placed_(std::move(placed)), why_not_(std::move(failed)) {}

Mapping::Mapping(Mapping&& other) noexcept = default;

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    Undone ignored;
    if (placed_) placed_->unmap(ignored);
    strategy_ = other.strategy_;
    size_ = other.size_;
    placed_ = std::move(other.placed_);
    why_not_ = std::move(other.why_not_);
  }
  return *this;
}

Mapping::~Mapping() {
  Undone ignored;
  if (placed_) placed_->unmap(ignored);
}

Result<void> Mapping::unmap() {
  if (!placed_) return {};
  Undone undone;
  placed_->unmap(undone);
  placed_.reset();
  if (undone.failed()) return undone.error(cat("unmapping ", format_bytes(size_)));
  return {};
}

CUdeviceptr Mapping::device_pointer() const {
  return placed_ ? placed_->device_pointer : 0;
}

void* Mapping::host_pointer() const {
  return placed_ ? placed_->host_pointer : nullptr;
}

std::optional<int> Mapping::device() const {
  return placed_ ? placed_->device : std::nullopt;
}

Result<Context> open_context(const MapSettings& settings) {
  auto driver = Driver::load(settings.library);
  if (!driver) return std::move(driver).error();
  return Context::current_or_primary(*std::move(driver), settings.device);
}

Result<Mapping> map(const File& file, const MapSettings& settings) {
  return map_range({&file, 1}, settings);
}

Result<Mapping> map_range(std::span<const File> files, const MapSettings& settings) {
  const auto size = whole_size(files);
  if (!size) return size.error();
  const DescriptorKind kind = files.front().kind;
  const Order order{files, *size, settings,
                    cat("mapping ", format_bytes(*size), " of ", name_of(kind))};
  std::vector<Attempt> failed;
  for (const Known& known : kKnown) {
    const bool asked = settings.strategy == known.strategy;
    if (!asked && settings.strategy != MapStrategy::kAuto) continue;
    if (!is_allowed(known.strategy, kind, settings.device)) {
      if (!asked) continue;
      return not_allowed(known.strategy, order);
    }
    auto placed = place(known, order);
    if (placed) return Mapping(known.strategy, *size, *std::move(placed), std::move(failed));
    if (asked) return std::move(placed).error();
    failed.push_back({known.strategy, std::move(placed).error()});
  }
  return none_worked(failed, order);
}

}  // namespace carveout::cuda
