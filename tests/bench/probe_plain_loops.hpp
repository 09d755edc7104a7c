#pragma once

// Loops as anybody writes them, made by the compiler for the processor that it runs on.

#include <cstddef>
#include <cstdint>

namespace carveout::test {

std::uint64_t plain_sum(const void* from, std::size_t size);
void plain_fill(void* to, std::size_t size, std::uint64_t word);
void plain_copy(void* to, const void* from, std::size_t size);

}  // namespace carveout::test
