#pragma once

// Where memory comes from: one interface for the daemon's backends and the library's direct
// sources. tests/contract holds every implementation to what is written here.

#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/descriptor_kind.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace carveout {

struct Description {
  std::string name;              // as --backend names it
  DescriptorKind kind;           // of what share() gives
  bool kernel_zeroes;            // allocate() gives zeroed memory, scrub() is not needed
  std::optional<Bytes> limit;    // the most that the source can have out at once, where it has one
  bool ordinary_memory = false;  // of what everybody on the host shares
  std::string detail;            // for people: which pages, which device
};

// One allocation, owned: destroying it drops every reference that this process has to the memory,
// except descriptors that share() gave out.
struct Buffer {
  UniqueFd descriptor;
  Bytes size;
};

// Thread rule: one call at a time, from any thread; describe() at any time.
class Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  Source(Source&&) = delete;
  Source& operator=(Source&&) = delete;
  virtual ~Source() = default;

  [[nodiscard]] virtual Description describe() const = 0;

  // A new kernel allocation of exactly `size` bytes (whole slices), committed: touching it later
  // cannot fault. Blocks as long as the kernel needs to find and zero the pages. Errors: kInvalid
  // for zero or a size that is not whole slices, kExhausted when the memory is not there, kSystem
  // for anything else; nothing stays allocated after an error.
  virtual Result<Buffer> allocate(Bytes size) = 0;

  // A descriptor to lend: the same memory. Close-on-exec. The caller owns it. It shares neither
  // file offset nor status flags with the buffer's own, except for a dma-buf and for memory that
  // CUDA has exported, which are opened only once: there it is a duplicate.
  virtual Result<UniqueFd> share(const Buffer& buffer) = 0;

  // Makes every byte zero and leaves the memory committed. After an error the content is unknown
  // and the buffer is only good for being destroyed.
  virtual Result<void> scrub(Buffer& buffer) = 0;

  // What an operator should be told, once: emptied by the call. (Sources do not log.)
  virtual std::optional<std::string> take_warning() = 0;
};

}  // namespace carveout
