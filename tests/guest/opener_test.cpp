// The client library's direct sources, where there are cards and heaps.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "carveout/carveout.h"
#include "support/holdings.hpp"

namespace carveout::test {
namespace {

constexpr std::uint64_t kSize = 8U << 20U;

class Opener {
 public:
  Opener(carveout_source_t source, const char* heap) {
    error_.struct_size = sizeof error_;
    (void)carveout_options_init(&options_, sizeof options_);
    options_.source = source;
    options_.map = CARVEOUT_MAP_HOST;
    options_.bytes = kSize;
    options_.heap = heap;
  }

  // Maps it twice, zeroed both times, and leaves nothing open and nothing mapped.
  void expect_usable() {
    for (int turn = 0; turn < 2; ++turn) {
      const Holdings before = holdings();
      carveout_t* memory = nullptr;
      ASSERT_EQ(carveout_open(&options_, &memory, &error_), CARVEOUT_OK) << error_.message;
      carveout_info_t info;
      info.struct_size = sizeof info;
      ASSERT_EQ(carveout_get_info(memory, &info), CARVEOUT_OK);
      EXPECT_EQ(info.bytes, kSize);
      EXPECT_EQ(info.kind, CARVEOUT_KIND_DMA_BUF);
      auto* const bytes = static_cast<unsigned char*>(info.host_pointer);
      EXPECT_TRUE(std::all_of(bytes, bytes + kSize, [](unsigned char byte) { return byte == 0; }));
      std::fill(bytes, bytes + kSize, static_cast<unsigned char>(0xa5));
      const Holdings with = holdings();
      EXPECT_EQ(with.descriptors, before.descriptors);
      EXPECT_EQ(with.mappings.size(), before.mappings.size() + 1);
      EXPECT_EQ(carveout_close(memory, nullptr), CARVEOUT_OK);
      expect_as(before, turn);
    }
  }
  void expect_refused(std::uint64_t bytes, carveout_status_t status) {
    options_.bytes = bytes;
    for (int turn = 0; turn < 2; ++turn) {
      const Holdings before = holdings();
      carveout_t* memory = nullptr;
      EXPECT_EQ(carveout_open(&options_, &memory, &error_), status) << error_.message;
      EXPECT_EQ(memory, nullptr);
      expect_as(before, turn);
    }
  }

 private:
  // What the first turn makes for good is there when it is counted.
  static void expect_as(const Holdings& before, int turn) {
    if (turn > 0) {
      EXPECT_EQ(changed_since(before), "");
    }
  }

  carveout_options_t options_;
  carveout_error_t error_;
};

TEST(DarkCardOpener, MapsADumbBuffer) {
  Opener opener(CARVEOUT_SOURCE_DRM, nullptr);
  opener.expect_usable();
  opener.expect_refused(std::uint64_t{1} << 40U, CARVEOUT_ERROR_EXHAUSTED);
}

TEST(SystemHeapOpener, MapsADmaBuf) {
  Opener opener(CARVEOUT_SOURCE_DMA_HEAP, "system");
  opener.expect_usable();
  opener.expect_refused(std::uint64_t{1} << 40U, CARVEOUT_ERROR_EXHAUSTED);
}

TEST(CmaHeapOpener, MapsADmaBufOfItsOwnMemory) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets it
  Opener opener(CARVEOUT_SOURCE_DMA_HEAP, std::getenv("CARVEOUT_TEST_HEAP"));
  opener.expect_usable();
  opener.expect_refused(std::uint64_t{1} << 30U, CARVEOUT_ERROR_EXHAUSTED);
}

}  // namespace
}  // namespace carveout::test
