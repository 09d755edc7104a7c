#include "key_ring.hpp"

#include <gtest/gtest.h>

#include <string>

namespace carveout::daemon {
namespace {

wire::Key key_of(std::string_view text) {
  return *wire::Key::from(text);
}

TEST(KeyRing, AdmitsOnlyTheKeyInForce) {
  const KeyRing ring(key_of("one"));
  KeyRing::Held held;
  EXPECT_FALSE(ring.admits("two", held));
  EXPECT_FALSE(ring.admits("", held));
  EXPECT_EQ(held, nullptr);
  EXPECT_TRUE(ring.admits("one", held));
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(held->bytes(), "one");
}

TEST(KeyRing, StillAsksWhoIsIn) {
  const KeyRing ring(key_of("one"));
  KeyRing::Held held;
  ASSERT_TRUE(ring.admits("one", held));
  EXPECT_TRUE(ring.admits("one", held));
  EXPECT_FALSE(ring.admits("two", held));
}

TEST(KeyRing, AdmitsANewcomerOnlyByTheNewKey) {
  KeyRing ring(key_of("old"));
  ring.replace(key_of("new"));
  KeyRing::Held held;
  EXPECT_FALSE(ring.admits("old", held));
  EXPECT_EQ(held, nullptr);
  EXPECT_TRUE(ring.admits("new", held));
}

TEST(KeyRing, LeavesWhoIsInTheKeyThatTheyCameWith) {
  KeyRing ring(key_of("old"));
  KeyRing::Held held;
  ASSERT_TRUE(ring.admits("old", held));
  ring.replace(key_of("new"));
  ring.replace(key_of("newer"));
  EXPECT_TRUE(ring.admits("old", held));
  EXPECT_FALSE(ring.admits("new", held));
  // The one in force is good for everybody, and does not take the old one away.
  EXPECT_TRUE(ring.admits("newer", held));
  EXPECT_TRUE(ring.admits("old", held));
}

}  // namespace
}  // namespace carveout::daemon
