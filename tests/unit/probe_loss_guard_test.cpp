// What is taken away while it is used does not end the process, and is known to be gone.

#include "engines/loss_guard.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.hpp"
#include "unit/helpers.hpp"

namespace carveout::probe {
namespace {

constexpr Bytes kSize = mib(1);

// A memfd that nobody has sealed, mapped as a client maps what it is lent.
class Unsealed {
 public:
  Unsealed() : file_(::memfd_create("unsealed", MFD_CLOEXEC)) {
    if (::ftruncate(file_.get(), static_cast<off_t>(kSize.count())) != 0) throw 1;
    void* const at =
        ::mmap(nullptr, kSize.count(), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (at == MAP_FAILED) throw 1;
    at_ = static_cast<char*>(at);
    std::memset(at_, 'x', kSize.count());
  }
  Unsealed(const Unsealed&) = delete;
  Unsealed& operator=(const Unsealed&) = delete;
  Unsealed(Unsealed&&) = delete;
  Unsealed& operator=(Unsealed&&) = delete;
  ~Unsealed() { ::munmap(at_, kSize.count()); }
  [[nodiscard]] char* at() const { return at_; }
  [[nodiscard]] char read(Bytes where) const {
    return static_cast<const volatile char*>(at_)[where.count()];
  }
  void cut(Bytes to) const {
    if (::ftruncate(file_.get(), static_cast<off_t>(to.count())) != 0) throw 1;
  }

 private:
  UniqueFd file_;
  char* at_ = nullptr;
};

TEST(ProbeLossGuard, PutsMemoryWhereSomeWasTakenAway) {
  const Unsealed memory, other;
  const LossGuard guard(memory.at(), kSize), of_other(other.at(), kSize);
  EXPECT_EQ(memory.read(kib(1000)), 'x');
  EXPECT_FALSE(guard.is_lost());
  memory.cut(kib(512));
  EXPECT_EQ(memory.read(kib(1)), 'x') << "still there";
  EXPECT_FALSE(guard.is_lost());
  EXPECT_EQ(memory.read(kib(1000)), 0);
  EXPECT_TRUE(guard.is_lost());
  memory.at()[kib(1000).count()] = 'y';
  EXPECT_EQ(memory.read(kib(1000)), 'y') << "it can be written to, too";
  EXPECT_FALSE(of_other.is_lost());
  EXPECT_EQ(other.read(kib(1000)), 'x');
}

TEST(ProbeLossGuard, IsForEveryThreadThatIsThere) {
  const Unsealed memory;
  const LossGuard guard(memory.at(), kSize);
  memory.cut(Bytes(0));
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i)
    threads.emplace_back([&memory, i] { EXPECT_EQ(memory.read(kib(200 * i)), 0); });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_TRUE(guard.is_lost());
}

TEST(ProbeLossGuard, GoesOnAsAnother) {
  const Unsealed memory;
  std::optional<LossGuard> first(std::in_place, memory.at(), kSize);
  const LossGuard second(std::move(*first));
  first.reset();
  memory.cut(Bytes(0));
  EXPECT_EQ(memory.read(kib(1)), 0);
  EXPECT_TRUE(second.is_lost());
  const LossGuard nothing(nullptr, kSize);
  EXPECT_FALSE(nothing.is_lost());
}

TEST(ProbeLossGuard, TellsNothingOfTheOneBeforeIt) {
  const Unsealed memory, next;
  {
    const LossGuard guard(memory.at(), kSize);
    memory.cut(Bytes(0));
    EXPECT_EQ(memory.read(kib(1)), 0);
  }
  const LossGuard guard(next.at(), kSize);
  EXPECT_FALSE(guard.is_lost());
}

// What nobody guards, and what was guarded once, ends the process as ever.
TEST(ProbeLossGuard, LeavesEverythingElseAsItWas) {
#ifdef CARVEOUT_SANITIZED
  GTEST_SKIP() << "the sanitizer has its own answer to signals";
#endif
  const int code = carveout::test::run_in_child([] {
    const Unsealed guarded, bare;
    { const LossGuard gone(bare.at(), kSize); }
    const LossGuard guard(guarded.at(), kSize);
    bare.cut(Bytes(0));
    (void)bare.read(kib(1));
    return 0;
  });
  EXPECT_EQ(code, 128 + SIGBUS);
}

}  // namespace
}  // namespace carveout::probe
