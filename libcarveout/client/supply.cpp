#include "client/supply.hpp"

#include <utility>

#include "base/text.hpp"

namespace carveout::client {

namespace {

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

}  // namespace

Result<Supply> Supply::open(const Settings& settings, const Opening& opening) {
  Supply supply(settings, opening);
  if (settings.source == SourceKind::kDaemon) {
    auto lender = Lender::connect(settings.socket, supply.deadline_);
    if (!lender) return blame("CARVEOUT_SOCKET", supply.why(std::move(lender).error()));
    supply.lender_.emplace(*std::move(lender));
    return supply;
  }
  auto source = open_source(settings, opening);
  if (!source) return std::move(source).error();
  supply.source_ = *std::move(source);
  return supply;
}

Error Supply::why(Error problem) const {
  if (problem.code == Code::kTimedOut) {
    problem.message += cat(" of ", settings_.timeout.count(), " ms (CARVEOUT_TIMEOUT_MS)");
  }
  const char* const key = settings_.key_file ? "CARVEOUT_KEY_FILE" : "CARVEOUT_KEY";
  if (is_about_key(problem)) return blame(key, std::move(problem));
  if (is_about_size(problem)) return blame("CARVEOUT_MIB", std::move(problem));
  return problem;
}

Result<void> Supply::look_for(Bytes size) {
  if (source_) return {};
  const auto has = lender_->info(*settings_.key, deadline_);
  if (!has) return why(has.error());
  if (size <= has->free) return {};
  const bool ever = size <= has->size;
  return Error{Code::kRefused, 0, ever ? "the lender" : "CARVEOUT_MIB",
               cat(format_bytes(size), " are more than the lender has: ", format_bytes(has->free),
                   " free of ", format_bytes(has->size))};
}

Result<Piece> Supply::take(Bytes size) {
  return source_ ? allocate(size) : claim(size);
}

Result<Piece> Supply::claim(Bytes size) {
  auto loan = lender_->claim(*settings_.key, size, deadline_);
  if (!loan) return why(std::move(loan).error());
  origin_ = cat("lent as ", name_of(loan->kind));
  lender_base_ = loan->base;
  return Piece{std::move(loan->memory), loan->size, loan->kind};
}

Result<Piece> Supply::allocate(Bytes asked) {
  const Bytes size = Slices::holding(asked).bytes();
  auto buffer = source_->allocate(size);
  while (const auto warning = source_->take_warning())
    say(opening_, LogLevel::kWarning, *warning);
  if (!buffer) return std::move(buffer).error();
  const Description what = source_->describe();
  if (!what.kernel_zeroes) {
    if (auto scrubbed = source_->scrub(*buffer); !scrubbed) return std::move(scrubbed).error();
  }
  auto memory = source_->share(*buffer);
  if (!memory) return std::move(memory).error();
  origin_ = cat("of ", what.detail);
  return Piece{*std::move(memory), size, what.kind};
}

}  // namespace carveout::client
