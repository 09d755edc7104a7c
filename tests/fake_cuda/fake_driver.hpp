#pragma once

// The fake libcuda.so.1 as tests use it.

#include <cstddef>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/unique_fd.hpp"
#include "cuda/abi.hpp"
#include "cuda/mapping.hpp"
#include "unit/helpers.hpp"

namespace carveout::test {

// A driver of one's own: a copy of the library, with a state of its own.
class FakeDriver {
 public:
  // "fake_cuda", "fake_cuda_11", "fake_cuda_old".
  explicit FakeDriver(const std::string& which = "fake_cuda");

  [[nodiscard]] const std::string& library() const { return library_; }
  [[nodiscard]] cuda::MapSettings settings(MapStrategy strategy = MapStrategy::kAuto) const;

  // See fake_cuda.hpp.
  void fail(const std::string& entry, int nth = 1, cuda::CUresult result = cuda::kNotSupported,
            bool performed = false, int times = 1);
  [[nodiscard]] bool has_failed() const;
  [[nodiscard]] bool has_failed(const std::string& entry) const;
  void set(const std::string& knob, long value);
  void hide(const std::string& entry);
  [[nodiscard]] int live() const;
  [[nodiscard]] int calls(const std::string& entry) const;
  [[nodiscard]] int calls() const { return calls(""); }
  [[nodiscard]] std::vector<std::string> take_record();
  void take_everything_back();
  void at_end(void (*handler)());
  void at_wait(void (*meanwhile)());
  [[nodiscard]] std::string broken_rules() const;
  [[nodiscard]] cuda::CUcontext make_context(int device);

  // The driver's own calls, without a Driver.
  template <typename Function>
  [[nodiscard]] Function* call(const cuda::Entry<Function>& entry) const {
    return reinterpret_cast<Function*>(symbol(entry.symbol));
  }
  [[nodiscard]] cuda::CUcontext current() const;

 private:
  [[nodiscard]] void* symbol(const char* name) const;

  TemporaryDirectory directory_;
  std::string library_;
  void* handle_ = nullptr;
};

// The nth call of an entry.
struct NthCall {
  std::string entry;
  int nth = 1;
  bool operator==(const NthCall&) const = default;
};
std::ostream& operator<<(std::ostream& out, const NthCall& call);
// Of what take_record() gave.
[[nodiscard]] std::vector<NthCall> numbered(const std::vector<std::string>& record);
// What comes after that call.
[[nodiscard]] std::vector<NthCall> after(const NthCall& call, std::vector<NthCall> calls);
// Whether it undoes something.
[[nodiscard]] bool gives_back(const std::string& entry);

// What must be as before once everything is undone.
struct Footprint {
  int live = 0;                            // with the driver
  std::map<int, std::string> descriptors;  // of the process, and what they are of
  // The bytes of addresses by what is there, as /proc/self/maps has it: the file, or the rights of
  // what is of no file. The heap and the stack come and go, and under sanitizers so does all that
  // is of no file.
  std::map<std::string, std::size_t> mapped;
  bool operator==(const Footprint&) const = default;
};
[[nodiscard]] Footprint footprint(const FakeDriver& fake);
// The same for threads, which leave stacks and heaps of theirs behind.
[[nodiscard]] Footprint footprint_of_files(const FakeDriver& fake);
std::ostream& operator<<(std::ostream& out, const Footprint& what);
// "+1 with the driver", "+1 descriptors of /memfd:x", "-4096 bytes of ---p".
[[nodiscard]] std::vector<std::string> changes(const Footprint& before, const Footprint& after);

// Lent memory: an NVIDIA file as another process's driver would have exported it, a dma-buf, or a
// memory file.
[[nodiscard]] UniqueFd make_file(DescriptorKind kind, Bytes size);

// The processor's view of a file.
class View {
 public:
  View(int descriptor, Bytes size);
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  View(View&&) = delete;
  View& operator=(View&&) = delete;
  ~View();
  [[nodiscard]] volatile unsigned char& operator[](std::size_t at) const { return bytes_[at]; }

 private:
  volatile unsigned char* bytes_;
  std::size_t size_;
};

// The fake's device addresses are the processor's too.
[[nodiscard]] inline volatile unsigned char* at_device(cuda::CUdeviceptr pointer) {
  return reinterpret_cast<volatile unsigned char*>(pointer);
}

}  // namespace carveout::test
