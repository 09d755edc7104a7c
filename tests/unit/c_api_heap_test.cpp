// Every allocation of an opening, and of a closing, made to fail in turn: the answer says so, and
// nothing stays.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "carveout/carveout.h"
#include "unit/c_api_driver_fixture.hpp"
#include "unit/client_lender_fixture.hpp"
#include "unit/failing_heap.hpp"

namespace carveout::client {
namespace {

using test::Answer;
using test::had_enough;

carveout_status_t open(const carveout_options_t* options, carveout_t** handle,
                       carveout_error_t* error) {
  return carveout_open(options, handle, error);
}
carveout_status_t open(const carveout_options_t* options, carveout_pages_t** pages,
                       carveout_error_t* error) {
  return carveout_pages_open(options, pages, error);
}
carveout_status_t close(carveout_t* handle, carveout_error_t* error) {
  return carveout_close(handle, error);
}
carveout_status_t close(carveout_pages_t* pages, carveout_error_t* error) {
  return carveout_pages_close(pages, error);
}

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
  template <typename Handle = carveout_t>
  carveout_status_t open_until_it_has_enough() {
    (void)open_until_it_has_enough<Handle>(false);
    return open_until_it_has_enough<Handle>(true);
  }
  template <typename Handle>
  carveout_status_t open_until_it_has_enough(bool counted) {
    const test::Holdings before = test::holdings();
    carveout_error_t error;
    error.struct_size = sizeof error;
    for (long enough = 0; enough < 1000; ++enough) {
      Handle* handle = nullptr;
      carveout_status_t status = CARVEOUT_OK;
      if (had_enough(enough, [&] { status = open(&options_, &handle, &error); })) {
        EXPECT_GT(enough, 5) << "nothing has failed";
        if (status == CARVEOUT_OK) status = close(handle, nullptr);
        expect_nothing_stays(before, counted);
        return status;
      }
      EXPECT_EQ(handle, nullptr);
      EXPECT_EQ(status, CARVEOUT_ERROR_OUT_OF_HEAP);
      EXPECT_STREQ(error.message, "this process has no memory left");
      expect_nothing_stays(before, counted);
    }
    ADD_FAILURE() << "there is no end";
    return CARVEOUT_ERROR_INTERNAL;
  }

  void expect_nothing_stays(const test::Holdings& before, bool counted) {
    EXPECT_EQ(fake_.live(), 0);
    if (counted) {
      EXPECT_EQ(test::changed_since(before), "");
    }
  }
  // Opens, and closes with that call refused and each allocation failing in turn.
  template <typename Handle = carveout_t>
  void close_until_it_has_enough(const char* refused, bool counted) {
    for (long enough = 0; enough < 1000; ++enough) {
      SCOPED_TRACE(enough);
      const test::Holdings before = test::holdings();
      carveout_error_t error;
      error.struct_size = sizeof error;
      Handle* handle = nullptr;
      ASSERT_EQ(open(&options_, &handle, &error), CARVEOUT_OK) << error.message;
      fake_.fail(refused, 1, cuda::kInvalidValue, true);  // it has been done, all the same
      carveout_status_t status = CARVEOUT_OK;
      const bool closed = had_enough(enough, [&] { status = close(handle, &error); });
      EXPECT_EQ(error.status, status);
      expect_nothing_stays(before, counted);
      if (closed) {
        EXPECT_GT(enough, 2) << "nothing has failed";
        EXPECT_EQ(status, CARVEOUT_ERROR_SYSTEM);
        EXPECT_THAT(error.message, testing::HasSubstr(refused));
        return;
      }
      EXPECT_EQ(status, CARVEOUT_ERROR_OUT_OF_HEAP);
      EXPECT_STREQ(error.message, "this process has no memory left");
    }
    ADD_FAILURE() << "there is no end";
  }

  test::FakeDriver& fake_ = test::the_driver();
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

TEST_F(CApiHeap, LeavesNothingWithTheDriver) {
  options_.source = CARVEOUT_SOURCE_MEMFD;
  options_.map = CARVEOUT_MAP_REGISTER;
  EXPECT_EQ(open_until_it_has_enough(), CARVEOUT_OK);
  options_.source = CARVEOUT_SOURCE_CUDA;
  options_.map = CARVEOUT_MAP_VMM;
  EXPECT_EQ(open_until_it_has_enough(), CARVEOUT_OK);
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_F(CApiHeap, LeavesNothingThatWasLentWithTheDriver) {
  const test::ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
  options_.socket_path = path_.c_str();
  options_.map = CARVEOUT_MAP_REGISTER;
  EXPECT_EQ(open_until_it_has_enough(), CARVEOUT_OK);
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_F(CApiHeap, LeavesNothingOfARefusal) {
  for (const auto& [reply, status] : {std::pair{kFull, CARVEOUT_ERROR_REFUSED},
                                      {kWrongKey, CARVEOUT_ERROR_REFUSED},
                                      {"{", CARVEOUT_ERROR_PROTOCOL},
                                      {kGrant, CARVEOUT_ERROR_PROTOCOL}}) {
    const test::ScriptedLender lender(path_, {Answer{{{reply}}}});
    options_.socket_path = path_.c_str();
    EXPECT_EQ(open_until_it_has_enough(), status) << reply;
    ::unlink(path_.c_str());
  }
}

// --- pages ---

TEST_F(CApiHeap, LeavesNothingOfPages) {
  options_.source = CARVEOUT_SOURCE_CUDA;
  options_.map = CARVEOUT_MAP_AUTO;
  options_.bytes = mib(6).count();
  EXPECT_EQ(open_until_it_has_enough<carveout_pages_t>(), CARVEOUT_OK);
  EXPECT_EQ(fake_.broken_rules(), "");
}

// (What is lent as a file of NVIDIA's needs a statx() that says so: client_pages_test.cpp.)
TEST_F(CApiHeap, LeavesNothingOfPagesThatWereLentAsSomethingElse) {
  const char* const info = R"({"base": 0, "size": 8388608, "free": 8388608, "largest": 8388608})";
  const char* const grant = R"({"ok": true, "base": 0, "size": 2097152})";
  const test::ScriptedLender lender(path_, {Answer{{{info}}}, Answer{{{grant, {memory_.get()}}}}});
  options_.socket_path = path_.c_str();
  options_.map = CARVEOUT_MAP_VMM;
  EXPECT_EQ(open_until_it_has_enough<carveout_pages_t>(), CARVEOUT_ERROR_INVALID);
  EXPECT_EQ(fake_.broken_rules(), "");
}

TEST_F(CApiHeap, ClosesPagesAllTheSame) {
  options_.source = CARVEOUT_SOURCE_CUDA;
  options_.map = CARVEOUT_MAP_AUTO;
  for (const bool counted : {false, true}) {
    close_until_it_has_enough<carveout_pages_t>("cuCtxPopCurrent", counted);
    close_until_it_has_enough<carveout_pages_t>("cuMemRelease", counted);
  }
}

// The memory is given back all the same, and there was no memory left for the words.
TEST_F(CApiHeap, ClosesAllTheSame) {
  const test::ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
  options_.socket_path = path_.c_str();
  for (const bool counted : {false, true}) {
    options_.source = CARVEOUT_SOURCE_MEMFD;
    options_.map = CARVEOUT_MAP_REGISTER;
    close_until_it_has_enough("cuCtxPopCurrent", counted);
    options_.source = CARVEOUT_SOURCE_CUDA;
    options_.map = CARVEOUT_MAP_VMM;
    close_until_it_has_enough("cuMemUnmap", counted);
    options_.source = CARVEOUT_SOURCE_DAEMON;
    options_.map = CARVEOUT_MAP_REGISTER;
    close_until_it_has_enough("cuCtxPopCurrent", counted);
  }
}

}  // namespace
}  // namespace carveout::client
