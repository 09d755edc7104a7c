// How a size becomes rows of a dumb buffer.

#include <drm.h>
#include <drm_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "base/text.hpp"
#include "source/drm_card.hpp"
#include "unit/drm_fake.hpp"

namespace carveout {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint32_t kMostRows = 65'535;

class DrmShapeTest : public testing::Test {
 protected:
  DrmShapeTest() : is_(fake_.add("card0")) {}
  void SetUp() override {
    auto card = DrmCard::open(fake_.calls(), fake_.path("card0"));
    ASSERT_TRUE(card) << card.error().describe();
    card_.emplace(*std::move(card));
  }
  void TearDown() override {
    EXPECT_LE(fake_.tallest(), kMostRows);
    EXPECT_THAT(fake_.complaints(), IsEmpty());
    EXPECT_EQ(fake_.handles(), 0U);
    EXPECT_EQ(fake_.buffers(), 0U);
  }
  // Whether the card gives it; what it gives is exactly that.
  bool gives(Bytes size) {
    const auto dumb = card_->create_dumb(size);
    if (!dumb) {
      EXPECT_EQ(dumb.error().code, Code::kInvalid) << dumb.error().describe();
      EXPECT_EQ(fake_.handles(), 0U) << format_bytes(size);
      return false;
    }
    EXPECT_EQ(dumb->size, size);
    EXPECT_NE(dumb->pitch, 0U);
    EXPECT_EQ(size.count() % dumb->pitch, 0U);
    EXPECT_EQ(fake_.handles(), 1U);
    card_->destroy_dumb(dumb->handle);
    return true;
  }

  test::DrmFake fake_;
  test::FakeCard& is_;
  std::optional<DrmCard> card_;
};

TEST_F(DrmShapeTest, HoldsEverySliceCountThatTheReservationHas) {
  for (const Bytes page : {kib(4), kib(64)}) {
    is_.page = page;
    for (std::uint64_t count = 1; count <= 1023; ++count)
      EXPECT_TRUE(gives(Slices(count).bytes())) << count;
  }
}

TEST_F(DrmShapeTest, HoldsWhateverFitsIn32Bits) {
  for (const std::uint64_t count : {1024U, 1025U, 1500U, 1791U, 2045U, 2046U, 2047U})
    EXPECT_TRUE(gives(Slices(count).bytes())) << count;
}

TEST_F(DrmShapeTest, BeyondThatIsExhausted) {
  for (const std::uint64_t count : {2048ULL, 2049ULL, 4096ULL, 1ULL << 30, 1ULL << 42}) {
    const auto dumb = card_->create_dumb(Slices(count).bytes());
    ASSERT_FALSE(dumb);
    EXPECT_EQ(dumb.error().code, Code::kExhausted);
    EXPECT_THAT(dumb.error().describe(),
                AllOf(HasSubstr("a dumb buffer has at most 4094 MiB, not "),
                      HasSubstr(format_bytes(Slices(count).bytes()))));
  }
  EXPECT_EQ(fake_.asked(DRM_IOCTL_MODE_CREATE_DUMB), 0U);
}

TEST_F(DrmShapeTest, FitsEveryPowerOfTwoThatRowsAreRoundedTo) {
  std::mt19937 random(1);
  for (std::uint32_t alignment = 64; alignment <= 65'536; alignment *= 2) {
    is_.pitch_alignment = alignment;
    for (const Bytes page : {kib(4), kib(64)}) {
      is_.page = page;
      for (int i = 0; i < 40; ++i) {
        const Slices count(1 + random() % 2047);
        EXPECT_TRUE(gives(count.bytes())) << count.count() << " slices, rows of " << alignment;
      }
    }
  }
}

TEST_F(DrmShapeTest, FitsOrRefusesWhateverRowsAreRoundedTo) {
  std::mt19937 random(2);
  int given = 0;
  for (int i = 0; i < 2000; ++i) {
    is_.pitch_alignment = std::uniform_int_distribution<std::uint32_t>(64, 65'536)(random);
    is_.page = random() % 2 == 0 ? kib(4) : kib(64);
    SCOPED_TRACE(is_.pitch_alignment);
    if (gives(Slices(1 + random() % 2047).bytes())) ++given;
  }
  EXPECT_LT(given, 2000);
}

TEST_F(DrmShapeTest, SaysWhatRowsBecome) {
  is_.pitch_alignment = 48'000;
  const auto dumb = card_->create_dumb(mib(64));
  ASSERT_FALSE(dumb);
  EXPECT_EQ(dumb.error().code, Code::kInvalid);
  EXPECT_THAT(dumb.error().describe(),
              HasSubstr("cannot lay out 64 MiB as a dumb buffer (its rows become 48000 bytes)"));
}

TEST_F(DrmShapeTest, FindsShorterRowsWhenTheLongestAreRoundedUp) {
  is_.pitch_alignment = 8 * 1024 * 3;
  EXPECT_FALSE(gives(kSliceBytes));
  // Rows of 16 KiB become 16 KiB, those of 64 KiB and 32 KiB become longer.
  is_.pitch_alignment = 16 * 1024;
  EXPECT_TRUE(gives(kSliceBytes));
}

TEST_F(DrmShapeTest, WhatIsNotWholeRowsIsRefused) {
  for (const Bytes size : {Bytes(0), Bytes(1), Bytes(4095), kSliceBytes + Bytes(1)}) {
    const auto dumb = card_->create_dumb(size);
    ASSERT_FALSE(dumb);
    EXPECT_EQ(dumb.error().code, Code::kInvalid) << dumb.error().describe();
  }
  EXPECT_EQ(fake_.asked(DRM_IOCTL_MODE_CREATE_DUMB), 0U);
}

TEST_F(DrmShapeTest, ARefusalOfTheSecondRowLengthLeavesNothing) {
  is_.pitch_alignment = 48'000;
  for (const unsigned nth : {1U, 2U, 3U, 4U}) {
    fake_.refuse(DRM_IOCTL_MODE_CREATE_DUMB, ENOMEM, nth);
    EXPECT_FALSE(card_->create_dumb(mib(2)));
    EXPECT_EQ(fake_.handles(), 0U);
  }
}

}  // namespace
}  // namespace carveout
