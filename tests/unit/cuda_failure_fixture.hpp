#pragma once

// Mapping and unmapping in every way, with each call of the driver's failing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "cuda/mapping.hpp"
#include "fake_cuda/fake_driver.hpp"

namespace carveout::test {

// What is current in the thread that maps.
enum class Current {
  kNothing,       // the device's primary context is taken
  kItsOwn,        // the caller's context is taken
  kAnotherDevice  // the caller's is of another device than the one asked for
};

struct Way {
  const char* name;
  DescriptorKind kind;
  MapStrategy strategy;
  std::size_t pieces = 1;
  long takes_dma_buf = 0;
  Current current = Current::kNothing;
};
void PrintTo(const Way& way, std::ostream* out);

// All of them in all contexts.
[[nodiscard]] std::vector<Way> ways_of_mapping();

class CudaFailure : public testing::TestWithParam<Way> {
 protected:
  CudaFailure();
  void SetUp() override;

  Result<cuda::Mapping> map() { return cuda::map_range(range_, settings_); }
  // What a mapping that works calls, in order.
  std::vector<NthCall> calls_of_mapping();
  std::vector<NthCall> calls_of_unmapping();
  // What is called when that call fails, after it. Empty where the mapping works all the same.
  std::vector<NthCall> calls_of_rollback(const NthCall& failing);

  // What changes() says after that call of an undoing has failed, and everything else was done.
  // `aliased`: the device had a pointer to registered memory.
  [[nodiscard]] static std::vector<std::string> stays(const std::string& entry, bool performed,
                                                      bool aliased);
  // What is ours of it: it stays when the driver has lost all that it has.
  [[nodiscard]] static std::vector<std::string> stays_ours(const std::string& entry);
  // Nothing fails any more, and the driver has nothing of us. `before`: see footprint().
  void start_anew(const std::string& entry, bool performed, const Footprint& before);

  FakeDriver fake_;
  cuda::MapSettings settings_ = fake_.settings(GetParam().strategy);
  cuda::CUcontext current_ = nullptr;
  std::vector<UniqueFd> files_;
  std::vector<cuda::File> range_;
};

}  // namespace carveout::test
