#include "unit/given_up.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.hpp"
#include "fake_cuda/fake_cuda.hpp"

namespace carveout::test {

std::vector<std::string>* given_up = nullptr;
const FakeDriver* given_up_driver = nullptr;
std::size_t given_up_size = 0;

namespace {

std::string target_of(int descriptor) {
  std::string target(200, '\0');
  const ssize_t length =
      ::readlink(cat("/proc/self/fd/", descriptor).c_str(), target.data(), target.size());
  target.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  return target;
}

}  // namespace
}  // namespace carveout::test

using carveout::cat;
using carveout::test::given_up;
using carveout::test::target_of;

// The linker has all calls come here.
extern "C" {
int __real_munmap(void* start, std::size_t size);
int __real_close(int descriptor);
int __real_statx(int directory, const char* path, int flags, unsigned mask, struct statx* found);
int __wrap_munmap(void* start, std::size_t size) {
  if (given_up != nullptr && size == carveout::test::given_up_size) {
    given_up->emplace_back("unmapped");
  }
  return __real_munmap(start, size);
}
int __wrap_close(int descriptor) {
  if (given_up != nullptr) {
    const std::string target = target_of(descriptor);
    if (target.starts_with("/memfd:")) given_up->emplace_back("memory closed");
    if (target.starts_with("socket:")) {
      given_up->push_back(
          cat("given back with ", carveout::test::given_up_driver->live(), " at the driver"));
    }
  }
  return __real_close(descriptor);
}
int __wrap_statx(int directory, const char* path, int flags, unsigned mask, struct statx* found) {
  const int answer = __real_statx(directory, path, flags, mask, found);
  const std::string own = cat("/memfd:", carveout::fake_cuda::kOwnName, " ");
  if (answer == 0 && *path == '\0' && target_of(directory).starts_with(own)) {
    found->stx_mode = S_IFCHR;
    found->stx_rdev_major = 195;
  }
  return answer;
}
}
