#include "cuda/driver.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

#include "base/text.hpp"

namespace carveout::cuda {
namespace {

std::atomic<bool> exiting{false};

// What this is part of stays loaded. It may be a plugin with the archive linked in: at its
// dlclose() what it has registered for exit() runs, and what is mapped could not be undone after
// that.
void stay_loaded() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<void*>(&stay_loaded), &self) == 0) return;
  // Nothing comes of it in the program itself, which is not unloaded anyway.
  if (::dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) == nullptr) ::dlerror();
}

// After cuInit has registered the driver's own end: this comes before it.
void notice_exit() {
  stay_loaded();
  (void)std::atexit([] { exiting = true; });
}

// Never destroyed: static objects may let go of a driver at exit.
struct Loaded {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const Driver>> drivers;
  bool torn = false;  // forked off while another thread had the mutex
  // So often since it was made: pid 1's child in a PID namespace of its own is pid 1, too.
  std::atomic<unsigned> forks{0};
};
Loaded& loaded();

// That thread is not here to unlock it.
void mend_in_child() {
  Loaded& all = loaded();
  ++all.forks;
  if (all.mutex.try_lock()) {
    all.mutex.unlock();
  } else {
    new (&all.mutex) std::mutex;
    all.torn = true;
  }
}

Loaded& loaded() {
  static Loaded& all = []() -> Loaded& {
    auto* const made = new Loaded;
    (void)::pthread_atfork(nullptr, nullptr, mend_in_child);
    return *made;
  }();
  return all;
}

// dlerror() begins with the library's name, which the error has anyway.
std::string why_not_loaded(const std::string& library) {
  const char* const said = ::dlerror();  // of this thread
  std::string_view text = said != nullptr ? said : "for no reason given";
  if (text.starts_with(library + ": ")) text.remove_prefix(library.size() + 2);
  return printable(text, 300);
}

std::string explain(CUresult result) {
  switch (result) {
    case kNotInitialized:
      return ": it does not work in a process that was forked off one that uses it";
    case kNoDevice:
      return ": there is no CUDA device here, or this user or container may not use it";
    case kInvalidDevice:
      return ": there is no such CUDA device here";
    case kStubLibrary:
      return ": this library is a toolkit's stub to link with, not the driver";
    case kSystemDriverMismatch:
      return ": the library is of another version than the loaded kernel module";
    default:
      return "";
  }
}

}  // namespace

Result<std::shared_ptr<const Driver>> Driver::load(const std::string& library) {
  Loaded& all = loaded();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto known = all.drivers.find(library);
  if (exiting || all.torn) return unusable();
  if (known != all.drivers.end()) {
    if (!known->second->usable()) return unusable();
    return known->second;
  }
  // Never closed: the driver has threads and an end of its own.
  void* const file = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (file == nullptr) {
    return Error{Code::kNotFound, 0, printable(library, 200),
                 cat("the NVIDIA driver's library cannot be loaded (", why_not_loaded(library),
                     "): is the driver installed?")};
  }
  const std::shared_ptr<Driver> driver(new Driver(file));
  driver->name_ = printable(library, 200);
  if (auto resolved = driver->resolve(); !resolved) return std::move(resolved).error();
  if (auto started = driver->start(); !started) return std::move(started).error();
  all.drivers[library] = driver;
  return std::shared_ptr<const Driver>(driver);
}

Result<void> Driver::resolve() {
  get_proc_address_ = reinterpret_cast<decltype(get_proc_address_)>(
      ::dlsym(library_, "cuGetProcAddress_v2"));  // CUDA 12.0
  get_proc_address_v1_ = reinterpret_cast<decltype(get_proc_address_v1_)>(
      ::dlsym(library_, "cuGetProcAddress"));  // CUDA 11.3
  Finder find(*this);
  get_error_name_ = find(kGetErrorName);
  device_get_ = find(kDeviceGet);
  get_current_ = find(kCtxGetCurrent);
  get_device_ = find(kCtxGetDevice);
  push_ = find(kCtxPushCurrent);
  pop_ = find(kCtxPopCurrent);
  retain_ = find(kPrimaryCtxRetain);
  release_ = find(kPrimaryCtxRelease);
  if (find.missing()) return *find.missing();
  return {};
}

Result<void> Driver::start() {
  Finder find(*this);
  const auto init = find(kInit);
  const auto get_version = find(kDriverGetVersion);
  if (find.missing()) return *find.missing();
  if (const CUresult answer = init(0); answer != kSuccess) return failed("cuInit", answer, name_);
  process_ = ::getpid();
  forks_ = loaded().forks;
  notice_exit();
  if (const CUresult answer = get_version(&version_); answer != kSuccess) {
    return failed("cuDriverGetVersion", answer, name_);
  }
  return {};
}

void* Driver::look_up(const char* name, const char* symbol, int since) const {
  constexpr std::uint64_t kLegacyDefaultStream = 0;
  void* place = nullptr;
  if (get_proc_address_ != nullptr) {
    int found = 0;
    const CUresult answer = get_proc_address_(name, &place, since, kLegacyDefaultStream, &found);
    return answer == kSuccess && found == 0 ? place : nullptr;
  }
  if (get_proc_address_v1_ != nullptr) {
    const CUresult answer = get_proc_address_v1_(name, &place, since, kLegacyDefaultStream);
    return answer == kSuccess ? place : nullptr;
  }
  return ::dlsym(library_, symbol);
}

Error Driver::lacks(const char* name) const {
  std::string speaks;
  if (version_ != 0)
    speaks = cat(" (it speaks CUDA ", version_ / 1000, ".", version_ % 1000 / 10, ")");
  return {Code::kNotFound, 0, name_, cat("this driver has no ", name, speaks)};
}

bool Driver::usable() const {
  return !exiting && !is_forked();
}

bool Driver::is_forked() const {
  return process_ != ::getpid() || forks_ != loaded().forks;
}

Error Driver::unusable() {
  return {Code::kSystem, 0, "CUDA",
          "cannot be used in a process that was forked off one that did, or that is ending"};
}

Error Driver::refused(const char* call, CUresult result, std::string context) const {
  const char* name = nullptr;
  if (get_error_name_ == nullptr || get_error_name_(result, &name) != kSuccess) name = nullptr;
  const std::string number = cat("CUresult ", result);
  const std::string text = name != nullptr ? cat(printable(name, 80), " (", number, ")") : number;
  return {Code::kSystem, 0, std::move(context), cat(call, " failed: ", text), result};
}

Error Driver::failed(const char* call, CUresult result, std::string context) const {
  Error error = refused(call, result, std::move(context));
  error.message += explain(result);
  if (result == kNoDevice || result == kInvalidDevice) error.code = Code::kNotFound;
  if (result == kOutOfMemory) error.code = Code::kExhausted;
  return error;
}

}  // namespace carveout::cuda
