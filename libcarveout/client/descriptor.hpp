#pragma once

#include <optional>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "source/source.hpp"

namespace carveout::client {

struct LentFile {
  DescriptorKind kind;
  std::optional<Bytes> length;  // none: a file of NVIDIA's driver tells none
};

// What kind of memory a descriptor that came from somebody else is, and how long. Neither its
// offset nor anything else of it is changed, and nobody but the kernel is asked or waited for.
// Errors: kProtocol for whatever is none of the kinds (a file on a disk, a pipe, /dev/zero, a
// directory: to map those would be to use other memory than the lender's), kSystem.
Result<LentFile> examine(int descriptor);

}  // namespace carveout::client
