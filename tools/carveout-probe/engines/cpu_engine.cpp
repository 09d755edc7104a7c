#include "engines/cpu_engine.hpp"

#include <utility>

#include "base/text.hpp"
#include "engines/cpu_bench.hpp"
#include "host.hpp"

namespace carveout::probe {
namespace {

class CpuEngine : public Engine {
 public:
  explicit CpuEngine(Crew crew)
      : parts_{std::move(crew), &widest_cpu_kernels(), {}, {}, {}},
        caches_(data_caches(parts_.crew.processor(), kProcessors)) {}

  [[nodiscard]] EngineKind kind() const override { return EngineKind::kCpu; }

  [[nodiscard]] std::string describe() const override {
    const std::size_t threads = parts_.crew.size();
    return cat("processor, ", threads, threads == 1 ? " thread" : " threads", ", vectors of ",
               parts_.kernels->width);
  }

  [[nodiscard]] std::vector<Row> rows() const override {
    return {Row::kReread,   Row::kRead,      Row::kWrite,  Row::kWritePastCaches,
            Row::kCopyInto, Row::kCopyOutOf, Row::kGather, Row::kLoad};
  }

  void describe(Machine& machine) const override { machine.cache_bytes = caches_; }

  [[nodiscard]] Bytes cache() const override { return judged_cache(EngineKind::kCpu, caches_); }

  // The governor of the processor that measures: others may have another.
  void note(Moment& moment) const override {
    moment.governor = host_moment(parts_.crew.processor()).governor;
  }

  Result<Ordinary> ordinary(Bytes size, std::uint64_t like_pages_of) override {
    auto mapped = Anonymous::map(size, like_pages_of);
    if (!mapped) return std::move(mapped).error();
    auto owner = std::make_shared<Anonymous>(std::move(*mapped));
    const Place place{owner->address(), 0, size};
    return Ordinary{std::move(owner), place, "anonymous memory of the process", 0};
  }

  Result<std::unique_ptr<Bench>> bench(const Place& place) override {
    if (place.host == nullptr) {
      return Error{Code::kInvalid, 0, "the CPU engine",
                   "the processor does not see memory that is mapped so: say --map host"};
    }
    return std::unique_ptr<Bench>(std::make_unique<CpuBench>(parts_, place));
  }

 private:
  CpuParts parts_;
  std::vector<std::uint64_t> caches_;
};

}  // namespace

Result<std::unique_ptr<Engine>> open_cpu_engine(std::size_t threads) {
  auto crew = Crew::gather(threads);
  if (!crew) return std::move(crew).error();
  return std::unique_ptr<Engine>(std::make_unique<CpuEngine>(std::move(*crew)));
}

}  // namespace carveout::probe
