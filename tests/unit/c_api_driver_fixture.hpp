#pragma once

// The fake driver as the C ABI finds it, which has no setting for it: the library's own name, which
// is loaded already.

#include <stdexcept>

#include <dlfcn.h>

#include "fake_cuda/fake_driver.hpp"

namespace carveout::test {

// The only one of the program.
inline FakeDriver& the_driver() {
  static FakeDriver& fake = *new FakeDriver;
  void* const found = ::dlopen(cuda::kLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (found == nullptr || ::dlsym(found, "fake_cuda_live") == nullptr) {
    throw std::runtime_error("the fake driver is not found by its name");
  }
  ::dlclose(found);
  return fake;
}

}  // namespace carveout::test
