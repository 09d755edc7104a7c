#pragma once

// The CUDA driver, found at run time: its calls, and owners of what those calls give.

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "cuda/abi.hpp"

namespace carveout::cuda {

// Found by the loader's own rules, which ignore the environment in a set-user-ID program.
inline constexpr const char* kLibrary = "libcuda.so.1";

// Thread rule: all of it from any thread at any time.
class Driver {
 public:
  // Loads the driver and initialises it, once: after a success everybody in the process is given
  // the same, after a failure it is tried anew. Blocks as long as cuInit does (up to seconds).
  // Errors, of which none leaves anything behind but the library in the process (it cannot be
  // unloaded): kNotFound where there is no such library, where it is no driver, or where it finds
  // no device; kSystem for what else cuInit says.
  static Result<std::shared_ptr<const Driver>> load(const std::string& library = kLibrary);

  // The call, or null where this driver lacks it: older ones lack some. See Finder.
  template <typename Function>
  [[nodiscard]] Function* find(const Entry<Function>& entry) const {
    return reinterpret_cast<Function*>(look_up(entry.name, entry.symbol, entry.since));
  }
  [[nodiscard]] Error lacks(const char* name) const;

  // False once the process is ending, when the driver may be gone before us, and in a forked child,
  // where CUDA does not work: nothing may be called then, and the kernel takes everything back.
  [[nodiscard]] bool usable() const;
  // In a child forked off the process that has loaded it.
  [[nodiscard]] bool is_forked() const;
  // Why it is not usable.
  [[nodiscard]] static Error unusable();

  // "cuMemMap failed: CUDA_ERROR_INVALID_VALUE (CUresult 1)". Error::cuda_result has it, too; it is
  // no errno.
  [[nodiscard]] Error failed(const char* call, CUresult result, std::string context) const;
  // The same as kSystem, without advice.
  [[nodiscard]] Error refused(const char* call, CUresult result, std::string context) const;

  // 1000 * major + 10 * minor of the newest CUDA that it speaks.
  [[nodiscard]] int version() const { return version_; }

 private:
  friend class Context;
  friend class Entered;

  explicit Driver(void* library) : library_(library) {}
  Result<void> resolve();
  Result<void> start();
  [[nodiscard]] void* look_up(const char* name, const char* symbol, int since) const;

  void* const library_;
  std::string name_;
  // Whose it is; the number alone tells nothing of another PID namespace.
  pid_t process_ = 0;
  unsigned forks_ = 0;
  int version_ = 0;
  CUresult (*get_proc_address_)(const char*, void**, int, std::uint64_t, int*) = nullptr;
  CUresult (*get_proc_address_v1_)(const char*, void**, int, std::uint64_t) = nullptr;
  CUresult (*get_error_name_)(CUresult, const char**) = nullptr;
  CUresult (*device_get_)(CUdevice*, int) = nullptr;
  CUresult (*get_current_)(CUcontext*) = nullptr;
  CUresult (*get_device_)(CUdevice*) = nullptr;
  CUresult (*push_)(CUcontext) = nullptr;
  CUresult (*pop_)(CUcontext*) = nullptr;
  CUresult (*retain_)(CUcontext*, CUdevice) = nullptr;
  CUresult (*release_)(CUdevice) = nullptr;
};

using DriverPointer = std::shared_ptr<const Driver>;

// Finds several calls, and remembers the first that is missing.
class Finder {
 public:
  explicit Finder(const Driver& driver) : driver_(driver) {}
  template <typename Function>
  Function* operator()(const Entry<Function>& entry) {
    Function* const found = driver_.find(entry);
    if (found == nullptr && !missing_) missing_ = driver_.lacks(entry.name);
    return found;
  }
  [[nodiscard]] const std::optional<Error>& missing() const { return missing_; }

 private:
  const Driver& driver_;
  std::optional<Error> missing_;
};

// How an undoing went: it goes on whatever happens, and the first failure is kept.
class Undone {
 public:
  void note(const Driver& driver, const char* call, CUresult result) {
    if (result != kSuccess && !failed()) driver_ = &driver, call_ = call, result_ = result;
  }
  void note(const Undone& part) {
    if (part.failed()) note(*part.driver_, part.call_, part.result_);
  }
  [[nodiscard]] bool failed() const { return driver_ != nullptr; }
  // Where it failed. Always kSystem: whatever the driver's word, there is nothing to be done.
  [[nodiscard]] Error error(std::string context) const {
    return driver_->refused(call_, result_, std::move(context));
  }

 private:
  const Driver* driver_ = nullptr;
  const char* call_ = nullptr;
  CUresult result_ = kSuccess;
};

// What one call of the driver gave and another takes back.
template <typename... Arguments>
class Held {
 public:
  using GiveBack = CUresult(Arguments...);

  Held() = default;
  Held(DriverPointer driver, const char* name, GiveBack* call, Arguments... arguments)
      : driver_(std::move(driver)), name_(name), give_back_(call), arguments_(arguments...) {}
  Held(Held&& other) noexcept
      : driver_(std::move(other.driver_)),
        name_(other.name_),
        give_back_(std::exchange(other.give_back_, nullptr)),
        arguments_(std::move(other.arguments_)) {}
  Held& operator=(Held&& other) noexcept {
    if (this != &other) {
      Undone ignored;
      give_back(ignored);
      driver_ = std::move(other.driver_);
      name_ = other.name_;
      give_back_ = std::exchange(other.give_back_, nullptr);
      arguments_ = std::move(other.arguments_);
    }
    return *this;
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    Undone ignored;
    give_back(ignored);
  }

  template <std::size_t kIndex>
  [[nodiscard]] auto get() const {
    return std::get<kIndex>(arguments_);
  }
  [[nodiscard]] explicit operator bool() const { return give_back_ != nullptr; }

  // Once only, whatever the driver answers: it may have been told of an earlier kernel's failure,
  // and by a second call take a stranger's.
  void give_back(Undone& undone) {
    GiveBack* const call = std::exchange(give_back_, nullptr);
    if (call == nullptr || !driver_->usable()) return;
    undone.note(*driver_, name_, std::apply(call, arguments_));
  }

 private:
  DriverPointer driver_;
  const char* name_ = nullptr;
  GiveBack* give_back_ = nullptr;
  std::tuple<Arguments...> arguments_;
};

// A CUDA context to work in.
class Context {
 public:
  // The calling thread's current context if it is of that device, else the device's primary one,
  // retained as long as this lives. Without a device: the current context, or device 0. A context
  // of the caller's must outlive this.
  static Result<Context> current_or_primary(DriverPointer driver, std::optional<int> device);
  static Result<Context> primary(DriverPointer driver, int device);

  [[nodiscard]] CUdevice device() const { return device_; }
  [[nodiscard]] const DriverPointer& driver() const { return driver_; }
  // What the destructor does, saying how it went. Not to be entered afterwards.
  void give_back(Undone& undone) { retained_.give_back(undone); }

 private:
  friend class Entered;
  Context(DriverPointer driver, CUdevice device, CUcontext context, Held<CUdevice> retained)
      : driver_(std::move(driver)),
        device_(device),
        context_(context),
        retained_(std::move(retained)) {}

  DriverPointer driver_;
  CUdevice device_;
  CUcontext context_;
  Held<CUdevice> retained_;
};

// Makes a context the calling thread's current one, and the one before it again at the end.
class Entered {
 public:
  explicit Entered(const Context& context) : Entered(context, nullptr) {}
  // To undo something, come what may.
  Entered(const Context& context, Undone& undone) : Entered(context, &undone) {}
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  Entered(Entered&&) = delete;
  Entered& operator=(Entered&&) = delete;
  ~Entered();

  // False where the driver refused.
  [[nodiscard]] explicit operator bool() const { return entered_; }
  [[nodiscard]] Error error(std::string what) const {
    return driver_.failed(kCtxPushCurrent.name, result_, std::move(what));
  }

 private:
  Entered(const Context& context, Undone* undone);

  const Driver& driver_;
  Undone* const undone_;
  CUresult result_ = kNotInitialized;
  bool entered_ = false;
};

// What a descriptor is that cuMemExportToShareableHandle gave, or the kernel's export for it:
// memory of the driver's own making (cuMemCreate).
class Importer {
 public:
  // Errors: kNotFound where the driver lacks a call.
  static Result<Importer> find(const DriverPointer& driver);

  // Imports it whole. A context must have been entered; the descriptor stays the caller's.
  Result<Held<CUmemGenericAllocationHandle>> import(int descriptor, const std::string& what) const;

 private:
  using Import = CUresult(CUmemGenericAllocationHandle*, void*, int);
  using Release = CUresult(CUmemGenericAllocationHandle);
  Importer(DriverPointer driver, Import* import_call, Release* release_call)
      : driver_(std::move(driver)), import_(import_call), release_(release_call) {}

  DriverPointer driver_;
  Import* import_;
  Release* release_;
};

// The size of the device's pages: what importing and mapping are multiples of.
Result<Bytes> granularity(const Context& context, const std::string& what);
// kInvalid where it is no whole number of them, or nothing.
Result<void> check_whole(Bytes size, Bytes granularity, const std::string& what);

// Such memory in one range of device addresses.
class VirtualRange {
 public:
  // As Importer takes it.
  struct Piece {
    int descriptor = -1;
    Bytes size = {};
  };

  // Maps the pieces one behind the other, readable and writable for the context's device, which
  // must have been entered. The descriptors stay the caller's. Nothing stays after an error, which
  // is kInvalid where a piece is no multiple of the device's granularity.
  static Result<VirtualRange> map(const Context& context, std::span<const Piece> pieces,
                                  const std::string& what);

  VirtualRange(VirtualRange&&) = default;
  VirtualRange& operator=(VirtualRange&&) = delete;
  VirtualRange(const VirtualRange&) = delete;
  VirtualRange& operator=(const VirtualRange&) = delete;
  ~VirtualRange() = default;

  [[nodiscard]] CUdeviceptr address() const { return addresses_.get<0>(); }
  void unmap(Undone& undone);

 private:
  struct Mapped {
    Held<CUmemGenericAllocationHandle> handle;
    Held<CUdeviceptr, std::size_t> place;
  };
  struct Calls;

  VirtualRange() = default;
  Result<void> add(const Calls& calls, const Context& context, const Piece& piece, CUdeviceptr at,
                   const std::string& what);

  // In the order of their making: destroyed in reverse.
  Held<CUdeviceptr, std::size_t> addresses_;
  std::vector<Mapped> mapped_;
};

// The properties of memory on a device that can be exported as a descriptor.
[[nodiscard]] MemAllocationProp shareable_memory(CUdevice device);

// A descriptor as kMemImport takes it.
[[nodiscard]] void* in_pointer(int descriptor);

}  // namespace carveout::cuda
