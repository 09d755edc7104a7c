// The vectors of RFC 3720, B.4, and what a checksum is for.

#include "base/crc32c.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace carveout {
namespace {

std::string ascending() {
  std::string bytes;
  for (char byte = 0; byte < 32; ++byte)
    bytes += byte;
  return bytes;
}

TEST(Crc32c, OfTheVectorsOfRfc3720) {
  const std::string up = ascending();
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(up), 0x46DD794EU);
  EXPECT_EQ(crc32c(std::string(up.rbegin(), up.rend())), 0x113FDB5CU);
}

TEST(Crc32c, OfTheCatalogueOfCrcs) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
}

TEST(Crc32c, OfNothing) {
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(Crc32c, TellsLengthsOfZerosApart) {
  for (std::size_t length = 0; length < 100; ++length) {
    EXPECT_NE(crc32c(std::string(length, '\0')), crc32c(std::string(length + 1, '\0'))) << length;
  }
}

TEST(Crc32c, ChangesWithEverySingleBit) {
  std::string bytes = ascending() + ascending();
  const auto whole = crc32c(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const auto mask = static_cast<char>(1U << (bit % 8));
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ mask);
    EXPECT_NE(crc32c(bytes), whole) << "bit " << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ mask);
  }
  EXPECT_EQ(crc32c(bytes), whole);
}

}  // namespace
}  // namespace carveout
