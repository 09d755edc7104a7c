#pragma once

// What gpu_check can be told to do; each prints what it sees. What it lacks comes as an Error.

#include <string>

#include "base/result.hpp"

namespace carveout::test {

// The device and its driver. kNotFound: there is none.
Result<void> show_device();

// What the library relies on, or could, and only a GPU can tell.
Result<void> show_facts();

// Claims all that the environment's lender has, and shares it with other processes.
Result<void> share();
// Such another process: it is told by standard input, a socket.
Result<void> read_shared();

// Opens memory as the environment says and uses it by each pointer that there is. `kind` is what it
// has to be: "NVIDIA file", "dma-buf", "memfd". kRefused: it was not opened, and why.
Result<void> open_and_use(const std::string& kind);

// The same of pages, mapped as an engine maps them, and of the allocator that PyTorch is given.
Result<void> open_and_use_pages();
Result<void> allocate_as_pytorch();

}  // namespace carveout::test
