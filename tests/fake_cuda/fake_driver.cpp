#include "fake_cuda/fake_driver.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/text.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/holdings.hpp"

namespace carveout::test {

FakeDriver::FakeDriver(const std::string& which) : library_(directory_.path("libcuda.so.1")) {
  std::filesystem::copy_file(cat(CARVEOUT_FAKE_CUDA, "/", which, "/libcuda.so.1"), library_);
  handle_ = ::dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle_ == nullptr) throw std::runtime_error(::dlerror());
}

cuda::MapSettings FakeDriver::settings(MapStrategy strategy) const {
  return {.strategy = strategy, .device = std::nullopt, .library = library_};
}

void* FakeDriver::symbol(const char* name) const {
  return ::dlsym(handle_, name);
}

void FakeDriver::fail(const std::string& entry, int nth, cuda::CUresult result, bool performed) {
  reinterpret_cast<decltype(&fake_cuda_fail_nth)>(symbol("fake_cuda_fail_nth"))(
      entry.c_str(), nth, result, performed ? 1 : 0);
}

bool FakeDriver::has_failed() const {
  return reinterpret_cast<decltype(&fake_cuda_has_failed)>(symbol("fake_cuda_has_failed"))() != 0;
}

void FakeDriver::set(const std::string& knob, long value) {
  reinterpret_cast<decltype(&fake_cuda_set)>(symbol("fake_cuda_set"))(knob.c_str(), value);
}

void FakeDriver::hide(const std::string& entry) {
  reinterpret_cast<decltype(&fake_cuda_hide)>(symbol("fake_cuda_hide"))(entry.c_str());
}

int FakeDriver::live() const {
  return reinterpret_cast<decltype(&fake_cuda_live)>(symbol("fake_cuda_live"))();
}

int FakeDriver::calls(const std::string& entry) const {
  return reinterpret_cast<decltype(&fake_cuda_calls)>(symbol("fake_cuda_calls"))(entry.c_str());
}

std::string FakeDriver::broken_rules() const {
  return reinterpret_cast<decltype(&fake_cuda_broken_rules)>(symbol("fake_cuda_broken_rules"))();
}

cuda::CUcontext FakeDriver::make_context(int device) {
  return static_cast<cuda::CUcontext>(reinterpret_cast<decltype(&fake_cuda_make_context)>(
      symbol("fake_cuda_make_context"))(device));
}

cuda::CUcontext FakeDriver::current() const {
  cuda::CUcontext context = nullptr;
  EXPECT_EQ(call(cuda::kCtxGetCurrent)(&context), cuda::kSuccess);
  return context;
}

Footprint footprint(const FakeDriver& fake) {
  const Holdings now = holdings();
  const auto files = std::count_if(
      now.mappings.begin(), now.mappings.end(),
      [](const std::string& line) { return line.find("/memfd:") != std::string::npos; });
  return {fake.live(), now.descriptors.size(), static_cast<std::size_t>(files)};
}

std::ostream& operator<<(std::ostream& out, const Footprint& what) {
  return out << what.live << " with the driver, " << what.descriptors << " descriptors, "
             << what.memory_files << " mapped memory files";
}

UniqueFd make_file(DescriptorKind kind, Bytes size) {
  const char* const name = kind == DescriptorKind::kNvidiaFile ? fake_cuda::kOwnName
                           : kind == DescriptorKind::kDmaBuf   ? fake_cuda::kDmaBufName
                                                               : "carveout";
  UniqueFd file(::memfd_create(name, MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(size.count())), 0);
  return file;
}

View::View(int descriptor, Bytes size) : size_(size.count()) {
  void* const place = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (place == MAP_FAILED) throw std::runtime_error("a file cannot be mapped");
  bytes_ = static_cast<unsigned char*>(place);
}

View::~View() {
  ::munmap(const_cast<unsigned char*>(bytes_), size_);
}

}  // namespace carveout::test
