// What engines plug in: pages that they map themselves, and PyTorch's allocator.

#include <carveout/carveout.h>

#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "gpu/gpu.hpp"
#include "gpu/parts.hpp"

namespace carveout::test {
namespace {

constexpr Pattern kFirst(21), kSecond(22);

Error failure(std::string message) {
  return Error{Code::kProtocol, 0, "", std::move(message)};
}

Result<void> expect(const Gpu& gpu, cuda::CUdeviceptr at, Bytes size, Pattern pattern) {
  auto other = gpu.compare(at, size, pattern);
  if (!other) return std::move(other).error();
  if (*other) return failure(**other);
  return {};
}

Result<void> write_and_read(const Gpu& gpu, cuda::CUdeviceptr at, Bytes size) {
  for (const Pattern pattern : {kFirst, kSecond}) {
    if (auto written = gpu.write(at, size, pattern); !written) return written;
    if (auto same = expect(gpu, at, size, pattern); !same) return same;
  }
  return {};
}

// All pages in one range of addresses, as an engine has them.
class Range {
 public:
  Range(const Gpu& gpu, const carveout_pages_info_t& info) : gpu_(gpu), info_(info) {}
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  Range(Range&&) = delete;
  Range& operator=(Range&&) = delete;
  ~Range() { (void)unmap(); }

  Result<cuda::CUdeviceptr> map() {
    const cuda::Driver& driver = *gpu_.context().driver();
    cuda::Finder find(driver);
    auto* const reserve = find(cuda::kMemAddressReserve);
    auto* const map_one = find(cuda::kMemMap);
    auto* const set_access = find(cuda::kMemSetAccess);
    unmap_ = find(cuda::kMemUnmap);
    free_ = find(cuda::kMemAddressFree);
    if (find.missing()) return *find.missing();
    const std::size_t page = info_.page_bytes;
    const cuda::Entered entered(gpu_.context());
    cuda::CUresult answer = reserve(&start_, info_.count * page, 0, 0, 0);
    if (answer != cuda::kSuccess) return driver.failed("cuMemAddressReserve", answer, "");
    for (; mapped_ < info_.count; ++mapped_) {
      answer = map_one(start_ + mapped_ * page, page, 0, info_.handles[mapped_], 0);
      if (answer != cuda::kSuccess) return driver.failed("cuMemMap", answer, cat("page ", mapped_));
    }
    const cuda::MemAccessDesc access{{cuda::kLocationDevice, info_.device}, cuda::kAccessReadWrite};
    answer = set_access(start_, info_.count * page, &access, 1);
    if (answer != cuda::kSuccess) return driver.failed("cuMemSetAccess", answer, "");
    return start_;
  }

  Result<void> unmap() {
    const cuda::Driver& driver = *gpu_.context().driver();
    const cuda::Entered entered(gpu_.context());
    cuda::CUresult answer = cuda::kSuccess;
    while (mapped_ > 0 && answer == cuda::kSuccess)
      answer = unmap_(start_ + --mapped_ * info_.page_bytes, info_.page_bytes);
    if (answer != cuda::kSuccess) return driver.failed("cuMemUnmap", answer, cat("page ", mapped_));
    const cuda::CUdeviceptr start = std::exchange(start_, 0);
    if (start != 0) answer = free_(start, info_.count * info_.page_bytes);
    if (answer != cuda::kSuccess) return driver.failed("cuMemAddressFree", answer, "");
    return {};
  }

 private:
  const Gpu& gpu_;
  const carveout_pages_info_t& info_;
  decltype(cuda::kMemUnmap)::Type* unmap_ = nullptr;
  decltype(cuda::kMemAddressFree)::Type* free_ = nullptr;
  cuda::CUdeviceptr start_ = 0;
  std::size_t mapped_ = 0;
};

Result<void> use(const carveout_pages_info_t& info) {
  const auto gpu = Gpu::open();
  if (!gpu) return gpu.error();
  const Bytes size(info.count * info.page_bytes);
  Range range(*gpu, info);
  const auto start = range.map();
  if (!start) return start.error();
  if (auto zero = expect(*gpu, *start, size, Pattern::zero()); !zero) return zero;
  if (auto used = write_and_read(*gpu, *start, size); !used) return used;
  return range.unmap();
}

}  // namespace

Result<void> open_and_use_pages() {
  carveout_pages_t* pages = nullptr;
  carveout_error_t error;
  error.struct_size = sizeof error;
  const carveout_status_t status = carveout_pages_open(nullptr, &pages, &error);
  if (status == CARVEOUT_OFF) return failure("CARVEOUT is not 1");
  if (status != CARVEOUT_OK) return Error{Code::kRefused, 0, "", error.message};
  std::unique_ptr<carveout_pages_t, void (*)(carveout_pages_t*)> owner(
      pages, [](carveout_pages_t* handle) { carveout_pages_close(handle, nullptr); });
  carveout_pages_info_t info;
  info.struct_size = sizeof info;
  carveout_pages_get_info(pages, &info);
  if (auto used = use(info); !used) return used;
  std::printf("%s: zero, written and read by the GPU as one range\n", info.description);
  if (carveout_pages_close(owner.release(), &error) != CARVEOUT_OK) {
    return failure(cat("they could not be released: ", error.message));
  }
  return {};
}

Result<void> allocate_as_pytorch() {
  carveout_error_t error;
  error.struct_size = sizeof error;
  const carveout_status_t status = carveout_torch_open(0, nullptr, &error);
  if (status == CARVEOUT_OFF) return failure("CARVEOUT is not 1");
  if (status != CARVEOUT_OK) return Error{Code::kRefused, 0, "", error.message};
  const auto gpu = Gpu::open();
  if (!gpu) return gpu.error();
  carveout_torch_state_t state;
  state.struct_size = sizeof state;
  carveout_torch_get_state(&state, nullptr);
  // The second one has no room, and the first one's place is had again.
  std::vector<void*> pieces;
  for (const std::uint64_t bytes : {state.bytes, state.bytes}) {
    void* const piece = carveout_torch_alloc(bytes, 0, nullptr);
    if (piece == nullptr) return failure("nothing was allocated");
    pieces.push_back(piece);
    auto used = write_and_read(*gpu, reinterpret_cast<cuda::CUdeviceptr>(piece), Bytes(bytes));
    if (!used) return used;
  }
  for (void* const piece : pieces)
    carveout_torch_free(piece, state.bytes, 0, nullptr);
  void* const again = carveout_torch_alloc(state.bytes, 0, nullptr);
  carveout_torch_free(again, state.bytes, 0, nullptr);
  carveout_torch_get_state(&state, nullptr);
  const bool good = again == pieces[0] && state.carved == 2 && state.fell_back == 1 &&
                    state.in_use == 0 && state.waiting == 0 && state.refused == 0;
  if (!good) {
    return failure(cat("carved ", state.carved, ", by the driver ", state.fell_back, ", in use ",
                       state.in_use, ", waiting ", state.waiting, ", refused ", state.refused));
  }
  std::printf("%s: carved twice, once by the driver, written and read by the GPU\n",
              state.description);
  return {};
}

}  // namespace carveout::test
