#pragma once

// The processor as an engine: loops over memory by pinned threads. For machines without a GPU, and
// because on a GB10 the processor reads the same memory.

#include <cstddef>
#include <memory>

#include "base/result.hpp"
#include "engines/engine.hpp"

namespace carveout::probe {

// The calling thread becomes one of `threads`, and stays pinned. A working set is divided among
// them. Everything of the engine is to be called by that thread. Errors: as Crew::gather().
[[nodiscard]] Result<std::unique_ptr<Engine>> open_cpu_engine(std::size_t threads);

}  // namespace carveout::probe
