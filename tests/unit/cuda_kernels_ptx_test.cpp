// What the carried PTX loads, and how. Whether it is what probe.cu makes now is another test's
// question, which needs a toolkit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace carveout::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr std::string_view kPast = "ld.global.cg.";  // the L1 cache
constexpr std::string_view kWide = "ld.global.cg.v2.u64";

std::string carried() {
  std::ifstream file(CARVEOUT_SOURCE_DIR "/libcarveout/cuda/kernels/probe.ptx");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string with(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// Instructions of all kernels that may read memory; parameters are none of it, nor is what the
// threads of a block tell each other.
struct Kernel {
  std::size_t past = 0, wide = 0;
  std::vector<std::string> other;
};

bool may_read(std::string_view instruction) {
  for (const char* begin : {"ld.", "ldu.", "tex.", "tld4.", "suld.", "cp.", "prefetch", "call"}) {
    if (!instruction.starts_with(begin)) continue;
    return !instruction.starts_with("ld.param.") && !instruction.starts_with("ld.shared.");
  }
  return false;
}

std::map<std::string, Kernel> read(const std::string& text) {
  std::map<std::string, Kernel> kernels;
  std::string name;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word.starts_with("@")) words >> word;  // a predicate
    if (word == ".visible") {
      words >> word >> name;
      name.resize(std::min(name.size(), name.find('(')));
      kernels[name];
    }
    if (!may_read(word)) continue;
    Kernel& kernel = kernels[name];
    if (word.starts_with(kPast)) {
      ++kernel.past;
      if (word == kWide) ++kernel.wide;
    } else {
      kernel.other.push_back(name + ": " + word);
    }
  }
  return kernels;
}

std::vector<std::string> not_past_l1(const std::string& text) {
  std::vector<std::string> all;
  for (const auto& [name, kernel] : read(text))
    all.insert(all.end(), kernel.other.begin(), kernel.other.end());
  return all;
}

TEST(CudaKernelsPtx, LoadsPastTheL1CacheOnly) {
  EXPECT_THAT(not_past_l1(carried()), IsEmpty());
}

TEST(CudaKernelsPtx, IsSeenToLoadOtherwise) {
  const std::string text = carried();
  for (const char* other : {"ld.global.", "ld.global.nc.", "ld.global.ca.", "ld.volatile.global.",
                            "ld.", "ldu.global.", "prefetch.global.L2 "}) {
    const std::string planted = with(text, kPast, other);
    EXPECT_THAT(not_past_l1(planted),
                ElementsAre(HasSubstr("carveout_read: " + std::string(other, 3))));
  }
  EXPECT_THAT(not_past_l1(with(text, "st.global.v2.u64 ", "@%p1 ld.global.v2.u64 ")),
              ElementsAre("carveout_write: ld.global.v2.u64"));
}

TEST(CudaKernelsPtx, LoadsSixteenBytesWhereItReadsAll) {
  const auto kernels = read(carried());
  std::vector<std::string> names;
  for (const auto& [name, kernel] : kernels) {
    names.push_back(name);
    const bool reads = name == "carveout_read" || name == "carveout_gather" ||
                       name == "carveout_copy" || name == "carveout_compare";
    EXPECT_EQ(kernel.wide > 0, reads) << name;
    // One word a step; the offsets of what is gathered.
    const bool words = name == "carveout_chase" || name == "carveout_gather";
    EXPECT_EQ(kernel.past > kernel.wide, words) << name;
  }
  EXPECT_THAT(names, UnorderedElementsAre("carveout_read", "carveout_gather", "carveout_write",
                                          "carveout_copy", "carveout_fill", "carveout_compare",
                                          "carveout_link", "carveout_chase", "carveout_wait"));
}

// Without this, the driver's compiler keeps to the 32 registers of a full multiprocessor, which do
// not hold what a thread of carveout_read has under way (8 vectors of 4).
TEST(CudaKernelsPtx, LeavesRegistersForWhatIsUnderWay) {
  const std::string text = carried();
  std::size_t kernels = 0;
  for (std::size_t at = 0; (at = text.find(".visible .entry ", at)) != std::string::npos; ++at) {
    const std::string head = text.substr(at, text.find('{', at) - at);
    EXPECT_THAT(head, HasSubstr("\n.maxntid 256, 1, 1\n.minnctapersm 4\n"));
    ++kernels;
  }
  EXPECT_EQ(kernels, read(text).size());
}

// The GPUs and drivers that it is for: whatever is newer assembles it itself.
TEST(CudaKernelsPtx, IsForOldGpusAndDrivers) {
  EXPECT_THAT(carried(), HasSubstr("\n.version 6.3\n.target sm_75\n"));
}

}  // namespace
}  // namespace carveout::test
