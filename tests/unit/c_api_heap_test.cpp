// Every allocation of an opening made to fail in turn: the answer says so, and nothing stays.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "carveout/carveout.h"
#include "unit/client_lender_fixture.hpp"

namespace {
// So many succeed still; negative: all do.
std::atomic<long> left{-1};

void* allocate(std::size_t size) {
  if (left >= 0 && left-- == 0) {
    left = 0;
    throw std::bad_alloc();
  }
  void* const place = std::malloc(size == 0 ? 1 : size);
  if (place == nullptr) throw std::bad_alloc();
  return place;
}
}  // namespace

void* operator new(std::size_t size) {
  return allocate(size);
}
void* operator new[](std::size_t size) {
  return allocate(size);
}
void operator delete(void* place) noexcept {
  std::free(place);
}
void operator delete[](void* place) noexcept {
  std::free(place);
}
void operator delete(void* place, std::size_t) noexcept {
  std::free(place);
}
void operator delete[](void* place, std::size_t) noexcept {
  std::free(place);
}

namespace carveout::client {
namespace {

using test::Answer;

class CApiHeap : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(carveout_options_init(&options_, sizeof options_), CARVEOUT_OK);
    options_.map = CARVEOUT_MAP_HOST;
    options_.bytes = mib(4).count();
    options_.key = "swordfish";
    options_.log = [](void*, int32_t, const char*) {};
  }

  // Opens with each allocation failing in turn, and all after it, until none does; that answer. All
  // of it twice: what the first makes for good is there when it is counted.
  carveout_status_t open_until_it_has_enough() {
    (void)open_until_it_has_enough(false);
    return open_until_it_has_enough(true);
  }
  carveout_status_t open_until_it_has_enough(bool counted) {
    const test::Holdings before = test::holdings();
    carveout_error_t error;
    error.struct_size = sizeof error;
    for (long enough = 0; enough < 1000; ++enough) {
      carveout_t* handle = nullptr;
      left = enough;
      carveout_status_t status = carveout_open(&options_, &handle, &error);
      const bool had_enough = left > 0;
      left = -1;
      if (had_enough || status != CARVEOUT_ERROR_OUT_OF_HEAP) {
        EXPECT_GT(enough, 5) << "nothing has failed";
        if (status == CARVEOUT_OK) status = carveout_close(handle, nullptr);
        if (counted) {
          EXPECT_EQ(test::changed_since(before), "");
        }
        return status;
      }
      EXPECT_EQ(handle, nullptr);
      EXPECT_STREQ(error.message, "this process has no memory left");
      if (counted) {
        EXPECT_EQ(test::changed_since(before), "") << enough;
      }
    }
    ADD_FAILURE() << "there is no end";
    return CARVEOUT_ERROR_INTERNAL;
  }

  test::TemporaryDirectory directory_;
  std::string path_ = directory_.path("lend.sock");
  UniqueFd memory_ = test::make_memory(mib(4).count());
  carveout_options_t options_;
};

TEST_F(CApiHeap, LeavesNothingOfAMemfd) {
  options_.source = CARVEOUT_SOURCE_MEMFD;
  EXPECT_EQ(open_until_it_has_enough(), CARVEOUT_OK);
}

TEST_F(CApiHeap, LeavesNothingThatWasLent) {
  const test::ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
  options_.socket_path = path_.c_str();
  EXPECT_EQ(open_until_it_has_enough(), CARVEOUT_OK);
}

TEST_F(CApiHeap, LeavesNothingOfARefusal) {
  const test::ScriptedLender lender(path_, {Answer{{{kFull}}}});
  options_.socket_path = path_.c_str();
  EXPECT_EQ(open_until_it_has_enough(), CARVEOUT_ERROR_REFUSED);
}

}  // namespace
}  // namespace carveout::client
