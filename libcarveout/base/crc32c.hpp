#pragma once

#include <cstdint>
#include <string_view>

namespace carveout {

// CRC-32C (Castagnoli's polynomial, as iSCSI has it: RFC 3720, 12.1) of `bytes`. It changes with
// any single flipped bit, and with any burst of up to 32.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

}  // namespace carveout
