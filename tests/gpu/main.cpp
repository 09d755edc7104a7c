// What tests/gpu/run runs. Ends with 0, with 1 for a failure, with 3 where memory was refused, and
// with 77 where there is no GPU.

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "gpu/gpu.hpp"
#include "gpu/parts.hpp"

namespace carveout::test {
namespace {

constexpr int kRefused = 3;

int answer(const Result<void>& done) {
  if (done) return 0;
  const Error& error = done.error();
  std::fflush(stdout);
  std::fprintf(stderr, "FAILED: %s\n", error.describe().c_str());
  return 1;
}

int run(const std::vector<std::string>& words) {
  const std::string what = words.size() > 1 ? words[1] : "";
  if (what == "device") {
    const auto shown = show_device();
    if (shown || shown.error().code != Code::kNotFound) return answer(shown);
    std::printf("waived: no NVIDIA GPU here: %s\n", shown.error().describe().c_str());
    return kWaived;
  }
  if (what == "facts") return answer(show_facts());
  if (what == "share") return answer(share());
  if (what == "read") return answer(read_shared());
  const bool opens = what == "open" && words.size() == 3;
  if (opens || what == "pages" || what == "allocator") {
    const auto opened = opens             ? open_and_use(words[2])
                        : what == "pages" ? open_and_use_pages()
                                          : allocate_as_pytorch();
    if (opened || opened.error().code != Code::kRefused) return answer(opened);
    std::printf("refused: %s\n", opened.error().message.c_str());
    return kRefused;
  }
  std::fputs("usage: gpu_check device|facts|share|open KIND|pages|allocator\n", stderr);
  return 2;
}

}  // namespace
}  // namespace carveout::test

int main(int argc, char** argv) {
  if (!carveout::fill_standard_descriptors()) return 1;
  return carveout::test::run({argv, argv + argc});
}
