// The C ABI's allocator for PyTorch: one a process, so each test is a child.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <carveout/carveout.hpp>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>

#include "base/text.hpp"
#include "unit/c_api_torch_fixture.hpp"
#include "unit/client_lender_fixture.hpp"

namespace carveout::client {
namespace {

using test::Answer;

class CApiTorch : public CApiTorchFixture {
 protected:
  // In a process that has not initialised CUDA.
  void expect(const std::function<int()>& body) {
    EXPECT_EQ(test::run_in_child([&] {
                const int line = body();
                if (line != 0) return line;
                return fake_.broken_rules().empty() ? 0 : 250;
              }),
              0)
        << "the line modulo 200, and 1";
  }
  static std::size_t count_sockets() {
    const auto open = test::holdings().descriptors;
    return static_cast<std::size_t>(std::count_if(open.begin(), open.end(), [](const auto& one) {
      return one.find("socket:") != std::string::npos;
    }));
  }

  test::TemporaryDirectory directory_;
};

TEST_F(CApiTorch, TellsItsState) {
  expect([&] {
    carveout_torch_state_t now = state();
    REQUIRE(now.status == CARVEOUT_OFF && now.tried == 0 && now.device == -1 && now.carved == 0);
    REQUIRE(std::string(now.description).empty() && std::string(now.why_not).empty());
    void* const piece = carveout_torch_alloc(1000, 0, nullptr);
    void* const large = carveout_torch_alloc(mib(8).count(), 0, nullptr);
    now = state();
    REQUIRE(piece != nullptr && large != nullptr);
    REQUIRE(now.status == CARVEOUT_OK && now.tried == 1 && now.device == 0);
    REQUIRE(now.source == CARVEOUT_SOURCE_CUDA && now.map == CARVEOUT_MAP_VMM);
    REQUIRE(now.kind == CARVEOUT_KIND_NVIDIA_FILE);
    REQUIRE(std::string(now.description).find("4 MiB of memory of CUDA device 0") == 0);
    REQUIRE(now.bytes == mib(4).count() && now.in_use == 1024 && now.peak == 1024);
    REQUIRE(now.largest == mib(4).count() - 1024 && now.carved == 1 && now.fell_back == 1);
    carveout_torch_free(piece, 1000, 0, nullptr);
    carveout_torch_free(large, mib(8).count(), 0, nullptr);
    carveout_torch_free(nullptr, 0, 0, nullptr);
    carveout_torch_free(piece, 1000, 0, nullptr);
    now = state();
    REQUIRE(now.in_use == 0 && now.refused == 1 && now.failed == 0 && now.waiting == 0);
    return 0;
  });
}

TEST_F(CApiTorch, SaysWhyThereIsNoCarveout) {
  ::setenv("CARVEOUT_MAP", "host", 1);
  ::setenv("CARVEOUT_SOURCE", "memfd", 1);
  expect([&] {
    REQUIRE(carveout_torch_open(0, nullptr, &error_) == CARVEOUT_ERROR_INVALID);
    REQUIRE(std::string(error_.setting) == "CARVEOUT_MAP");
    error_.setting[0] = 0;
    REQUIRE(state().status == CARVEOUT_ERROR_INVALID && state().tried == 1);
    REQUIRE(std::string(error_.setting) == "CARVEOUT_MAP" &&
            error_.status == CARVEOUT_ERROR_INVALID);
    REQUIRE(carveout_torch_alloc(100, 0, nullptr) != nullptr && state().fell_back == 1);
    ::unsetenv("CARVEOUT_MAP");
    REQUIRE(carveout_torch_open(0, nullptr, &error_) == CARVEOUT_OK);
    REQUIRE(state().status == CARVEOUT_OK && std::string(error_.message).empty());
    REQUIRE(carveout_torch_open(0, nullptr, nullptr) == CARVEOUT_OK);
    REQUIRE(carveout_torch_open(1, nullptr, &error_) == CARVEOUT_ERROR_INVALID);
    REQUIRE(carveout_torch_open(-1, nullptr, &error_) == CARVEOUT_ERROR_INVALID);
    return 0;
  });
  expect([&] {
    REQUIRE(carveout_torch_open(-1, nullptr, &error_) == CARVEOUT_ERROR_INVALID);
    REQUIRE(carveout_torch_open(7, nullptr, &error_) == CARVEOUT_ERROR_NOT_FOUND);
    REQUIRE(state().tried == 0 && state().status == CARVEOUT_ERROR_NOT_FOUND);
    ::setenv("CARVEOUT", "0", 1);
    REQUIRE(carveout_torch_open(0, nullptr, &error_) == CARVEOUT_OFF &&
            error_.status == CARVEOUT_OFF);
    return 0;
  });
}

// A program's own options, as for the other openers.
TEST_F(CApiTorch, IsOpenedAsAProgramSays) {
  expect([&] {
    carveout_options_t options;
    (void)carveout_options_init(&options, sizeof options);
    std::string lines;
    options.source = CARVEOUT_SOURCE_CUDA;
    options.bytes = mib(6).count();
    options.log_context = &lines;
    options.log = [](void* context, int32_t, const char* line) {
      *static_cast<std::string*>(context) += line;
    };
    options.device = 1;
    REQUIRE(carveout_torch_open(0, &options, &error_) == CARVEOUT_ERROR_INVALID);
    options.device = 0;
    options.map = CARVEOUT_MAP_HOST;
    REQUIRE(carveout_torch_open(0, &options, &error_) == CARVEOUT_ERROR_INVALID);
    REQUIRE(std::string(error_.setting) == "CARVEOUT_MAP");
    REQUIRE(lines.find("CARVEOUT_MAP: ") != std::string::npos);
    options.map = CARVEOUT_MAP_AUTO;
    options.struct_size = 8;
    REQUIRE(carveout_torch_open(0, &options, &error_) == CARVEOUT_ERROR_INVALID);
    options.struct_size = sizeof options;
    ::setenv("CARVEOUT", "0", 1);
    REQUIRE(carveout_torch_open(0, nullptr, &error_) == CARVEOUT_OFF);
    options.from_environment = 1;
    REQUIRE(carveout_torch_open(0, &options, &error_) == CARVEOUT_OFF);
    options.from_environment = 0;
    error_.struct_size = 8;
    REQUIRE(carveout_torch_open(0, &options, &error_) == CARVEOUT_ERROR_INVALID);
    REQUIRE(state().device == -1);
    error_.struct_size = sizeof error_;
    REQUIRE(carveout_torch_open(0, &options, &error_) == CARVEOUT_OK);
    REQUIRE(state().bytes == mib(6).count());
    const auto* const piece = static_cast<const char*>(carveout_torch_alloc(100, 0, nullptr));
    REQUIRE(reinterpret_cast<std::uint64_t>(piece) - state().device_pointer < state().bytes);
    return 0;
  });
}

TEST_F(CApiTorch, RefusesArgumentsThatAreNone) {
  expect([&] {
    carveout_torch_state_t now{};
    REQUIRE(carveout_torch_get_state(nullptr, &error_) == CARVEOUT_ERROR_INVALID);
    REQUIRE(carveout_torch_get_state(&now, &error_) == CARVEOUT_ERROR_INVALID);
    now.struct_size = sizeof now - 1;
    REQUIRE(carveout_torch_get_state(&now, &error_) == CARVEOUT_ERROR_INVALID);
    now.struct_size = sizeof now;
    REQUIRE(carveout_torch_get_state(&now, nullptr) == CARVEOUT_OK);
    REQUIRE(carveout_torch_alloc(0, 0, nullptr) == nullptr);
    REQUIRE(carveout_torch_alloc(100, 7, nullptr) == nullptr && state().failed == 1);
    return 0;
  });
}

// A child that runs on has no part in the lease, and neither gets nor gives back anything.
TEST_F(CApiTorch, LeavesTheLeaseToTheParentOfAFork) {
  const std::string path = directory_.path("lend.sock");
  const UniqueFd memory = test::make_memory(mib(4).count());
  const test::ScriptedLender lender(path, {Answer{{{kGrant, {memory.get()}}}}});
  ::setenv("CARVEOUT_SOURCE", "daemon", 1);
  ::setenv("CARVEOUT_SOCKET", path.c_str(), 1);
  ::setenv("CARVEOUT_KEY", "swordfish", 1);
  expect([&] {
    const std::size_t before = count_sockets();
    void* const piece = carveout_torch_alloc(1000, 0, nullptr);
    REQUIRE(state().carved == 1 && count_sockets() == before + 1);
    const int child = test::run_in_child([&] {
      REQUIRE(count_sockets() == before);
      REQUIRE(carveout_torch_alloc(1000, 0, nullptr) == nullptr);
      carveout_torch_free(piece, 1000, 0, nullptr);
      REQUIRE(carveout_torch_open(0, nullptr, &error_) != CARVEOUT_OK);
      REQUIRE(state().tried == 0 && state().device == -1);
      return 0;
    });
    REQUIRE(child == 0);
    REQUIRE(count_sockets() == before + 1 && state().in_use == 1024);
    return 0;
  });
}

// The child of a container's first process has its parent's number in a PID namespace of its own.
TEST_F(CApiTorch, KnowsAForkInAnotherPidNamespace) {
  constexpr int kMayNot = 77;
  const auto first_of_its_own = [](const std::function<int()>& body) {
    const int space = CLONE_NEWPID;
    if (::unshare(space) != 0 && ::unshare(CLONE_NEWUSER | space) != 0) return kMayNot;
    return test::run_in_child(body);
  };
  const int answer = test::run_in_child([&] {
    return first_of_its_own([&] {
      void* const piece = carveout_torch_alloc(1000, 0, nullptr);
      carveout_options_t options;
      carveout_t* memory = nullptr;
      REQUIRE(carveout_options_init(&options, sizeof options) == CARVEOUT_OK);
      options.source = CARVEOUT_SOURCE_CUDA;
      options.bytes = mib(2).count();
      REQUIRE(::getpid() == 1 && piece != nullptr && state().carved == 1);
      REQUIRE(carveout_open(&options, &memory, &error_) == CARVEOUT_OK);
      const int child = first_of_its_own([&] {
        REQUIRE(::getpid() == 1);
        REQUIRE(carveout_torch_alloc(1000, 0, nullptr) == nullptr);
        REQUIRE(carveout_torch_open(0, nullptr, &error_) != CARVEOUT_OK);
        REQUIRE(state().tried == 0);
        carveout_t* other = nullptr;
        REQUIRE(carveout_open(&options, &other, &error_) == CARVEOUT_ERROR_SYSTEM);
        const int asked = fake_.calls("cuMemUnmap");
        REQUIRE(carveout_close(memory, &error_) == CARVEOUT_OK);
        REQUIRE(fake_.calls("cuMemUnmap") == asked);
        return 0;
      });
      REQUIRE(carveout_close(memory, &error_) == CARVEOUT_OK);
      return child;
    });
  });
  if (answer == kMayNot) GTEST_SKIP() << "waived: no PID namespace may be made here";
  EXPECT_EQ(answer, 0);
}

// Who has only asked how it is, or opened what is off, has not initialised CUDA.
TEST_F(CApiTorch, WorksInTheChildOfAProcessThatHasNotUsedIt) {
  expect([&] {
    ::setenv("CARVEOUT", "0", 1);
    REQUIRE(state().tried == 0 && carveout_torch_open(0, nullptr, &error_) == CARVEOUT_OFF);
    const int child = test::run_in_child([&] {
      REQUIRE(state().tried == 0);
      ::setenv("CARVEOUT", "1", 1);
      void* const piece = carveout_torch_alloc(1000, 0, nullptr);
      REQUIRE(piece != nullptr && state().carved == 1);
      REQUIRE(test::run_in_child([&] {
                REQUIRE(carveout_torch_alloc(1000, 0, nullptr) == nullptr);
                return 0;
              }) == 0);
      carveout_torch_free(piece, 1000, 0, nullptr);
      REQUIRE(state().in_use == 0 && state().refused == 0);
      return 0;
    });
    REQUIRE(child == 0);
    REQUIRE(carveout_torch_alloc(1000, 0, nullptr) != nullptr && state().fell_back == 1);
    return 0;
  });
}

// --- RMM ---

// As rmm::cuda_stream_view is: its functions are called with one, by value.
struct StreamView {
  void* stream = nullptr;
};
using Allocate = std::function<void*(std::size_t, StreamView, void*)>;
using Deallocate = std::function<void(void*, std::size_t, StreamView, void*)>;

TEST_F(CApiTorch, IsInTheShapeThatRmmCalls) {
  expect([&] {
    int device = 0;
    const Allocate allocate = carveout::rmm_allocate<StreamView>;
    const Deallocate deallocate = carveout::rmm_deallocate<StreamView>;
    void* const piece = allocate(1000, StreamView{}, &device);
    REQUIRE(piece != nullptr && state().carved == 1);
    deallocate(piece, 1000, StreamView{}, &device);
    REQUIRE(state().in_use == 0);
    REQUIRE(allocate(0, StreamView{}, &device) == nullptr);
    deallocate(allocate(1000, StreamView{}, nullptr), 1000, StreamView{}, nullptr);
    REQUIRE(state().carved == 2 && state().in_use == 0);
    device = 7;
    try {
      (void)allocate(1000, StreamView{}, &device);
    } catch (const std::bad_alloc&) {
      return 0;
    }
    return __LINE__ % 200 + 1;
  });
}

}  // namespace
}  // namespace carveout::client
