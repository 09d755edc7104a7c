#pragma once

// In which order a program gives things up. It is linked with --wrap=munmap, --wrap=close and
// --wrap=statx; the last has the fake driver's memory look like a file of NVIDIA's.

#include <cstddef>
#include <string>
#include <vector>

#include "fake_cuda/fake_driver.hpp"

namespace carveout::test {

// While it is not null: "unmapped" (mappings of given_up_size), "memory closed", and "given back
// with N at the driver" for a connection.
extern std::vector<std::string>* given_up;
extern const FakeDriver* given_up_driver;
extern std::size_t given_up_size;

}  // namespace carveout::test
