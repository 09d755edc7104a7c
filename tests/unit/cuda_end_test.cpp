// The driver where it cannot be used any more: at the process's end, and in a forked child. Nothing
// is asked of it there. (The fake ends a process that calls it after its end: kBroken.)

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/mapping.hpp"
#include "fake_cuda/fake_driver.hpp"

namespace carveout::test {
namespace {

using cuda::Driver;
using cuda::Mapping;

constexpr Bytes kSize = mib(2);

// For handlers of exit(), which are given nothing.
FakeDriver* the_fake = nullptr;
std::optional<Mapping> kept;
int calls_before = 0;

// What goes wrong when the driver that has been loaded is loaded again, or something mapped: 0.
int goes_wrong_where_it_is_unusable(FakeDriver& fake) {
  const int before = fake.calls();
  const auto loaded = Driver::load(fake.library());
  if (loaded) return 11;
  if (loaded.error().code != Driver::unusable().code ||
      loaded.error().describe() != Driver::unusable().describe()) {
    return 12;
  }
  const UniqueFd file = make_file(DescriptorKind::kNvidiaFile, kSize);
  const UniqueFd memory = make_file(DescriptorKind::kMemfd, kSize);
  const auto refused = map({DescriptorKind::kNvidiaFile, file.get(), kSize}, fake.settings());
  if (refused || refused.error().code != Code::kSystem) return 13;
  auto mapped = map({DescriptorKind::kMemfd, memory.get(), kSize}, fake.settings());
  if (!mapped || mapped->strategy() != MapStrategy::kHost || mapped->why_not().size() != 1) {
    return 14;
  }
  if (!mapped->unmap()) return 15;
  return fake.calls() == before ? 0 : 16;
}

TEST(CudaEnd, NothingIsLoadedInAForkedChild) {
  FakeDriver fake;
  ASSERT_TRUE(Driver::load(fake.library()));
  EXPECT_EQ(run_in_child([&] { return goes_wrong_where_it_is_unusable(fake); }), 0);
}

// The library that the other thread loads is a FIFO: it waits for what is in it.
TEST(CudaEnd, AChildForkedWhileTheDriverIsBeingLoadedDoesNotWait) {
  const TemporaryDirectory directory;
  const std::string fifo = directory.path("libcuda.so.1");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  FakeDriver fake;
  std::thread loading([&] { EXPECT_FALSE(Driver::load(fifo)); });
  UniqueFd writer;
  while (!writer)
    writer = UniqueFd(::open(fifo.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_EQ(run_in_child([&] {
              const auto loaded = Driver::load(fake.library());
              return !loaded && loaded.error().describe() == Driver::unusable().describe() ? 0 : 1;
            }),
            0);
  writer.reset();
  loading.join();
  EXPECT_TRUE(Driver::load(fake.library())) << "the parent goes on";
}

TEST(CudaEnd, AChildMayLoadWhatItsParentHasNot) {
  FakeDriver fake;
  EXPECT_EQ(run_in_child([&] { return Driver::load(fake.library()) ? 0 : 1; }), 0);
  EXPECT_TRUE(Driver::load(fake.library()));
}

TEST(CudaEnd, NothingIsLoadedInTheDriversEnd) {
  FakeDriver fake;
  the_fake = &fake;
  EXPECT_EQ(run_in_child([&] {
              if (!Driver::load(fake.library())) return 2;
              fake.at_end([] { ::_exit(goes_wrong_where_it_is_unusable(*the_fake)); });
              std::exit(3);  // NOLINT(concurrency-mt-unsafe)
            }),
            0);
}

TEST(CudaEnd, NothingIsLoadedByAHandlerOfExitThatComesAfterTheDriversEnd) {
  FakeDriver fake;
  the_fake = &fake;
  EXPECT_EQ(run_in_child([&] {
              std::atexit([] { ::_exit(goes_wrong_where_it_is_unusable(*the_fake)); });
              if (!Driver::load(fake.library())) return 2;
              std::exit(3);  // NOLINT(concurrency-mt-unsafe)
            }),
            0);
}

TEST(CudaEnd, NoOtherDriverIsLoadedAfterIt) {
  static FakeDriver* other = nullptr;
  FakeDriver fake, second;
  other = &second;
  EXPECT_EQ(run_in_child([&] {
              std::atexit([] {
                const auto loaded = Driver::load(other->library());
                ::_exit(!loaded && other->calls() == 0 ? 0 : 4);
              });
              if (!Driver::load(fake.library())) return 2;
              std::exit(3);  // NOLINT(concurrency-mt-unsafe)
            }),
            0);
}

TEST(CudaEnd, AHandlerOfExitThatComesBeforeItMayDoAnything) {
  FakeDriver fake;
  the_fake = &fake;
  EXPECT_EQ(run_in_child([&] {
              if (!Driver::load(fake.library())) return 2;
              std::atexit([] {
                const UniqueFd file = make_file(DescriptorKind::kNvidiaFile, kSize);
                auto mapping =
                    map({DescriptorKind::kNvidiaFile, file.get(), kSize}, the_fake->settings());
                ::_exit(mapping && mapping->unmap() && the_fake->live() == 0 ? 0 : 4);
              });
              std::exit(3);  // NOLINT(concurrency-mt-unsafe)
            }),
            0);
}

// --- what is mapped then ---

struct Way {
  const char* name;
  DescriptorKind kind;
  MapStrategy strategy;
  long takes_dma_buf = 0;
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

class CudaEndOf : public testing::TestWithParam<Way> {
 protected:
  CudaEndOf() { fake_.set("dma-buf", GetParam().takes_dma_buf); }
  Result<Mapping> map_it() {
    return map({GetParam().kind, file_.get(), kSize}, fake_.settings(GetParam().strategy));
  }
  [[nodiscard]] bool is_register() const { return GetParam().strategy == MapStrategy::kRegister; }

  FakeDriver fake_;
  UniqueFd file_ = make_file(GetParam().kind, kSize);
};

// Whatever else goes on in the process at that moment, such as another thread.
TEST_P(CudaEndOf, TheDriverIsUnmappedWithoutIt) {
  the_fake = &fake_;
  EXPECT_EQ(run_in_child([&] {
              auto mapping = map_it();
              if (!Driver::load(fake_.library()) || !mapping) return 2;
              kept.emplace(*std::move(mapping));
              calls_before = fake_.calls();
              fake_.at_end([] {
                if (!kept->unmap()) ::_exit(4);
                ::_exit(the_fake->calls() == calls_before ? 0 : 5);
              });
              std::exit(3);  // NOLINT(concurrency-mt-unsafe)
            }),
            0);
}

// What is gone in a child, and what is there that was not before: both in words.
std::vector<std::string> changes_by_unmapping_in_child(FakeDriver& fake, Mapping& mapping,
                                                       int kept_open) {
  const Pipe pipe = make_pipe();
  EXPECT_EQ(run_in_child([&] {
              const Footprint before = footprint(fake);
              const int calls = fake.calls();
              if (!mapping.unmap()) return 1;
              if (fake.calls() != calls) return 2;
              if (!is_open(kept_open)) return 3;
              std::string text;
              for (const std::string& change : changes(before, footprint(fake)))
                text += change + "\n";
              const ssize_t size = ::write(pipe.write_end.get(), text.data(), text.size());
              return size == static_cast<ssize_t>(text.size()) ? 0 : 4;
            }),
            0);
  std::vector<std::string> all;
  std::string text(4096, '\0');
  text.resize(wait_readable(pipe.read_end.get(), std::chrono::milliseconds(0))
                  ? static_cast<std::size_t>(::read(pipe.read_end.get(), text.data(), text.size()))
                  : 0);
  for (std::istringstream lines(text); std::getline(lines, text);)
    all.push_back(text);
  return all;
}

// Of a dma-buf CUDA was given a descriptor, which keeps the memory lent as long as the child has
// it.
TEST_P(CudaEndOf, AForkedChildGivesUpOnlyWhatIsItsOwn) {
  auto mapping = map_it();
  ASSERT_TRUE(mapping) << mapping.error().describe();
  std::vector<std::string> expected;
  const bool is_dma_buf = GetParam().kind == DescriptorKind::kDmaBuf;
  if (GetParam().strategy == MapStrategy::kExternal && is_dma_buf) {
    expected = {"-1 descriptors of /memfd:fake-dma-buf (deleted)"};
  } else if (mapping->host_pointer() != nullptr) {
    expected = {is_dma_buf ? "-2097152 bytes of /memfd:fake-dma-buf (deleted)"
                           : "-2097152 bytes of /memfd:carveout (deleted)"};
  }
  EXPECT_EQ(changes_by_unmapping_in_child(fake_, *mapping, file_.get()), expected);
  EXPECT_TRUE(mapping->unmap()) << "the parent's is whole";
  EXPECT_EQ(fake_.live(), 0);
  EXPECT_EQ(fake_.broken_rules(), "");
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaEndOf,
    testing::Values(Way{"Vmm", DescriptorKind::kNvidiaFile, MapStrategy::kVmm},
                    Way{"ExternalNvidiaFile", DescriptorKind::kNvidiaFile, MapStrategy::kExternal},
                    Way{"ExternalDmaBuf", DescriptorKind::kDmaBuf, MapStrategy::kExternal, 1},
                    Way{"ExternalDmaBufLeftToUs", DescriptorKind::kDmaBuf, MapStrategy::kExternal,
                        2},
                    Way{"RegisterMemfd", DescriptorKind::kMemfd, MapStrategy::kRegister},
                    Way{"RegisterDmaBuf", DescriptorKind::kDmaBuf, MapStrategy::kRegister},
                    Way{"Host", DescriptorKind::kMemfd, MapStrategy::kHost}),
    [](const auto& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace carveout::test
