// Every allocation of the allocator's calls made to fail in turn: no piece is lost, the driver is
// not asked twice, no lock stays held, and no reason is given that is none.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "carveout/carveout.h"
#include "unit/c_api_torch_fixture.hpp"
#include "unit/failing_heap.hpp"
#include "unit/helpers.hpp"

namespace carveout::client {
namespace {

using test::had_enough;

class CApiTorchHeap : public CApiTorchFixture {
 protected:
  // A child for each number of allocations that succeed, until they are enough: `body` says so.
  // Other numbers than 0 are the child's end, as REQUIRE has it.
  void until_it_has_enough(int least, const std::function<int(long, bool&)>& body) {
    for (long enough = 0; enough < 1000; ++enough) {
      constexpr int kEnough = 240;
      const int end = test::run_in_child([&] {
        bool had = false;
        const int line = body(enough, had);
        if (line != 0) return line;
        if (!fake_.broken_rules().empty()) return 250;
        return had ? kEnough : 0;
      });
      if (end == kEnough) {
        EXPECT_GE(enough, least) << "nothing has failed";
        return;
      }
      ASSERT_EQ(end, 0) << "the line modulo 200, and 1; with " << enough << " allocations";
    }
    ADD_FAILURE() << "there is no end";
  }
  // Nobody has anything, and everything can be had.
  int expect_whole() {
    const carveout_torch_state_t now = state();
    REQUIRE(now.status == CARVEOUT_OK && now.in_use == 0 && now.waiting == 0 && now.refused == 0);
    REQUIRE(now.largest == mib(4).count());
    void* const all = carveout_torch_alloc(mib(4).count(), 0, nullptr);
    REQUIRE(all != nullptr && state().in_use == mib(4).count());
    carveout_torch_free(all, 0, 0, nullptr);
    REQUIRE(fake_.calls("cuMemAlloc") == fake_.calls("cuMemFree"));
    return 0;
  }
};

TEST_F(CApiTorchHeap, AFirstRequestThatFailsIsNone) {
  until_it_has_enough(5, [&](long enough, bool& had) {
    void* piece = nullptr;
    had = had_enough(enough, [&] { piece = carveout_torch_alloc(1000, 0, nullptr); });
    const carveout_torch_state_t now = state();
    REQUIRE(had ? piece != nullptr && now.carved == 1 : piece == nullptr);
    REQUIRE(now.fell_back == 0 && fake_.calls("cuMemAlloc") == 0);
    // What was not made at all could not count.
    REQUIRE(now.failed <= (had ? 0U : 1U));
    REQUIRE(now.status == CARVEOUT_OK || now.tried == 0);
    carveout_torch_free(piece, 1000, 0, nullptr);
    REQUIRE(carveout_torch_open(0, nullptr, &error_) == CARVEOUT_OK);
    return expect_whole();
  });
}

TEST_F(CApiTorchHeap, AnOpeningThatFailsSaysSo) {
  until_it_has_enough(5, [&](long enough, bool& had) {
    carveout_status_t status = CARVEOUT_OK;
    had = had_enough(enough, [&] { status = carveout_torch_open(0, nullptr, &error_); });
    REQUIRE(status == (had ? CARVEOUT_OK : CARVEOUT_ERROR_OUT_OF_HEAP));
    REQUIRE(error_.status == status);
    REQUIRE(state().tried == (had ? 1 : 0));
    void* const piece = carveout_torch_alloc(1000, 0, nullptr);
    REQUIRE(piece != nullptr && state().carved == 1);
    carveout_torch_free(piece, 1000, 0, nullptr);
    return expect_whole();
  });
}

// Of a refusal: there is one, and either its words or none.
TEST_F(CApiTorchHeap, AnOpeningThatIsRefusedIsNeverOff) {
  ::setenv("CARVEOUT_MAP", "sideways", 1);
  until_it_has_enough(3, [&](long enough, bool& had) {
    void* piece = nullptr;
    had = had_enough(enough, [&] { piece = carveout_torch_alloc(1000, 0, nullptr); });
    REQUIRE(!had || piece != nullptr);
    REQUIRE(piece == nullptr || state().fell_back == 1);
    REQUIRE(fake_.calls("cuMemAlloc") == (piece != nullptr ? 1 : 0));
    REQUIRE(state().tried == 0 || state().status == CARVEOUT_ERROR_INVALID);
    carveout_torch_free(piece, 1000, 0, nullptr);
    REQUIRE(fake_.live() <= 1);  // the primary context
    return 0;
  });
}

TEST_F(CApiTorchHeap, AFurtherRequestThatFailsTakesNothing) {
  for (const std::size_t size : {std::size_t{1000}, mib(8).count()}) {  // carved, the driver's
    until_it_has_enough(size == 1000 ? 1 : 0, [&](long enough, bool& had) {
      REQUIRE(carveout_torch_open(0, nullptr, &error_) == CARVEOUT_OK);
      void* piece = nullptr;
      had = had_enough(enough, [&] { piece = carveout_torch_alloc(size, 0, nullptr); });
      REQUIRE(had == (piece != nullptr));
      REQUIRE(state().failed == (had ? 0U : 1U));
      REQUIRE(state().carved + state().fell_back == (had ? 1U : 0U));
      REQUIRE(fake_.calls("cuMemAlloc") == static_cast<int>(state().fell_back));
      carveout_torch_free(piece, size, 0, nullptr);
      return expect_whole();
    });
  }
}

// In a process that has nothing left everything is given back all the same.
TEST_F(CApiTorchHeap, FreeingNeedsNoMemory) {
  for (const int refused_waits : {0, 1}) {
    until_it_has_enough(0, [&](long enough, bool& had) {
      REQUIRE(carveout_torch_open(0, nullptr, &error_) == CARVEOUT_OK);
      void* pieces[8];
      for (void*& piece : pieces)
        piece = carveout_torch_alloc(1000, 0, nullptr);
      void* const by_driver = carveout_torch_alloc(mib(8).count(), 0, nullptr);
      fake_.fail("cuCtxSynchronize", 1, cuda::kInvalidValue, false, refused_waits * 7);
      had = had_enough(enough, [&] {
        for (void* const piece : pieces)
          carveout_torch_free(piece, 1000, 0, nullptr);
        carveout_torch_free(by_driver, mib(8).count(), 0, nullptr);
        carveout_torch_free(by_driver, mib(8).count(), 0, nullptr);
      });
      REQUIRE(had);
      REQUIRE(state().refused == 1);
      REQUIRE(state().in_use == 0 && state().waiting == 0);
      REQUIRE(fake_.broken_rules().empty());
      fake_.take_everything_back();
      ::_exit(240);
    });
  }
}

TEST_F(CApiTorchHeap, AStateThatCannotBeToldIsNotWritten) {
  ::setenv("CARVEOUT_MAP", "sideways", 1);
  until_it_has_enough(1, [&](long enough, bool& had) {
    REQUIRE(carveout_torch_open(0, nullptr, nullptr) == CARVEOUT_ERROR_INVALID);
    carveout_torch_state_t now{};
    now.struct_size = sizeof now;
    carveout_status_t status = CARVEOUT_OK;
    had = had_enough(enough, [&] { status = carveout_torch_get_state(&now, &error_); });
    REQUIRE(status == (had ? CARVEOUT_OK : CARVEOUT_ERROR_OUT_OF_HEAP));
    REQUIRE(now.tried == (had ? 1 : 0));
    REQUIRE(state().status == CARVEOUT_ERROR_INVALID);
    return 0;
  });
}

}  // namespace
}  // namespace carveout::client
