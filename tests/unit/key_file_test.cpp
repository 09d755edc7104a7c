#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unit/helpers.hpp"
#include "wire/key.hpp"

namespace carveout::wire {
namespace {

using namespace std::string_literals;

class KeyFile : public testing::Test {
 protected:
  Result<Key> read(std::string_view content, mode_t mode = 0600,
                   KeyAudience audience = KeyAudience::kLender) const {
    return read_key_file(directory_.file("key", content, mode), audience);
  }
  void expect_refused(std::string_view content) const {
    const auto key = read(content);
    ASSERT_FALSE(key);
    EXPECT_EQ(key.error().code, Code::kInvalid);
    EXPECT_EQ(key.error().context, "key file " + directory_.path("key"));
    EXPECT_FALSE(key.error().message.empty());
  }

  test::TemporaryDirectory directory_;
};

TEST_F(KeyFile, IsItsFirstLine) {
  const std::vector<std::pair<std::string, std::string>> rows{
      {"secret\n", "secret"},
      {"secret", "secret"},
      {"secret\r\n", "secret"},
      {"secret\r", "secret"},
      {"secret\nsecond line\nthird\n", "secret"},
      {"secret\r\nsecond line\r\n", "secret"},
      {"secret\n\xff\xfe not UTF-8, and not the key\n", "secret"},
      {"secret\n" + std::string(100'000, 'x'), "secret"},
      {" secret \t\n", " secret \t"},
      {"secret\r\r\n", "secret\r"},
      {"a\rb\n", "a\rb"},
      {"k", "k"},
      {"\xc3\xbc\n", "\xc3\xbc"}};
  for (const auto& [content, expected] : rows) {
    const auto key = read(content);
    ASSERT_TRUE(key) << key.error().describe();
    EXPECT_EQ(key->bytes(), expected);
  }
}

TEST_F(KeyFile, MustHaveSomethingOnItsFirstLine) {
  for (const auto& content : {""s, "\n"s, "\r\n"s, "\r"s, "\nsecret\n"s, "\r\nsecret\r\n"s}) {
    expect_refused(content);
  }
}

TEST_F(KeyFile, HoldsUpTo255Bytes) {
  const std::string longest(255, 'k');
  for (const auto& end : {""s, "\n"s, "\r\n"s, "\r"s, "\nmore"s, "\r\nmore"s}) {
    const auto key = read(longest + end);
    ASSERT_TRUE(key) << key.error().describe();
    EXPECT_EQ(key->bytes(), longest);
  }
  for (const auto& end :
       {"k"s, "k\n"s, "k\r\n"s, "k\r"s, "kk\n"s, "\rk\n"s, "\r\r\n"s, "\xc3\xbc"s}) {
    expect_refused(longest + end);
  }
  expect_refused(std::string(100'000, 'k'));
}

TEST_F(KeyFile, MustBeUtf8) {
  for (const auto& content : {"\xff"s, "secret\x80\n"s, "\xc3\n"s, "\xed\xa0\x80\n"s}) {
    expect_refused(content);
  }
}

TEST_F(KeyFile, MustBeThere) {
  const auto key = read_key_file(directory_.path("missing"), KeyAudience::kLender);
  ASSERT_FALSE(key);
  EXPECT_EQ(key.error().code, Code::kSystem);
  EXPECT_EQ(key.error().number, ENOENT);
  EXPECT_NE(key.error().describe().find(directory_.path("missing")), std::string::npos);
}

TEST_F(KeyFile, MustBeOneThatWeMayOpen) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may open every file";
  const auto key = read("secret\n", 0000);
  ASSERT_FALSE(key);
  EXPECT_EQ(key.error().number, EACCES);
}

TEST_F(KeyFile, MustBeARegularFile) {
  const std::string fifo = directory_.path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  // Nobody writes into the FIFO: opening it the ordinary way would wait for ever.
  for (const std::string& path :
       {directory_.path(), fifo, std::string("/dev/null"), std::string("/dev/zero")}) {
    for (const auto audience : {KeyAudience::kLender, KeyAudience::kBorrower}) {
      const auto key = read_key_file(path, audience);
      ASSERT_FALSE(key) << path;
      EXPECT_EQ(key.error().code, Code::kInvalid) << path;
      EXPECT_EQ(key.error().message, "is not a regular file") << path;
    }
  }
}

TEST_F(KeyFile, OfALenderIsNotForEverybody) {
  for (const mode_t mode : {0604U, 0644U, 0602U, 0606U, 0666U, 0777U}) {
    const auto key = read("secret\n", mode);
    ASSERT_FALSE(key) << std::oct << mode;
    EXPECT_EQ(key.error().code, Code::kInvalid);
    EXPECT_NE(key.error().message.find("chmod"), std::string::npos);
    EXPECT_TRUE(read("secret\n", mode, KeyAudience::kBorrower)) << std::oct << mode;
  }
  for (const mode_t mode : {0400U, 0600U, 0640U, 0660U, 0700U}) {
    EXPECT_TRUE(read("secret\n", mode)) << std::oct << mode;
  }
}

TEST_F(KeyFile, MayBeALink) {
  const std::string target = directory_.file("target", "secret\n", 0640);
  ASSERT_EQ(::symlink(target.c_str(), directory_.path("link").c_str()), 0);
  const auto key = read_key_file(directory_.path("link"), KeyAudience::kLender);
  ASSERT_TRUE(key);
  EXPECT_EQ(key->bytes(), "secret");
}

TEST_F(KeyFile, NeverShowsTheKeyInAnError) {
  const std::string secret = "hunter2hunter2";
  std::string longest;
  while (longest.size() <= 255)
    longest += secret;
  for (const auto& [content, mode] :
       std::vector<std::pair<std::string, mode_t>>{{secret, 0644},
                                                   {longest, 0600},
                                                   {secret + "\xff" + secret, 0600},
                                                   {"\n" + secret, 0600},
                                                   {"\r\n" + secret, 0600}}) {
    const auto key = read(content, mode);
    ASSERT_FALSE(key);
    EXPECT_EQ(key.error().describe().find("hunter"), std::string::npos) << key.error().describe();
  }
}

TEST_F(KeyFile, IsClosedAgain) {
  const std::size_t before = test::open_descriptors();
  EXPECT_TRUE(read("secret\n"));
  EXPECT_FALSE(read("\n"));
  EXPECT_FALSE(read("secret\n", 0644));
  EXPECT_FALSE(read_key_file(directory_.path(), KeyAudience::kLender));
  EXPECT_EQ(test::open_descriptors(), before);
}

}  // namespace
}  // namespace carveout::wire
