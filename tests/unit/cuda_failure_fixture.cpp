#include "unit/cuda_failure_fixture.hpp"

#include "base/text.hpp"

namespace carveout::test {
namespace {

constexpr std::size_t kPieces = 3;
constexpr std::size_t kPiece = 2097152;

const std::vector<Way>& in_no_context() {
  static const std::vector<Way> kWays{
      {"Vmm", DescriptorKind::kNvidiaFile, MapStrategy::kVmm},
      {"VmmRange", DescriptorKind::kNvidiaFile, MapStrategy::kVmm, kPieces},
      {"ExternalNvidiaFile", DescriptorKind::kNvidiaFile, MapStrategy::kExternal},
      {"ExternalDmaBuf", DescriptorKind::kDmaBuf, MapStrategy::kExternal, 1, 1},
      {"ExternalDmaBufLeftToUs", DescriptorKind::kDmaBuf, MapStrategy::kExternal, 1, 2},
      {"RegisterMemfd", DescriptorKind::kMemfd, MapStrategy::kRegister},
      {"RegisterDmaBuf", DescriptorKind::kDmaBuf, MapStrategy::kRegister},
      {"HostMemfd", DescriptorKind::kMemfd, MapStrategy::kHost},
      {"HostDmaBuf", DescriptorKind::kDmaBuf, MapStrategy::kHost}};
  return kWays;
}

const char* name_in_maps(DescriptorKind kind) {
  return kind == DescriptorKind::kNvidiaFile ? "/memfd:fake-cuda (deleted)"
         : kind == DescriptorKind::kDmaBuf   ? "/memfd:fake-dma-buf (deleted)"
                                             : "/memfd:carveout (deleted)";
}

// Addresses of no memory are not counted under sanitizers.
void add_reserved(std::vector<std::string>& changes, std::size_t bytes) {
#ifndef CARVEOUT_SANITIZED
  if (bytes > 0) changes.push_back(cat("+", bytes, " bytes of ---p"));
#else
  (void)changes, (void)bytes;
#endif
}

}  // namespace

void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

std::vector<Way> ways_of_mapping() {
  std::vector<Way> all = in_no_context();
  for (const Current current : {Current::kItsOwn, Current::kAnotherDevice}) {
    for (Way way : in_no_context()) {
      way.current = current;
      if (way.strategy != MapStrategy::kHost) all.push_back(way);
    }
  }
  return all;
}

CudaFailure::CudaFailure() {
  const Way& way = GetParam();
  fake_.set("dma-buf", way.takes_dma_buf);
  fake_.set("devices", 2);
  for (std::size_t i = 0; i < way.pieces; ++i) {
    files_.push_back(make_file(way.kind, Bytes(kPiece)));
    range_.push_back({way.kind, files_.back().get(), Bytes(kPiece)});
  }
}

void CudaFailure::SetUp() {
  ASSERT_TRUE(cuda::Driver::load(fake_.library()));
  const Way& way = GetParam();
  if (way.current != Current::kNothing) {
    current_ = fake_.make_context(way.current == Current::kItsOwn ? 0 : 1);
    ASSERT_EQ(fake_.call(cuda::kCtxPushCurrent)(current_), cuda::kSuccess);
  }
  if (way.current == Current::kAnotherDevice) settings_.device = 0;
  // What takes memory only once has taken it.
  const auto mapping = map();
  ASSERT_TRUE(mapping) << mapping.error().describe();
  (void)changes(footprint(fake_), footprint(fake_));
}

std::vector<NthCall> CudaFailure::calls_of_mapping() {
  (void)fake_.take_record();
  const auto mapping = map();
  EXPECT_TRUE(mapping);
  return numbered(fake_.take_record());
}

std::vector<NthCall> CudaFailure::calls_of_unmapping() {
  auto mapping = map();
  (void)fake_.take_record();
  EXPECT_TRUE(mapping && mapping->unmap());
  return numbered(fake_.take_record());
}

std::vector<NthCall> CudaFailure::calls_of_rollback(const NthCall& failing) {
  (void)fake_.take_record();
  fake_.fail(failing.entry, failing.nth);
  const bool works = static_cast<bool>(map());
  EXPECT_TRUE(fake_.has_failed(failing.entry)) << failing;
  fake_.fail(failing.entry, 0);
  const auto calls = numbered(fake_.take_record());
  return works ? std::vector<NthCall>() : after(failing, calls);
}

std::vector<std::string> CudaFailure::stays(const std::string& entry, bool performed,
                                            bool aliased) {
  if (performed) return stays_ours(entry);
  const Way& way = GetParam();
  const char* const name = name_in_maps(way.kind);
  const std::string descriptor = cat(" descriptors of ", name);
  const std::string bytes = cat("+", kPiece, " bytes of ", name);
  std::vector<std::string> all{"+1 with the driver"};
  if (entry == "cuMemUnmap") {
    // A range that something is in cannot be freed.
    all = {"+2 with the driver", bytes};
    add_reserved(all, (way.pieces - 1) * kPiece);
  } else if (entry == "cuMemAddressFree") {
    add_reserved(all, way.pieces * kPiece);
  } else if (entry == "cuMemFree") {
    all.push_back(bytes);
  } else if (entry == "cuMemRelease") {
    all.push_back(cat("+1", descriptor));
  } else if (entry == "cuDestroyExternalMemory") {
    all.push_back(cat(way.takes_dma_buf == 2 ? "+2" : "+1", descriptor));
  } else if (entry == "cuMemHostUnregister") {
    if (aliased) all.push_back(bytes);
    add_reserved(all, kPiece);
  }
  return all;
}

std::vector<std::string> CudaFailure::stays_ours(const std::string& entry) {
  const Way& way = GetParam();
  std::vector<std::string> all;
  if (entry == "cuMemHostUnregister") add_reserved(all, kPiece);
  // The descriptor of memory that could not be destroyed may be CUDA's.
  if (entry == "cuDestroyExternalMemory" && way.takes_dma_buf == 2) {
    all.push_back(cat("+1 descriptors of ", name_in_maps(way.kind)));
  }
  return all;
}

void CudaFailure::start_anew(const std::string& entry, bool performed, const Footprint& before) {
  for (const char* call : {"cuCtxPushCurrent", "cuCtxPopCurrent", "cuDevicePrimaryCtxRelease"})
    fake_.fail(call, 0);
  fake_.fail(entry, 0);
  if (entry == "cuCtxPopCurrent" && !performed) {
    cuda::CUcontext popped = nullptr;
    EXPECT_EQ(fake_.call(cuda::kCtxPopCurrent)(&popped), cuda::kSuccess);
    EXPECT_NE(popped, nullptr);
  }
  EXPECT_EQ(fake_.current(), current_);
  fake_.take_everything_back();
  std::vector<std::string> left = changes(before, footprint(fake_));
  EXPECT_THAT(left, testing::UnorderedElementsAreArray(stays_ours(entry)))
      << "once the driver has nothing";
}

}  // namespace carveout::test
