// Any bytes as a configuration file: settings that hold what they promise, or a usage error.

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <variant>

#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "options.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace carveout;          // NOLINT(google-build-using-namespace)
  using namespace carveout::daemon;  // NOLINT(google-build-using-namespace)
  const UniqueFd file(::memfd_create("configuration", MFD_CLOEXEC));
  if (::write(file.get(), data, size) != static_cast<ssize_t>(size)) std::abort();
  const std::string path = cat("/proc/self/fd/", file.get());
  const std::array<const char*, 5> words{"carveoutd", "--config", path.c_str(), "--key-file",
                                         "/etc/carveout/key"};
  std::cerr.setstate(std::ios::failbit);  // what it complains of is not looked at
  const auto parsed = parse_options(static_cast<int>(words.size()), words.data());
  if (const int* code = std::get_if<int>(&parsed)) {
    if (*code != 2) std::abort();
    return 0;
  }
  const auto& options = std::get<Options>(parsed);
  const bool good = options.size >= kSliceBytes &&
                    Slices::holding(options.size).bytes() == options.size &&
                    options.backend == "memfd" && !options.check && options.store_max >= 1 &&
                    options.key_file == "/etc/carveout/key";
  if (!good) std::abort();
  return 0;
}
