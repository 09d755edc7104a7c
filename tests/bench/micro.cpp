// The pure parts by themselves: what a request costs before and after the kernel.

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "reservation.hpp"
#include "wire/codec.hpp"
#include "wire/key.hpp"

namespace carveout {
namespace {

const std::string kInfo = R"({"key": "a-key-of-a-common-length", "op": "info"})";
const std::string kAlloc = R"({"key": "a-key-of-a-common-length", "op": "alloc", "size": 2097152})";

void parse_info(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(wire::parse_request(kInfo));
}
BENCHMARK(parse_info);

void parse_alloc(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(wire::parse_request(kAlloc));
}
BENCHMARK(parse_alloc);

void parse_deepest(benchmark::State& state) {
  const std::string deepest(wire::kMaxDatagram, '[');
  for (auto _ : state)
    benchmark::DoNotOptimize(wire::parse_request(deepest));
}
BENCHMARK(parse_deepest);

void encode_info(benchmark::State& state) {
  const Bytes all = mib(2046);
  for (auto _ : state) {
    benchmark::DoNotOptimize(wire::encode_info({Bytes(0x280200000), all, all, all}));
  }
}
BENCHMARK(encode_info);

void key_matches(benchmark::State& state) {
  const auto key = wire::Key::from("a-key-of-a-common-length");
  for (auto _ : state)
    benchmark::DoNotOptimize(key->matches("a-key-of-a-common-length"));
}
BENCHMARK(key_matches);

// With so many charges of other users outstanding.
void charge_and_give_back(benchmark::State& state) {
  daemon::Reservation reservation(Bytes(0), Slices(100'000), Slices(8));
  std::vector<daemon::Charge> others;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    others.push_back(*reservation.charge(Slices(1), static_cast<daemon::UserId>(i + 1)));
  }
  for (auto _ : state)
    benchmark::DoNotOptimize(reservation.charge(Slices(1), 0));
}
BENCHMARK(charge_and_give_back)->Arg(0)->Arg(1'000)->Arg(50'000);

}  // namespace
}  // namespace carveout

BENCHMARK_MAIN();
