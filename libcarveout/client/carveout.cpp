#include "client/carveout.hpp"

#include <cerrno>
#include <memory>
#include <utility>

#include "base/text.hpp"
#include "source/cuda.hpp"

namespace carveout::client {
namespace {

// A row is to blame for what went wrong: it takes the place of what its value names.
Error blame(const char* row, Error problem) {
  if (problem.number == EMFILE || problem.number == ENFILE || problem.number == ENOMEM) {
    return problem;  // this process's own
  }
  problem.context = row;
  return problem;
}

// The same, where what its value names would be missed.
Error blame_in_full(const char* row, Error problem) {
  problem.message = cat(problem.context, ": ", problem.message);
  return blame(row, std::move(problem));
}

// Of the source cuda.
int device_of(const Opening& opening) {
  return opening.device.value_or(0);
}

Result<std::unique_ptr<Source>> open_source(const Settings& settings, const Opening& opening) {
  const Machine& machine = opening.machine;
  switch (settings.source) {
    case SourceKind::kDrm: {
      DrmSettings drm = machine.drm;
      drm.card = settings.card;
      // Only a file of NVIDIA's own can be mapped so.
      if (settings.map == MapStrategy::kVmm) drm.lend_as = LendAs::kNvidia;
      auto source = open_drm_source(drm);
      if (!source) return blame("CARVEOUT_DRM_CARD", std::move(source).error());
      return source;
    }
    case SourceKind::kDmaHeap: {
      DmaHeapSettings heap = machine.heap;
      heap.heap = settings.heap;
      auto source = open_dma_heap_source(heap);
      if (!source) return blame("CARVEOUT_HEAP", std::move(source).error());
      return source;
    }
    case SourceKind::kCuda: {
      auto source = open_cuda_source({device_of(opening), machine.cuda_library});
      if (!source && !opening.device) {
        return blame_in_full("CARVEOUT_SOURCE", std::move(source).error());
      }
      return source;
    }
    case SourceKind::kMemfd:
    case SourceKind::kDaemon:  // not asked for
      break;
  }
  return make_memfd_source(machine.memfd);
}

void say(const Opening& opening, LogLevel level, const std::string& line) {
  if (opening.log) opening.log(level, line);
}

}  // namespace

// Memory that is not mapped yet.
struct Carveout::Taken {
  std::optional<Lease> lease;
  UniqueFd memory;  // closed before the lease ends
  Bytes size;
  DescriptorKind kind = DescriptorKind::kMemfd;
  Bytes base;
  std::string description;
};

Result<Carveout::Taken> Carveout::borrow_from_lender(const Settings& settings) {
  const Deadline deadline = wire::Clock::now() + settings.timeout;
  const auto why = [&](Error problem) {
    if (problem.code == Code::kTimedOut) {
      problem.message += cat(" of ", settings.timeout.count(), " ms (CARVEOUT_TIMEOUT_MS)");
    }
    const char* const key = settings.key_file ? "CARVEOUT_KEY_FILE" : "CARVEOUT_KEY";
    if (is_about_key(problem)) return blame(key, std::move(problem));
    if (is_about_size(problem)) return blame("CARVEOUT_MIB", std::move(problem));
    return problem;
  };
  auto lender = Lender::connect(settings.socket, deadline);
  if (!lender) return blame("CARVEOUT_SOCKET", why(std::move(lender).error()));
  auto claimed = lender->claim(*settings.key, settings.size, deadline);
  if (!claimed) return why(std::move(claimed).error());
  Loan& loan = *claimed;
  std::string description = cat(format_bytes(loan.size), " lent as ", name_of(loan.kind));
  Taken taken{std::nullopt, std::move(loan.memory), loan.size, loan.kind,
              loan.base,    std::move(description)};
  taken.lease.emplace(*std::move(lender), std::move(loan));
  return taken;
}

Result<Carveout::Taken> Carveout::allocate(const Settings& settings, const Opening& opening) {
  auto source = open_source(settings, opening);
  if (!source) return std::move(source).error();
  const Bytes size = Slices::holding(settings.size).bytes();
  auto buffer = (*source)->allocate(size);
  while (const auto warning = (*source)->take_warning())
    say(opening, LogLevel::kWarning, *warning);
  if (!buffer) return std::move(buffer).error();
  const Description what = (*source)->describe();
  if (!what.kernel_zeroes) {
    if (auto scrubbed = (*source)->scrub(*buffer); !scrubbed) return std::move(scrubbed).error();
  }
  auto memory = (*source)->share(*buffer);
  if (!memory) return std::move(memory).error();
  return Taken{std::nullopt, *std::move(memory),
               size,         what.kind,
               Bytes(),      cat(format_bytes(size), " of ", what.detail)};
}

Result<Carveout::Taken> Carveout::take(const Settings& settings, const Opening& opening) {
  if (settings.source == SourceKind::kDaemon) return borrow_from_lender(settings);
  return allocate(settings, opening);
}

Result<Carveout> Carveout::open(const Settings& settings, const Opening& opening) {
  auto completed = complete(settings, opening.machine.default_key_file);
  if (!completed) return std::move(completed).error();
  return open_completed(*completed, opening);
}

Result<Carveout> Carveout::open_completed(const Settings& settings, const Opening& opening) {
  auto taken = take(settings, opening);
  if (!taken) return std::move(taken).error();
  say(opening, LogLevel::kInfo, taken->description);
  const cuda::File file{taken->kind, taken->memory.get(), taken->size};
  cuda::MapSettings how{settings.map, opening.device, opening.machine.cuda_library};
  if (settings.source == SourceKind::kCuda) how.device = device_of(opening);
  auto mapping = cuda::map(file, how);
  if (!mapping) {
    Error problem = std::move(mapping).error();
    // Asked for by name, and none for this kind of memory or on this machine.
    const bool wrong =
        !cuda::is_allowed(settings.map, taken->kind, how.device) ||
        (settings.map != MapStrategy::kAuto && problem.code == Code::kNotFound && !opening.device);
    return wrong ? blame_in_full("CARVEOUT_MAP", std::move(problem)) : problem;
  }
  taken->memory.reset();  // whatever comes now: before the lease ends
  Carveout carveout(std::move(taken->lease), *std::move(mapping));
  carveout.source_ = settings.source;
  carveout.kind_ = taken->kind;
  carveout.lender_base_ = taken->base;
  carveout.description_ = std::move(taken->description);
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
  lease_.reset();
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
