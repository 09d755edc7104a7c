#include "fake_cuda/fake_driver.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

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

void FakeDriver::fail(const std::string& entry, int nth, cuda::CUresult result, bool performed,
                      int times) {
  reinterpret_cast<decltype(&fake_cuda_fail_from)>(symbol("fake_cuda_fail_from"))(
      entry.c_str(), nth, times, result, performed ? 1 : 0);
}

bool FakeDriver::has_failed() const {
  return reinterpret_cast<decltype(&fake_cuda_has_failed)>(symbol("fake_cuda_has_failed"))() != 0;
}

bool FakeDriver::has_failed(const std::string& entry) const {
  return reinterpret_cast<decltype(&fake_cuda_failed)>(symbol("fake_cuda_failed"))(entry.c_str()) !=
         0;
}

std::vector<std::string> FakeDriver::take_record() {
  std::istringstream lines(
      reinterpret_cast<decltype(&fake_cuda_take_record)>(symbol("fake_cuda_take_record"))());
  std::vector<std::string> calls;
  for (std::string line; std::getline(lines, line);)
    calls.push_back(line);
  return calls;
}

void FakeDriver::take_everything_back() {
  reinterpret_cast<decltype(&fake_cuda_take_everything_back)>(
      symbol("fake_cuda_take_everything_back"))();
}

void FakeDriver::at_wait(void (*meanwhile)()) {
  reinterpret_cast<decltype(&fake_cuda_at_wait)>(symbol("fake_cuda_at_wait"))(meanwhile);
}

void FakeDriver::at_end(void (*handler)()) {
  reinterpret_cast<decltype(&fake_cuda_at_end)>(symbol("fake_cuda_at_end"))(handler);
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

std::ostream& operator<<(std::ostream& out, const NthCall& call) {
  return out << call.entry << " " << call.nth;
}

std::vector<NthCall> numbered(const std::vector<std::string>& record) {
  std::map<std::string, int> counts;
  std::vector<NthCall> all;
  for (const std::string& entry : record)
    all.push_back({entry, ++counts[entry]});
  return all;
}

std::vector<NthCall> after(const NthCall& call, std::vector<NthCall> calls) {
  const auto at = std::find(calls.begin(), calls.end(), call);
  EXPECT_NE(at, calls.end()) << call << " was not called";
  if (at != calls.end()) calls.erase(calls.begin(), std::next(at));
  return calls;
}

bool gives_back(const std::string& entry) {
  static constexpr std::array kEntries{"cuMemUnmap",
                                       "cuMemRelease",
                                       "cuMemAddressFree",
                                       "cuMemFree",
                                       "cuDestroyExternalMemory",
                                       "cuMemHostUnregister",
                                       "cuModuleUnload",
                                       "cuEventDestroy",
                                       "cuCtxPopCurrent",
                                       "cuDevicePrimaryCtxRelease"};
  return std::find(kEntries.begin(), kEntries.end(), entry) != kEntries.end();
}

namespace {

std::map<int, std::string> all_descriptors() {
  std::map<int, std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    // That of the directory itself.
    if (target != cat("/proc/", ::getpid(), "/fd"))
      all[std::stoi(entry.path().filename())] = target;
  }
  return all;
}

std::map<std::string, std::size_t> all_mapped(bool files_only) {
  std::map<std::string, std::size_t> all;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::size_t start = 0, end = 0;
    char dash = 0;
    std::string rights, offset, device, inode, path;
    words >> std::hex >> start >> dash >> end >> rights >> offset >> device >> inode;
    std::getline(words >> std::ws, path);
    if (path == "[heap]" || path == "[stack]" || (files_only && !path.starts_with('/'))) continue;
    all[path.empty() ? rights : path] += end - start;
  }
  return all;
}

template <typename Key>
void add_changes(std::vector<std::string>& changes, std::map<Key, std::ptrdiff_t> counts,
                 const char* of) {
  for (const auto& [what, count] : counts) {
    if (count != 0) changes.push_back(cat(count > 0 ? "+" : "", count, of, what));
  }
}

}  // namespace

Footprint footprint(const FakeDriver& fake) {
#ifdef CARVEOUT_SANITIZED
  return footprint_of_files(fake);
#else
  return {.live = fake.live(), .descriptors = all_descriptors(), .mapped = all_mapped(false)};
#endif
}

Footprint footprint_of_files(const FakeDriver& fake) {
  return {.live = fake.live(), .descriptors = all_descriptors(), .mapped = all_mapped(true)};
}

std::ostream& operator<<(std::ostream& out, const Footprint& what) {
  out << what.live << " with the driver";
  for (const auto& [number, target] : what.descriptors)
    out << "; descriptor " << number << " of " << target;
  for (const auto& [kind, bytes] : what.mapped)
    out << "; " << bytes << " bytes of " << kind;
  return out;
}

std::vector<std::string> changes(const Footprint& before, const Footprint& after) {
  std::map<std::string, std::ptrdiff_t> live{{"", after.live - before.live}}, descriptors, mapped;
  for (const auto& [number, target] : before.descriptors)
    --descriptors[target];
  for (const auto& [number, target] : after.descriptors)
    ++descriptors[target];
  for (const auto& [kind, bytes] : before.mapped)
    mapped[kind] -= static_cast<std::ptrdiff_t>(bytes);
  for (const auto& [kind, bytes] : after.mapped)
    mapped[kind] += static_cast<std::ptrdiff_t>(bytes);
  std::vector<std::string> all;
  add_changes(all, live, " with the driver");
  add_changes(all, descriptors, " descriptors of ");
  add_changes(all, mapped, " bytes of ");
  return all;
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
